// Scalar and vector types of MSL, and the traits that the other headers need.
//
// Every header is used in two ways:
//   MSL_CHECK  C++ for OpenCL: address spaces are real, nothing is run
//   MSL_RUN    C++20: address spaces are erased, functions have bodies
#pragma once

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;

#ifdef MSL_CHECK
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define MSL_DEVICE __global
#define MSL_CONSTANT __constant
#define MSL_GROUP __local
#define MSL_THREAD __private
#else
typedef _Float16 half;
constexpr half operator""h(long double x) { return (half)x; }
#define MSL_DEVICE
#define MSL_CONSTANT const
#define MSL_GROUP
#define MSL_THREAD
#endif

#define MSL_VECTORS(T)                                \
  typedef T T##2 __attribute__((ext_vector_type(2))); \
  typedef T T##3 __attribute__((ext_vector_type(3))); \
  typedef T T##4 __attribute__((ext_vector_type(4)));
#define MSL_EACH_INTEGER(M) \
  M(char) M(uchar) M(short) M(ushort) M(int) M(uint) M(long) M(ulong)
#define MSL_EACH_NUMBER(M) M(float) M(half) MSL_EACH_INTEGER(M)
MSL_EACH_NUMBER(MSL_VECTORS)

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define FLT_EPSILON __FLT_EPSILON__

namespace metal {
using ::uchar; using ::uint; using ::ulong; using ::ushort;
using ::size_t; using ::uint16_t; using ::uint32_t; using ::uint64_t; using ::uint8_t;
using ::int16_t; using ::int32_t; using ::int64_t; using ::int8_t;
#ifndef MSL_CHECK
using ::half;
#endif
#define MSL_USING(T) using ::T##2; using ::T##3; using ::T##4;
MSL_EACH_NUMBER(MSL_USING)

template <class T, int N> using vec = T __attribute__((ext_vector_type(N)));

// The element type and length of a vector; a scalar is a vector of one.
template <class T> struct msl_traits {
  using element = T;
  static constexpr MSL_CONSTANT int length = 1;
};
template <class T, int N> struct msl_traits<T __attribute__((ext_vector_type(N)))> {
  using element = T;
  static constexpr MSL_CONSTANT int length = N;
};

// A parameter of this type takes no part in deduction, so its argument is converted.
template <class T> struct msl_same { using type = T; };
template <class T> using msl_same_t = typename msl_same<T>::type;

template <bool, class T = void> struct msl_if {};
template <class T> struct msl_if<true, T> { using type = T; };
template <bool condition, class T = void> using msl_if_t = typename msl_if<condition, T>::type;

// Vectors of bool. Comparisons of clang's vectors give integer vectors with 0 and -1; a bool vector
// made from one holds 0 and 1, so that conversions to numbers come out right.
template <int N> struct msl_bools;
template <> struct msl_bools<2> { bool x, y; };
template <> struct msl_bools<3> { bool x, y, z; };
template <> struct msl_bools<4> { bool x, y, z, w; };
template <int N> struct boolean_vector : msl_bools<N> {
  boolean_vector() = default;
  template <class T> boolean_vector(vec<T, N> v) {
    for (int i = 0; i < N; ++i) set(i, v[i] != 0);
  }
  explicit boolean_vector(bool b) {
    for (int i = 0; i < N; ++i) set(i, b);
  }
  boolean_vector(bool a, bool b) { set(0, a), set(1, b); }
  boolean_vector(bool a, bool b, bool c) { set(0, a), set(1, b), set(2, c); }
  boolean_vector(bool a, bool b, bool c, bool d) { set(0, a), set(1, b), set(2, c), set(3, d); }
  bool operator[](int i) const {
    if constexpr (N > 3) if (i == 3) return this->w;
    if constexpr (N > 2) if (i == 2) return this->z;
    return i == 0 ? this->x : this->y;
  }
  void set(int i, bool b) {
    if constexpr (N > 3) if (i == 3) { this->w = b; return; }
    if constexpr (N > 2) if (i == 2) { this->z = b; return; }
    if (i == 0) this->x = b; else this->y = b;
  }
#define MSL_BOOLEAN(op)                                                      \
  friend boolean_vector operator op(boolean_vector a, boolean_vector b) {    \
    boolean_vector r;                                                        \
    for (int i = 0; i < N; ++i) r.set(i, a[i] op b[i]);                      \
    return r;                                                                \
  }
  MSL_BOOLEAN(&) MSL_BOOLEAN(|) MSL_BOOLEAN(^) MSL_BOOLEAN(==) MSL_BOOLEAN(!=)
#undef MSL_BOOLEAN
  friend boolean_vector operator!(boolean_vector a) {
    for (int i = 0; i < N; ++i) a.set(i, !a[i]);
    return a;
  }
};
using bool2 = boolean_vector<2>;
using bool3 = boolean_vector<3>;
using bool4 = boolean_vector<4>;
template <int N> struct msl_traits<boolean_vector<N>> {
  using element = bool;
  static constexpr MSL_CONSTANT int length = N;
};

// Vectors without alignment, as they lie in packed structures.
typedef float packed_float2 __attribute__((ext_vector_type(2), aligned(4)));
typedef float packed_float4 __attribute__((ext_vector_type(4), aligned(4)));
typedef half packed_half2 __attribute__((ext_vector_type(2), aligned(2)));
typedef half packed_half4 __attribute__((ext_vector_type(4), aligned(2)));
typedef char packed_char4 __attribute__((ext_vector_type(4), aligned(1)));
typedef uchar packed_uchar4 __attribute__((ext_vector_type(4), aligned(1)));
#define MSL_PACKED3(T)                                                        \
  struct packed_##T##3 {                                                      \
    T x, y, z;                                                                \
    packed_##T##3() = default;                                                \
    packed_##T##3(T##3 v) : x(v.x), y(v.y), z(v.z) {}                         \
    packed_##T##3(T a, T b, T c) : x(a), y(b), z(c) {}                        \
    operator T##3() const { T##3 r; r.x = x; r.y = y; r.z = z; return r; }    \
  };
MSL_PACKED3(float) MSL_PACKED3(half) MSL_PACKED3(int) MSL_PACKED3(uint)
#undef MSL_PACKED3
}  // namespace metal
using metal::bool2; using metal::bool3; using metal::bool4;
using metal::packed_char4; using metal::packed_uchar4;
