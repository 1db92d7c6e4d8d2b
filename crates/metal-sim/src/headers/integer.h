// Functions of integers and bits, choice, and the packed formats.
#pragma once
#include "math.h"

namespace metal {
// One implementation for every width: `bits` of a T, computed in 64 bits.
template <class T> inline ulong msl_bits(T x) {
  return sizeof(T) == 8 ? (ulong)x : (ulong)x & (((ulong)1 << (8 * sizeof(T) % 64)) - 1);
}
#define MSL_BITS(T)                                                                         \
  inline T popcount(T x) { return (T)__builtin_popcountl(msl_bits(x)); }                    \
  inline T clz(T x) {                                                                       \
    return (T)(x ? __builtin_clzl(msl_bits(x)) - (64 - 8 * (int)sizeof(T)) : 8 * (int)sizeof(T)); \
  }                                                                                         \
  inline T ctz(T x) { return (T)(x ? __builtin_ctzl(msl_bits(x)) : 8 * (int)sizeof(T)); }   \
  inline T reverse_bits(T x) {                                                              \
    return (T)(__builtin_bitreverse64(msl_bits(x)) >> (64 - 8 * (int)sizeof(T)));           \
  }
MSL_EACH_INTEGER(MSL_BITS)
MSL_MATH_VECTOR_1(popcount) MSL_MATH_VECTOR_1(clz) MSL_MATH_VECTOR_1(ctz)
MSL_MATH_VECTOR_1(reverse_bits)

inline uint mulhi(uint a, uint b) { return (uint)(((ulong)a * b) >> 32); }
inline int mulhi(int a, int b) { return (int)(((long)a * b) >> 32); }
template <class T> inline T rotate(T x, T n) {
  n &= 8 * sizeof(T) - 1;
  return n ? (x << n) | (x >> (8 * sizeof(T) - n)) : x;
}
template <class T> inline T extract_bits(T x, uint offset, uint bits) {
  constexpr uint width = 8 * sizeof(T);
  if (bits == 0) return 0;
  return (T)((T)(x << (width - bits - offset)) >> (width - bits));
}
template <class T> inline T insert_bits(T base, T insert, uint offset, uint bits) {
  if (bits == 0) return base;
  ulong mask = (~(ulong)0 >> (64 - bits)) << offset;
  return (T)((msl_bits(base) & ~mask) | ((msl_bits(insert) << offset) & mask));
}
template <class T, int N> inline vec<T, N> extract_bits(vec<T, N> x, uint offset, uint bits) {
  for (int i = 0; i < N; ++i) x[i] = extract_bits(x[i], offset, bits);
  return x;
}

// naga writes `select(long, 1, ..)`, so the second argument is converted to the type of the first.
template <class T> inline T select(T no, msl_same_t<T> yes, bool c) { return c ? yes : no; }
template <class T, int N>
inline vec<T, N> select(vec<T, N> no, vec<T, N> yes, boolean_vector<N> c) {
  for (int i = 0; i < N; ++i) no[i] = c[i] ? yes[i] : no[i];
  return no;
}
template <class T, int N, class M>
inline vec<T, N> select(vec<T, N> no, vec<T, N> yes, vec<M, N> c) {
  for (int i = 0; i < N; ++i) no[i] = c[i] ? yes[i] : no[i];
  return no;
}

inline bool any(bool b) { return b; }
inline bool all(bool b) { return b; }
template <int N> inline bool any(boolean_vector<N> v) {
  bool r = false;
  for (int i = 0; i < N; ++i) r = r || v[i];
  return r;
}
template <int N> inline bool all(boolean_vector<N> v) {
  bool r = true;
  for (int i = 0; i < N; ++i) r = r && v[i];
  return r;
}
template <class T, int N> inline bool any(vec<T, N> v) { return any(boolean_vector<N>(v)); }
template <class T, int N> inline bool all(vec<T, N> v) { return all(boolean_vector<N>(v)); }

// The packed formats: n numbers of `bits` bits in a word, scaled to [-1, 1] or [0, 1].
template <int N> inline uint msl_pack(vec<float, N> v, float low, float scale) {
  constexpr int bits = 32 / N;
  uint word = 0;
  for (int i = 0; i < N; ++i) {
    int value = (int)__builtin_rintf(__builtin_fminf(__builtin_fmaxf(v[i], low), 1.0f) * scale);
    word |= ((uint)value & ((1u << bits) - 1)) << (bits * i);
  }
  return word;
}
inline uint pack_float_to_unorm4x8(float4 v) { return msl_pack<4>(v, 0.0f, 255.0f); }
inline uint pack_float_to_snorm4x8(float4 v) { return msl_pack<4>(v, -1.0f, 127.0f); }
inline uint pack_float_to_unorm2x16(float2 v) { return msl_pack<2>(v, 0.0f, 65535.0f); }
inline uint pack_float_to_snorm2x16(float2 v) { return msl_pack<2>(v, -1.0f, 32767.0f); }
template <class E, int N> inline vec<float, N> msl_unpack(uint word, float scale) {
  vec<float, N> r;
  for (int i = 0; i < N; ++i)
    r[i] = __builtin_fmaxf((float)(E)(word >> (32 / N * i)) / scale, -1.0f);
  return r;
}
inline float4 unpack_unorm4x8_to_float(uint p) { return msl_unpack<uchar, 4>(p, 255.0f); }
inline float4 unpack_snorm4x8_to_float(uint p) { return msl_unpack<char, 4>(p, 127.0f); }
inline float2 unpack_unorm2x16_to_float(uint p) { return msl_unpack<ushort, 2>(p, 65535.0f); }
inline float2 unpack_snorm2x16_to_float(uint p) { return msl_unpack<short, 2>(p, 32767.0f); }
}  // namespace metal
