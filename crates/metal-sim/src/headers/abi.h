// What a library of kernels and the runner that loads it agree on. Free of other headers: kernels
// are compiled without the C library.
#pragma once

// What one thread of a launch knows about itself.
struct msl_thread {
  void *const *buffers;      // by [[buffer(n)]]
  void *const *shared;       // threadgroup variables in the order of the kernel's arguments
  unsigned group[3];         // position of the threadgroup
  unsigned groups[3];        // threadgroups of the grid
  unsigned local[3];         // position in the threadgroup
  unsigned size[3];          // threads of the threadgroup
  unsigned index;            // local position as one number
};
typedef void (*msl_entry)(const msl_thread *);

// One lane's part in an operation over the lanes of a simdgroup.
struct msl_lane {
  const void *in;
  void *out;
  unsigned argument;
};
typedef void (*msl_lane_function)(msl_lane *const *lanes, unsigned mask);

enum { MSL_MEM_NONE = 0, MSL_MEM_DEVICE = 1, MSL_MEM_THREADGROUP = 2 };

// A call that other threads take part in: it must stay where it is and the only one of its kind.
#define MSL_TOGETHER __attribute__((convergent, noduplicate, nomerge))

extern "C" {
// Waits for all threads of the threadgroup.
MSL_TOGETHER void msl_group_barrier(int flags);
// Waits for the lanes of the simdgroup that come here.
MSL_TOGETHER void msl_simd_barrier(int flags);
// Calls `function` once for all lanes that come here; `all`: lanes that do not come are an error.
MSL_TOGETHER void msl_lanes(msl_lane_function function, const void *in, void *out, unsigned argument, int all);
// The calling thread's lane in its simdgroup.
unsigned msl_lane_index();
// Counting builds: an atomic access from `site`.
void msl_atomic_access(const volatile void *at, unsigned bytes, int writes, const void *site);
}
