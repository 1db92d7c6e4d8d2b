// Words that clang does not know, and vector constructors. Included after all other headers.
#pragma once

#define float2(...) msl_make<float2>(__VA_ARGS__)
#define float3(...) msl_make<float3>(__VA_ARGS__)
#define float4(...) msl_make<float4>(__VA_ARGS__)
#define half2(...) msl_make<half2>(__VA_ARGS__)
#define half3(...) msl_make<half3>(__VA_ARGS__)
#define half4(...) msl_make<half4>(__VA_ARGS__)
#define char2(...) msl_make<char2>(__VA_ARGS__)
#define char3(...) msl_make<char3>(__VA_ARGS__)
#define char4(...) msl_make<char4>(__VA_ARGS__)
#define uchar2(...) msl_make<uchar2>(__VA_ARGS__)
#define uchar3(...) msl_make<uchar3>(__VA_ARGS__)
#define uchar4(...) msl_make<uchar4>(__VA_ARGS__)
#define short2(...) msl_make<short2>(__VA_ARGS__)
#define short3(...) msl_make<short3>(__VA_ARGS__)
#define short4(...) msl_make<short4>(__VA_ARGS__)
#define ushort2(...) msl_make<ushort2>(__VA_ARGS__)
#define ushort3(...) msl_make<ushort3>(__VA_ARGS__)
#define ushort4(...) msl_make<ushort4>(__VA_ARGS__)
#define int2(...) msl_make<int2>(__VA_ARGS__)
#define int3(...) msl_make<int3>(__VA_ARGS__)
#define int4(...) msl_make<int4>(__VA_ARGS__)
#define uint2(...) msl_make<uint2>(__VA_ARGS__)
#define uint3(...) msl_make<uint3>(__VA_ARGS__)
#define uint4(...) msl_make<uint4>(__VA_ARGS__)
#define long2(...) msl_make<long2>(__VA_ARGS__)
#define long3(...) msl_make<long3>(__VA_ARGS__)
#define long4(...) msl_make<long4>(__VA_ARGS__)
#define ulong2(...) msl_make<ulong2>(__VA_ARGS__)
#define ulong3(...) msl_make<ulong3>(__VA_ARGS__)
#define ulong4(...) msl_make<ulong4>(__VA_ARGS__)

#ifdef MSL_CHECK
#define device __global
#define constant __constant
#define threadgroup __local
#define thread __private
#define atomic_int msl_atomic_int
#define atomic_uint msl_atomic_uint
#define atomic_float msl_atomic_float
#define atomic_long msl_atomic_long
#define atomic_ulong msl_atomic_ulong
// Ordinary names in MSL that are words of OpenCL.
#define local msl_name_local
#define global msl_name_global
#define generic msl_name_generic
#define pipe msl_name_pipe
#else
#define device
#define constant const
#define threadgroup
#define thread
#endif
#define kernel
