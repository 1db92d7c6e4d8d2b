// 8x8 matrices spread over the 32 lanes of a simdgroup, two elements of a row in each lane.
//
// Which lane holds what is as published Metal kernels assume it: quads of lanes hold 4x4 blocks.
// Products are summed in float, whatever the types.
#pragma once
#include "atomic.h"

namespace metal {
struct msl_place { uint row, column; };
inline msl_place msl_place_of(uint lane) {
  uint quad = lane / 4;
  msl_place place = {(quad & 4) + ((lane / 2) & 3), (quad & 2) * 2 + (lane & 1) * 2};
  return place;
}

template <class T, int R, int C> struct simdgroup_matrix {
  static_assert(R == 8 && C == 8, "simdgroup matrices are 8x8");
  vec<T, 2> elements;
};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;

#ifdef MSL_CHECK

#define MSL_MATRIX_MEMORY(space)                                                          \
  template <class T>                                                                      \
  void simdgroup_load(MSL_THREAD simdgroup_matrix<T, 8, 8> &m, const space T *from,       \
                      ulong stride = 8, ulong2 origin = 0, bool transpose = false);       \
  template <class T>                                                                      \
  void simdgroup_store(simdgroup_matrix<T, 8, 8> m, space T *to, ulong stride = 8,        \
                       ulong2 origin = 0, bool transpose = false);
MSL_MATRIX_MEMORY(__global)
MSL_MATRIX_MEMORY(__local)
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(MSL_THREAD simdgroup_matrix<D, 8, 8> &d,
                                   simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b,
                                   simdgroup_matrix<C, 8, 8> c);

#else

// Where this lane's element `i` lies in memory.
inline ulong msl_element(uint i, ulong stride, ulong2 origin, bool transpose) {
  msl_place place = msl_place_of(msl_lane_index());
  ulong row = place.row, column = place.column + i;
  return transpose ? (origin.y + column) * stride + origin.x + row
                   : (origin.y + row) * stride + origin.x + column;
}
template <class T>
MSL_HERE void simdgroup_load(simdgroup_matrix<T, 8, 8> &m, const T *from, ulong stride = 8,
                             ulong2 origin = 0, bool transpose = false) {
  msl_lanes(nullptr, nullptr, nullptr, 0, 1);
  for (uint i = 0; i < 2; ++i) m.elements[i] = from[msl_element(i, stride, origin, transpose)];
}
template <class T>
MSL_HERE void simdgroup_store(simdgroup_matrix<T, 8, 8> m, T *to, ulong stride = 8,
                              ulong2 origin = 0, bool transpose = false) {
  msl_lanes(nullptr, nullptr, nullptr, 0, 1);
  for (uint i = 0; i < 2; ++i) to[msl_element(i, stride, origin, transpose)] = m.elements[i];
}

template <class A, class B, class C> struct msl_product_input {
  vec<A, 2> a;
  vec<B, 2> b;
  vec<C, 2> c;
};
template <class D, class A, class B, class C>
inline void msl_matrix_product(msl_lane *const *lanes, unsigned) {
  using Input = msl_product_input<A, B, C>;
  float a[8][8], b[8][8];
  for (uint l = 0; l < 32; ++l) {
    msl_place at = msl_place_of(l);
    const Input *input = (const Input *)lanes[l]->in;
    for (uint i = 0; i < 2; ++i) {
      a[at.row][at.column + i] = (float)input->a[i];
      b[at.row][at.column + i] = (float)input->b[i];
    }
  }
  for (uint l = 0; l < 32; ++l) {
    msl_place at = msl_place_of(l);
    const Input *input = (const Input *)lanes[l]->in;
    vec<D, 2> d;
    for (uint i = 0; i < 2; ++i) {
      float sum = (float)input->c[i];
      for (uint k = 0; k < 8; ++k) sum += a[at.row][k] * b[k][at.column + i];
      d[i] = (D)sum;
    }
    *(vec<D, 2> *)lanes[l]->out = d;
  }
}
template <class D, class A, class B, class C>
MSL_HERE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &d,
                                            const simdgroup_matrix<A, 8, 8> &a,
                                            const simdgroup_matrix<B, 8, 8> &b,
                                            const simdgroup_matrix<C, 8, 8> &c) {
  msl_product_input<A, B, C> input = {a.elements, b.elements, c.elements};
  vec<D, 2> out;
  msl_lanes(msl_matrix_product<D, A, B, C>, &input, &out, 0, 1);
  d.elements = out;
}

#endif
}  // namespace metal
