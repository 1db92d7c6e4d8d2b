// Barriers, and operations over the lanes of a simdgroup.
#pragma once
#include "integer.h"
#ifndef MSL_CHECK
#include "abi.h"
#endif

namespace metal {
enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
enum memory_order { memory_order_relaxed };

#ifdef MSL_CHECK

void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
template <class T> T msl_number(T);
#define MSL_LANES_1(name) template <class T> T name(T value);
#define MSL_LANES_2(name) template <class T> T name(T value, ushort lane);
MSL_LANES_1(simd_sum) MSL_LANES_1(simd_product) MSL_LANES_1(simd_min) MSL_LANES_1(simd_max)
MSL_LANES_1(simd_and) MSL_LANES_1(simd_or) MSL_LANES_1(simd_xor) MSL_LANES_1(simd_broadcast_first)
MSL_LANES_1(simd_prefix_inclusive_sum) MSL_LANES_1(simd_prefix_exclusive_sum)
MSL_LANES_1(simd_prefix_inclusive_product) MSL_LANES_1(simd_prefix_exclusive_product)
MSL_LANES_2(simd_shuffle) MSL_LANES_2(simd_broadcast) MSL_LANES_2(simd_shuffle_xor)
MSL_LANES_2(simd_shuffle_down) MSL_LANES_2(simd_shuffle_up)
MSL_LANES_2(quad_broadcast) MSL_LANES_2(quad_shuffle_xor)
bool simd_any(bool);
bool simd_all(bool);
struct simd_vote {
  ulong votes;
  explicit operator ulong() const { return votes; }
};
simd_vote simd_ballot(bool);

#else

// Inlined, so that the address it returns to tells which barrier or operation of the kernel it is.
#define MSL_HERE inline __attribute__((always_inline))

MSL_HERE void threadgroup_barrier(mem_flags flags) { msl_group_barrier((int)flags); }
MSL_HERE void simdgroup_barrier(mem_flags flags) { msl_simd_barrier((int)flags); }

template <class T> inline T msl_in(const msl_lane *lane) { return *(const T *)lane->in; }
template <class T> inline void msl_out(const msl_lane *lane, T value) { *(T *)lane->out = value; }

// Reductions and scans combine in the order of the lanes.
template <class T, class F> inline void msl_reduce(msl_lane *const *lanes, unsigned mask) {
  unsigned first = __builtin_ctz(mask);
  T sum = msl_in<T>(lanes[first]);
  for (unsigned l = first + 1; l < 32; ++l)
    if (mask >> l & 1) sum = F::apply(sum, msl_in<T>(lanes[l]));
  for (unsigned l = 0; l < 32; ++l)
    if (mask >> l & 1) msl_out<T>(lanes[l], sum);
}
template <class T, class F, bool inclusive>
inline void msl_scan(msl_lane *const *lanes, unsigned mask) {
  T sum = F::template identity<T>();
  for (unsigned l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    T next = F::apply(sum, msl_in<T>(lanes[l]));
    msl_out<T>(lanes[l], inclusive ? next : sum);
    sum = next;
  }
}
// What is read from a lane that takes no part is undefined: all bits set.
template <class T, class F> inline void msl_move(msl_lane *const *lanes, unsigned mask) {
  for (unsigned l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    unsigned from = F::lane(l, lanes[l]->argument) & 31;
    if (mask >> from & 1) msl_out<T>(lanes[l], msl_in<T>(lanes[from]));
    else __builtin_memset(lanes[l]->out, 0xff, sizeof(T));
  }
}

#define MSL_COMBINE(Name, expression, neutral)                              \
  struct Name {                                                             \
    template <class T> static T apply(T a, T b) { return expression; }      \
    template <class T> static T identity() { return (T)neutral; }           \
  };
MSL_COMBINE(msl_add, a + b, 0)
MSL_COMBINE(msl_multiply, a *b, 1)
MSL_COMBINE(msl_smaller, min(a, b), 0)
MSL_COMBINE(msl_larger, max(a, b), 0)
MSL_COMBINE(msl_and, a &b, 0)
MSL_COMBINE(msl_or, a | b, 0)
MSL_COMBINE(msl_xor, a ^ b, 0)

#define MSL_LANES_1(name, function)                                         \
  template <class T> MSL_HERE T name(T value) {                             \
    T result;                                                               \
    msl_lanes(function, &value, &result, 0, 0);                             \
    return result;                                                          \
  }
MSL_LANES_1(simd_sum, (msl_reduce<T, msl_add>))
MSL_LANES_1(simd_product, (msl_reduce<T, msl_multiply>))
MSL_LANES_1(simd_min, (msl_reduce<T, msl_smaller>))
MSL_LANES_1(simd_max, (msl_reduce<T, msl_larger>))
MSL_LANES_1(simd_and, (msl_reduce<T, msl_and>))
MSL_LANES_1(simd_or, (msl_reduce<T, msl_or>))
MSL_LANES_1(simd_xor, (msl_reduce<T, msl_xor>))
MSL_LANES_1(simd_prefix_inclusive_sum, (msl_scan<T, msl_add, true>))
MSL_LANES_1(simd_prefix_exclusive_sum, (msl_scan<T, msl_add, false>))
MSL_LANES_1(simd_prefix_inclusive_product, (msl_scan<T, msl_multiply, true>))
MSL_LANES_1(simd_prefix_exclusive_product, (msl_scan<T, msl_multiply, false>))

#define MSL_LANES_2(name, expression)                                       \
  struct msl_##name {                                                       \
    static unsigned lane(unsigned l, unsigned d) { return expression; }     \
  };                                                                        \
  template <class T> MSL_HERE T name(T value, ushort d) {                   \
    T result;                                                               \
    msl_lanes(msl_move<T, msl_##name>, &value, &result, d, 0);              \
    return result;                                                          \
  }
MSL_LANES_2(simd_shuffle, d)
MSL_LANES_2(simd_broadcast, d)
MSL_LANES_2(simd_shuffle_xor, l ^ d)
MSL_LANES_2(simd_shuffle_down, l + d > 31 ? l : l + d)
MSL_LANES_2(simd_shuffle_up, d > l ? l : l - d)
MSL_LANES_2(quad_broadcast, (l & ~3u) | d)
MSL_LANES_2(quad_shuffle_xor, (l & ~3u) | ((l ^ d) & 3))

template <class T> inline void msl_first(msl_lane *const *lanes, unsigned mask) {
  T value = msl_in<T>(lanes[__builtin_ctz(mask)]);
  for (unsigned l = 0; l < 32; ++l)
    if (mask >> l & 1) msl_out<T>(lanes[l], value);
}
MSL_LANES_1(simd_broadcast_first, (msl_first<T>))

inline void msl_votes(msl_lane *const *lanes, unsigned mask) {
  ulong votes = 0;
  for (unsigned l = 0; l < 32; ++l)
    if ((mask >> l & 1) && msl_in<bool>(lanes[l])) votes |= 1ul << l;
  for (unsigned l = 0; l < 32; ++l)
    if (mask >> l & 1) msl_out<ulong>(lanes[l], votes);
}
MSL_HERE ulong msl_ballot(bool vote) {
  ulong votes;
  msl_lanes(msl_votes, &vote, &votes, 0, 0);
  return votes;
}
struct simd_vote {
  ulong votes;
  explicit operator ulong() const { return votes; }
};
MSL_HERE simd_vote simd_ballot(bool vote) { return simd_vote{msl_ballot(vote)}; }
MSL_HERE bool simd_any(bool vote) { return msl_ballot(vote) != 0; }
MSL_HERE bool simd_all(bool vote) { return msl_ballot(!vote) == 0; }

#endif
}  // namespace metal
