// Constructors and conversions: `float4(a, b)`, `static_cast<float4>(v)`, `as_type<uint>(x)`.
//
// clang's own vectors know neither, so the rewriter and keywords.h turn the MSL spellings into the
// functions here.
#pragma once
#include "types.h"

namespace metal {
template <class To, class From> constexpr inline To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs types of one size");
  return __builtin_bit_cast(To, from);
}

template <class V> struct msl_builder {
  V v;
  int next;
  template <class X> constexpr void put(X x) {
    using E = typename msl_traits<V>::element;
    if constexpr (msl_traits<X>::length == 1) v[next++] = (E)x;
    else for (int i = 0; i < msl_traits<X>::length; ++i) v[next++] = (E)x[i];
  }
};

// `V(arguments...)`: components from scalars and vectors, one scalar for all, or a conversion.
template <class V, class... A> constexpr inline V msl_make(A... a) {
  if constexpr (msl_traits<V>::length == 1) {
    return V(a...);
  } else if constexpr (__is_same(typename msl_traits<V>::element, bool)) {
    return V(a...);
  } else {
    constexpr int given = (0 + ... + msl_traits<A>::length);
    static_assert(sizeof...(A) == 0 || given == msl_traits<V>::length ||
                      (sizeof...(A) == 1 && given == 1),
                  "wrong number of components in a vector constructor");
    msl_builder<V> builder{};
    (builder.put(a), ...);
    if constexpr (given == 1)
      for (int i = 1; i < msl_traits<V>::length; ++i) builder.v[i] = builder.v[0];
    return builder.v;
  }
}

template <class V, class X> constexpr inline V msl_static_cast(X x) {
  if constexpr (msl_traits<V>::length > 1) return msl_make<V>(x);
  else return static_cast<V>(x);
}
}  // namespace metal
using metal::as_type; using metal::msl_make; using metal::msl_static_cast;
