// Atomic types and operations. Threads run one at a time and change only at barriers and simd
// operations, so a plain read and write is atomic here.
#pragma once
#include "simd.h"

namespace metal {
template <class T> struct atomic { T value; };

#ifdef MSL_CHECK

// OpenCL has types of these names; keywords.h puts ours in their place.
typedef atomic<int> msl_atomic_int;
typedef atomic<uint> msl_atomic_uint;
typedef atomic<float> msl_atomic_float;
typedef atomic<long> msl_atomic_long;
typedef atomic<ulong> msl_atomic_ulong;

#define MSL_UPDATE(space, name) \
  template <class T> T name(volatile space atomic<T> *at, msl_same_t<T> x, memory_order);
#define MSL_ATOMICS(space)                                                                      \
  template <class T> T atomic_load_explicit(const volatile space atomic<T> *at, memory_order);  \
  template <class T>                                                                            \
  void atomic_store_explicit(volatile space atomic<T> *at, msl_same_t<T> x, memory_order);      \
  template <class T>                                                                            \
  bool atomic_compare_exchange_weak_explicit(volatile space atomic<T> *at, MSL_THREAD T *seen,  \
                                             msl_same_t<T> x, memory_order, memory_order);      \
  MSL_UPDATE(space, atomic_exchange_explicit)                                                   \
  MSL_UPDATE(space, atomic_fetch_add_explicit)                                                  \
  MSL_UPDATE(space, atomic_fetch_sub_explicit)                                                  \
  MSL_UPDATE(space, atomic_fetch_and_explicit)                                                  \
  MSL_UPDATE(space, atomic_fetch_or_explicit)                                                   \
  MSL_UPDATE(space, atomic_fetch_xor_explicit)                                                  \
  MSL_UPDATE(space, atomic_fetch_min_explicit)                                                  \
  MSL_UPDATE(space, atomic_fetch_max_explicit)                                                  \
  MSL_UPDATE(space, atomic_min_explicit)                                                        \
  MSL_UPDATE(space, atomic_max_explicit)
MSL_ATOMICS(__global)
MSL_ATOMICS(__local)

#else

typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<long> atomic_long;
typedef atomic<ulong> atomic_ulong;

#ifdef MSL_COUNT
// Out of the instrumented code, and noted as one atomic access of the place that calls it.
#define MSL_ATOMIC __attribute__((noinline, no_sanitize("thread")))
#define MSL_NOTE(writes) msl_atomic_access(at, sizeof(T), writes, __builtin_return_address(0));
#else
#define MSL_ATOMIC inline
#define MSL_NOTE(writes)
#endif

template <class T> MSL_ATOMIC T atomic_load_explicit(const volatile atomic<T> *at, memory_order) {
  MSL_NOTE(0)
  return at->value;
}
template <class T>
MSL_ATOMIC void atomic_store_explicit(volatile atomic<T> *at, msl_same_t<T> x, memory_order) {
  MSL_NOTE(1)
  at->value = x;
}
template <class T>
MSL_ATOMIC bool atomic_compare_exchange_weak_explicit(volatile atomic<T> *at, T *seen,
                                                      msl_same_t<T> x, memory_order, memory_order) {
  MSL_NOTE(1)
  T old = at->value;
  bool same = old == *seen;
  if (same) at->value = x;
  *seen = old;
  return same;
}
#define MSL_UPDATE(name, expression)                                                  \
  template <class T>                                                                  \
  MSL_ATOMIC T name(volatile atomic<T> *at, msl_same_t<T> x, memory_order) {          \
    MSL_NOTE(1)                                                                       \
    T old = at->value;                                                                \
    at->value = expression;                                                           \
    return old;                                                                       \
  }
MSL_UPDATE(atomic_exchange_explicit, x)
MSL_UPDATE(atomic_fetch_add_explicit, old + x)
MSL_UPDATE(atomic_fetch_sub_explicit, old - x)
MSL_UPDATE(atomic_fetch_and_explicit, old &x)
MSL_UPDATE(atomic_fetch_or_explicit, old | x)
MSL_UPDATE(atomic_fetch_xor_explicit, old ^ x)
MSL_UPDATE(atomic_fetch_min_explicit, x < old ? x : old)
MSL_UPDATE(atomic_fetch_max_explicit, old < x ? x : old)
MSL_UPDATE(atomic_min_explicit, x < old ? x : old)
MSL_UPDATE(atomic_max_explicit, old < x ? x : old)

#endif
}  // namespace metal
