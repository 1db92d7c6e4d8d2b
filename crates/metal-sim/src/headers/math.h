// Functions of floating-point numbers, each for float, half and their vectors.
//
// Real overloads rather than templates of scalars: `max(float, int)` must be refused as Apple's
// compiler refuses it. Results are the host library's, not a GPU's: compare with tolerances.
#pragma once
#include "convert.h"

namespace metal {
// Integers first: the templates over vectors below see only what stands before them.
#define MSL_INTEGER(T)                                            \
  inline T min(T x, T y) { return y < x ? y : x; }                \
  inline T max(T x, T y) { return x < y ? y : x; }                \
  inline T clamp(T x, T low, T high) { return min(max(x, low), high); } \
  inline T abs(T x) { return x < (T)0 ? (T)(-x) : x; }
MSL_EACH_INTEGER(MSL_INTEGER)

#define MSL_MATH_1(name, expression)                            \
  inline float name(float x) { return expression; }             \
  inline half name(half x) { return (half)name((float)x); }     \
  MSL_MATH_VECTOR_1(name)
#define MSL_MATH_VECTOR_1(name)                                 \
  template <class T, int N> inline vec<T, N> name(vec<T, N> x) {\
    vec<T, N> r;                                                \
    for (int i = 0; i < N; ++i) r[i] = name(x[i]);              \
    return r;                                                   \
  }
#define MSL_MATH_2(name, expression)                                            \
  inline float name(float x, float y) { return expression; }                    \
  inline half name(half x, half y) { return (half)name((float)x, (float)y); }   \
  MSL_MATH_VECTOR_2(name)
#define MSL_MATH_VECTOR_2(name)                                                 \
  template <class T, int N> inline vec<T, N> name(vec<T, N> x, vec<T, N> y) {   \
    vec<T, N> r;                                                                \
    for (int i = 0; i < N; ++i) r[i] = name(x[i], y[i]);                        \
    return r;                                                                   \
  }
#define MSL_MATH_3(name, expression)                                            \
  inline float name(float x, float y, float z) { return expression; }           \
  inline half name(half x, half y, half z) {                                    \
    return (half)name((float)x, (float)y, (float)z);                            \
  }                                                                             \
  MSL_MATH_VECTOR_3(name)
#define MSL_MATH_VECTOR_3(name)                                                           \
  template <class T, int N> inline vec<T, N> name(vec<T, N> x, vec<T, N> y, vec<T, N> z) {\
    vec<T, N> r;                                                                          \
    for (int i = 0; i < N; ++i) r[i] = name(x[i], y[i], z[i]);                            \
    return r;                                                                             \
  }

inline float msl_smoothstep(float low, float high, float x) {
  float t = __builtin_fminf(__builtin_fmaxf((x - low) / (high - low), 0.0f), 1.0f);
  return t * t * (3.0f - 2.0f * t);
}

#define MSL_MATH_ALL                                                                  \
  MSL_MATH_1(exp, __builtin_expf(x))                                                  \
  MSL_MATH_1(exp2, __builtin_exp2f(x))                                                \
  MSL_MATH_1(exp10, __builtin_powf(10.0f, x))                                         \
  MSL_MATH_1(log, __builtin_logf(x))                                                  \
  MSL_MATH_1(log2, __builtin_log2f(x))                                                \
  MSL_MATH_1(log10, __builtin_log10f(x))                                              \
  MSL_MATH_1(sin, __builtin_sinf(x))                                                  \
  MSL_MATH_1(cos, __builtin_cosf(x))                                                  \
  MSL_MATH_1(tan, __builtin_tanf(x))                                                  \
  MSL_MATH_1(asin, __builtin_asinf(x))                                                \
  MSL_MATH_1(acos, __builtin_acosf(x))                                                \
  MSL_MATH_1(atan, __builtin_atanf(x))                                                \
  MSL_MATH_1(sinh, __builtin_sinhf(x))                                                \
  MSL_MATH_1(cosh, __builtin_coshf(x))                                                \
  MSL_MATH_1(tanh, __builtin_tanhf(x))                                                \
  MSL_MATH_1(asinh, __builtin_asinhf(x))                                              \
  MSL_MATH_1(acosh, __builtin_acoshf(x))                                              \
  MSL_MATH_1(atanh, __builtin_atanhf(x))                                              \
  MSL_MATH_1(sqrt, __builtin_sqrtf(x))                                                \
  MSL_MATH_1(rsqrt, 1.0f / __builtin_sqrtf(x))                                        \
  MSL_MATH_1(floor, __builtin_floorf(x))                                              \
  MSL_MATH_1(ceil, __builtin_ceilf(x))                                                \
  MSL_MATH_1(trunc, __builtin_truncf(x))                                              \
  MSL_MATH_1(round, __builtin_roundf(x))                                              \
  MSL_MATH_1(rint, __builtin_rintf(x))                                                \
  MSL_MATH_1(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))         \
  MSL_MATH_1(fabs, __builtin_fabsf(x))                                                \
  MSL_MATH_1(abs, __builtin_fabsf(x))                                                 \
  MSL_MATH_1(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))               \
  MSL_MATH_1(sign, (float)(x > 0.0f) - (float)(x < 0.0f))                             \
  MSL_MATH_2(pow, __builtin_powf(x, y))                                               \
  MSL_MATH_2(powr, __builtin_powf(x, y))                                              \
  MSL_MATH_2(atan2, __builtin_atan2f(x, y))                                           \
  MSL_MATH_2(fmin, __builtin_fminf(x, y))                                             \
  MSL_MATH_2(fmax, __builtin_fmaxf(x, y))                                             \
  MSL_MATH_2(min, __builtin_fminf(x, y))                                              \
  MSL_MATH_2(max, __builtin_fmaxf(x, y))                                              \
  MSL_MATH_2(fmod, __builtin_fmodf(x, y))                                             \
  MSL_MATH_2(step, y < x ? 0.0f : 1.0f)                                               \
  MSL_MATH_2(copysign, __builtin_copysignf(x, y))                                     \
  MSL_MATH_3(fma, __builtin_fmaf(x, y, z))                                            \
  MSL_MATH_3(mix, x + (y - x) * z)                                                    \
  MSL_MATH_3(clamp, __builtin_fminf(__builtin_fmaxf(x, y), z))                        \
  MSL_MATH_3(smoothstep, msl_smoothstep(x, y, z))
MSL_MATH_ALL
namespace fast { MSL_MATH_ALL }
namespace precise { MSL_MATH_ALL }

inline float ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
inline half ldexp(half x, int e) { return (half)__builtin_ldexpf((float)x, e); }
template <class T, int N> inline vec<T, N> ldexp(vec<T, N> x, vec<int, N> e) {
  vec<T, N> r;
  for (int i = 0; i < N; ++i) r[i] = ldexp(x[i], e[i]);
  return r;
}
inline float modf(float x, MSL_THREAD float &whole) {
  whole = __builtin_truncf(x);
  return x - whole;
}
inline float frexp(float x, MSL_THREAD int &exponent) {
#ifdef MSL_CHECK
  exponent = 0;
  return x;
#else
  return __builtin_frexpf(x, &exponent);
#endif
}

#define MSL_TEST(name, expression)                              \
  inline bool name(float x) { return expression; }              \
  inline bool name(half x) { return name((float)x); }           \
  template <int N> inline boolean_vector<N> name(vec<float, N> x) { \
    boolean_vector<N> r;                                        \
    for (int i = 0; i < N; ++i) r.set(i, name(x[i]));           \
    return r;                                                   \
  }
MSL_TEST(isnan, x != x)
MSL_TEST(isinf, __builtin_fabsf(x) == __builtin_inff())
MSL_TEST(isfinite, __builtin_fabsf(x) < __builtin_inff())
MSL_TEST(signbit, __builtin_bit_cast(uint, x) >> 31)

template <class T, int N> inline T dot(vec<T, N> a, vec<T, N> b) {
  T sum = a[0] * b[0];
  for (int i = 1; i < N; ++i) sum += a[i] * b[i];
  return sum;
}
template <class T, int N> inline T length(vec<T, N> a) { return sqrt(dot(a, a)); }
template <class T, int N> inline T distance(vec<T, N> a, vec<T, N> b) { return length(a - b); }
template <class T, int N> inline vec<T, N> normalize(vec<T, N> a) { return a * rsqrt(dot(a, a)); }
template <class T> inline vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {
  return a.yzx * b.zxy - a.zxy * b.yzx;
}
}  // namespace metal
