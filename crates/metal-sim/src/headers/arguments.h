// A kernel's arguments, from what the runner tells a thread about itself.
#pragma once
#include "simdgroup_matrix.h"
#ifndef MSL_CHECK

namespace msl {
using metal::msl_traits;

// A position as the kernel declares it: a scalar or a vector of any unsigned type.
template <class T> inline T position(const unsigned *at) {
  using E = typename msl_traits<T>::element;
  if constexpr (msl_traits<T>::length == 1) {
    return (T)at[0];
  } else {
    T result;
    for (int i = 0; i < msl_traits<T>::length; ++i) result[i] = (E)at[i];
    return result;
  }
}
template <class T> inline T in_grid(const msl_thread *t) {
  unsigned at[3];
  for (int i = 0; i < 3; ++i) at[i] = t->group[i] * t->size[i] + t->local[i];
  return position<T>(at);
}
template <class T> inline T of_grid(const msl_thread *t) {
  unsigned all[3];
  for (int i = 0; i < 3; ++i) all[i] = t->groups[i] * t->size[i];
  return position<T>(all);
}
inline unsigned threads(const msl_thread *t) { return t->size[0] * t->size[1] * t->size[2]; }
}  // namespace msl
#endif
