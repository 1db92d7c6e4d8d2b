// What counting builds see: every load and store of device and threadgroup memory, through the
// calls that clang's thread sanitizer puts before them. Finds races and counts.
#pragma once
#include "scheduler.h"

constexpr u32 LINE = 128;     // bytes of a cache line
constexpr u32 MAX_PLACES = 32; // bindings, and threadgroup memory as the last
enum Space : unsigned char { DEVICE, THREADGROUP };

struct PlaceCounts {
  u64 loads, stores, atomics, load_bytes, store_bytes;
  u64 load_accesses, store_accesses, load_lines, store_lines;
  u64 loaded_bytes, stored_bytes;  // each byte counted once in a launch
};

// Who touched a byte last. Times are those of `Observer::now`.
struct Cell {
  u32 write_time, read_time;
  u32 touched[2];  // by a load, by a store: the beginning of the last launch that did
  unsigned short writer, reader;
  bool atomic_write, many_readers, earlier_groups;
};

// A range of memory whose accesses are looked at.
struct Region {
  char *begin, *end;
  u32 place;  // the binding, or MAX_PLACES - 1
  Space space;
  std::vector<Cell> *cells;
};

// A place in a kernel's code that touches memory: the next number of any thread's access there, and the number
// with which all began after the last barrier.
struct Site {
  const void *at;
  u32 time = 0, first = 0, most = 0;
};
// The number of a thread's next access at a site, counted since `time`.
struct Occurrence {
  u32 time = 0, next = 0;
};

struct Observer {
  bool on = false;
  std::vector<Region> regions;
  char *low = nullptr, *high = nullptr;  // around all regions
  PlaceCounts counts[MAX_PLACES];
  // Time passes at barriers. What was touched since `group_time` is not yet visible to the group's
  // other threads, and since `lane_time` not to the other lanes of the simdgroup.
  u32 now = 1, launch_time = 1, start_time = 1;
  u32 group_time[2] = {1, 1};
  u32 lane_time[2][MAX_THREADS / LANES];
  // The last barrier of the group, of whatever memory: there its threads are side by side.
  u32 step_time = 1;
  // Sites get small numbers; each thread counts how often it came to each.
  std::vector<Site> sites;
  std::vector<Occurrence> occurrences;
  // One word per lane's touch of a line: site, place, occurrence, line, and whether it stores.
  std::vector<u64> touches[MAX_THREADS / LANES];

  void begin_launch();
  void begin_group();
  void end_group();
  void access(char *at, u32 bytes, bool writes, bool atomic, const void *site);
  void check_race(const Region &region, Cell &cell, size_t offset, bool writes, bool atomic);
  void touch(const Region &region, size_t offset, u32 bytes, bool writes, const void *site);
  void count_lines(u32 simdgroup);
  u32 site_number(const void *site);
  u32 occurrence(u32 site, u32 thread);
};
inline Observer observer;

inline void Observer::begin_launch() {
  memset(counts, 0, sizeof counts);
  sites.clear();
  launch_time = ++now;
}
inline void Observer::begin_group() {
  start_time = ++now;
  for (int space = 0; space < 2; ++space) {
    group_time[space] = now;
    std::fill(std::begin(lane_time[space]), std::end(lane_time[space]), now);
  }
  step_time = now;
  for (Site &site : sites) site.most = 0;
}
inline void Observer::end_group() {
  for (u32 i = 0; i < MAX_THREADS / LANES; ++i)
    if (!touches[i].empty()) count_lines(i);
}

inline void observe_group_barrier(int flags) {
  if (!observer.on) return;
  u32 now = ++observer.now;
  observer.step_time = now;
  for (int space = 0; space < 2; ++space) {
    if (!(flags & (space == DEVICE ? MSL_MEM_DEVICE : MSL_MEM_THREADGROUP))) continue;
    observer.group_time[space] = now;
    auto &lanes = observer.lane_time[space];
    std::fill(std::begin(lanes), std::end(lanes), now);
  }
}
inline void observe_simd_barrier(u32 simdgroup, int flags) {
  if (!observer.on) return;
  u32 now = ++observer.now;
  if (flags & MSL_MEM_DEVICE) observer.lane_time[DEVICE][simdgroup] = now;
  if (flags & MSL_MEM_THREADGROUP) observer.lane_time[THREADGROUP][simdgroup] = now;
}

inline void Observer::access(char *at, u32 bytes, bool writes, bool atomic, const void *site) {
  if (at < low || at >= high) return;
  for (const Region &region : regions) {
    if (at < region.begin || at >= region.end) continue;
    size_t offset = at - region.begin;
    PlaceCounts &count = counts[region.place];
    for (u32 i = 0; i < bytes && offset + i < region.cells->size(); ++i) {
      Cell &cell = (*region.cells)[offset + i];
      check_race(region, cell, offset + i, writes, atomic);
      if (cell.touched[writes] != launch_time) ++(writes ? count.stored_bytes : count.loaded_bytes);
      cell.touched[writes] = launch_time;
    }
    touch(region, offset, bytes, writes, site);
    if (atomic) ++count.atomics;
    if (writes) ++count.stores, count.store_bytes += bytes;
    else ++count.loads, count.load_bytes += bytes;
    return;
  }
}

inline void Observer::check_race(const Region &region, Cell &cell, size_t offset, bool writes,
                                 bool atomic) {
  u32 me = scheduler.current->info.index;
  // Is an access of `other` at `time` unordered with one of this thread now?
  auto unordered = [&](u32 time, u32 other) {
    if (time < launch_time) return false;
    if (time < start_time) return region.space == DEVICE;
    if (other == me) return false;
    bool same_simdgroup = other / LANES == me / LANES;
    return time >= (same_simdgroup ? lane_time[region.space][me / LANES] : group_time[region.space]);
  };
  auto report = [&](const char *before, u32 time, u32 other) {
    char text[200];
    const char *now_text = atomic ? "atomically accesses" : writes ? "writes" : "reads";
    if (time < start_time)
      snprintf(text, sizeof text, "%s byte %zu that another threadgroup %s in the same launch",
               now_text, offset, before);
    else
      snprintf(text, sizeof text, "%s byte %zu that thread %u of the group %s, with no barrier between",
               now_text, offset, other, before);
    fail(RACE, text, region.place == MAX_PLACES - 1 ? NO_BINDING : region.place);
  };
  if (!(atomic && cell.atomic_write) && unordered(cell.write_time, cell.writer))
    report(cell.atomic_write ? "atomically accesses" : "wrote", cell.write_time, cell.writer);
  if (writes && cell.read_time >= launch_time) {
    if (cell.earlier_groups && region.space == DEVICE) report("read", launch_time, 0);
    if (unordered(cell.read_time, cell.reader)) report("read", cell.read_time, cell.reader);
    // Of several readers in one interval at least one is another thread.
    if (cell.many_readers && unordered(cell.read_time, me ^ 1))
      report("read", cell.read_time, cell.reader);
  }
  if (writes) {
    cell.write_time = now, cell.writer = me, cell.atomic_write = atomic;
  } else if (!atomic) {
    bool this_launch = cell.read_time >= launch_time;
    cell.earlier_groups = this_launch && (cell.earlier_groups || cell.read_time < start_time);
    bool same_interval = cell.read_time >= group_time[region.space];
    cell.many_readers = same_interval && (cell.many_readers || cell.reader != me);
    cell.read_time = now, cell.reader = me;
  }
}

inline u32 Observer::site_number(const void *site) {
  // Where the site was found the last time, by some bits of its address.
  static u32 found[1024];
  u32 &last = found[(uintptr_t)site & 1023];
  if (last < sites.size() && sites[last].at == site) return last;
  for (last = 0; last < sites.size(); ++last)
    if (sites[last].at == site) return last;
  sites.push_back(Site{site});
  occurrences.resize(sites.size() * MAX_THREADS, Occurrence{});
  return last;
}

// The number of a thread's access at a site. Behind a barrier all threads count on from the same number, so that
// one that went through a loop less often than others is not compared with what they did before.
inline u32 Observer::occurrence(u32 number, u32 thread) {
  Site &site = sites[number];
  if (site.time != step_time) site.time = step_time, site.first = site.most;
  Occurrence &own = occurrences[number * MAX_THREADS + thread];
  if (own.time != step_time) own.time = step_time, own.next = site.first;
  site.most = std::max(site.most, own.next + 1);
  return own.next++;
}

inline void Observer::touch(const Region &region, size_t offset, u32 bytes, bool writes,
                            const void *site) {
  u32 me = scheduler.current->info.index;
  u64 number = site_number(site);
  u64 which = occurrence(number, me);
  u64 key = number << 48 | (u64)writes << 47 | (u64)region.place << 42 | (which & 0xfffff) << 22;
  auto &list = touches[me / LANES];
  for (u64 line = offset / LINE; line <= (offset + bytes - 1) / LINE; ++line)
    list.push_back(key | (line & 0x3fffff));
  if (list.size() > 4u << 20) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
}

inline void Observer::count_lines(u32 simdgroup) {
  auto &list = touches[simdgroup];
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  u64 previous = ~(u64)0;
  for (u64 touch : list) {
    PlaceCounts &count = counts[touch >> 42 & 31];
    bool writes = touch >> 47 & 1;
    ++(writes ? count.store_lines : count.load_lines);
    if (touch >> 22 != previous) ++(writes ? count.store_accesses : count.load_accesses);
    previous = touch >> 22;
  }
  list.clear();
}

// The calls that instrumented kernels make.
#define SITE __builtin_return_address(0)
#define MSL_ACCESS(n)                                                                        \
  extern "C" void __tsan_read##n(void *at) { observer.access((char *)at, n, false, false, SITE); } \
  extern "C" void __tsan_write##n(void *at) { observer.access((char *)at, n, true, false, SITE); } \
  extern "C" void __tsan_read_write##n(void *at) {                                           \
    observer.access((char *)at, n, false, false, SITE);                                      \
    observer.access((char *)at, n, true, false, SITE);                                       \
  }
MSL_ACCESS(1) MSL_ACCESS(2) MSL_ACCESS(4) MSL_ACCESS(8) MSL_ACCESS(16)
#define MSL_UNALIGNED(n)                                                                     \
  extern "C" void __tsan_unaligned_read##n(void *at) { observer.access((char *)at, n, false, false, SITE); } \
  extern "C" void __tsan_unaligned_write##n(void *at) { observer.access((char *)at, n, true, false, SITE); } \
  extern "C" void __tsan_unaligned_read_write##n(void *at) {                                 \
    observer.access((char *)at, n, false, false, SITE);                                      \
    observer.access((char *)at, n, true, false, SITE);                                       \
  }
MSL_UNALIGNED(2) MSL_UNALIGNED(4) MSL_UNALIGNED(8) MSL_UNALIGNED(16)
extern "C" void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
  observer.access((char *)from, bytes, false, false, SITE);
  observer.access((char *)to, bytes, true, false, SITE);
  return memcpy(to, from, bytes);
}
extern "C" void *__tsan_memmove(void *to, const void *from, size_t bytes) {
  observer.access((char *)from, bytes, false, false, SITE);
  observer.access((char *)to, bytes, true, false, SITE);
  return memmove(to, from, bytes);
}
extern "C" void *__tsan_memset(void *to, int value, size_t bytes) {
  observer.access((char *)to, bytes, true, false, SITE);
  return memset(to, value, bytes);
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit() {}
extern "C" void msl_atomic_access(const volatile void *at, unsigned bytes, int writes,
                                  const void *site) {
  observer.access((char *)at, bytes, writes, true, site);
}
