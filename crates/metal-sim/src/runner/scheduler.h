// One threadgroup at a time; each of its threads is a fiber that runs until a barrier or a simd
// operation, where it waits for the others.
//
// A thread gets a fiber only when it starts, and a fiber whose thread has ended takes the next
// thread, so a kernel without barriers needs one fiber and no switches.
#pragma once
#include "../headers/abi.h"
#include "memory.h"
#include <algorithm>

constexpr u32 LANES = 32;
constexpr u32 MAX_THREADS = 1024;
constexpr size_t STACK = 256 << 10;

enum Order : u32 { FORWARD = 0, REVERSE = 1, SHUFFLED = 2 };
enum State : unsigned char { NOT_STARTED, READY, AT_BARRIER, AT_LANES, DONE };

struct Fiber {
  void *stack_pointer = nullptr;
  char *stack = nullptr;
};

struct Thread {
  msl_thread info;
  State state;
  Fiber *fiber;
  const void *site;  // where it waits
  int flags;         // of the barrier
  msl_lane lane;
  msl_lane_function function;
  bool all;
};

struct Scheduler {
  msl_entry entry;
  u32 count;    // threads of the group
  u32 live;     // not ended
  u32 waiting;  // at the barrier
  u32 position; // in the order
  Order mode;
  u64 random;
  Thread *current;
  u32 order[MAX_THREADS];
  Thread threads[MAX_THREADS];
  Fiber main;
  std::vector<Fiber *> free_fibers;
  u64 groups, ended, barriers, simd_barriers;  // of a launch; threads that ended

  void run_group();
  void begin_order();
  void shuffle();
  bool pass_barrier();
  bool resolve_partial();
  void resolve(u32 simdgroup, u32 mask);
  Thread *next_in_pass();
  void give_way();
  Fiber *take_fiber();
};
extern Scheduler scheduler;

// Hooks of the counting build.
void observe_group_barrier(int flags);
void observe_simd_barrier(u32 simdgroup, int flags);

extern "C" void msl_switch(void **save, void *load);
#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.type msl_switch,@function
msl_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size msl_switch,.-msl_switch
)");
constexpr int SAVED_WORDS = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.p2align 4
.type msl_switch,%function
msl_switch:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size msl_switch,.-msl_switch
)");
#else
#error "fibers are written for x86_64 and aarch64"
#endif

// The next thread of this pass over the group that can run.
inline Thread *Scheduler::next_in_pass() {
  for (u32 k = position + 1; k < count; ++k) {
    Thread *thread = &threads[order[k]];
    if (thread->state == READY || thread->state == NOT_STARTED) {
      position = k;
      return thread;
    }
  }
  return nullptr;
}

inline void switch_fibers(Fiber *from, Fiber *to) {
  msl_switch(&from->stack_pointer, to->stack_pointer);
}

// Leaves the current thread where it is and goes on with another, or with the scheduler when the
// pass is over.
inline void Scheduler::give_way() {
  Fiber *mine = current->fiber;
  Thread *next = next_in_pass();
  if (!next) {
    switch_fibers(mine, &main);
    return;
  }
  if (!next->fiber) next->fiber = take_fiber();
  current = next;
  switch_fibers(mine, next->fiber);
}

inline void fiber_main() {
  Scheduler &s = scheduler;
  for (;;) {
    Thread *thread = s.current;
    thread->state = READY;
    s.entry(&thread->info);
    thread->state = DONE;
    --s.live;
    ++s.ended;
    Fiber *mine = thread->fiber;
    Thread *next = s.next_in_pass();
    if (next && next->state == NOT_STARTED) {
      next->fiber = mine;
      s.current = next;
      continue;
    }
    s.free_fibers.push_back(mine);
    if (next) s.current = next;
    switch_fibers(mine, next ? next->fiber : &s.main);
  }
}

inline Fiber *Scheduler::take_fiber() {
  if (!free_fibers.empty()) {
    Fiber *fiber = free_fibers.back();
    free_fibers.pop_back();
    return fiber;
  }
  static u32 made = 0;
  Fiber *fiber = new Fiber;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  fiber->stack = (char *)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (fiber->stack == MAP_FAILED) fail(LOAD, "no memory for stacks");
  mprotect(fiber->stack, PAGE, PROT_NONE);
  // Stacks begin at different places in a page: at the same place they would share cache sets.
  void **top = (void **)(fiber->stack + STACK - 64 - (made++ & 15) * 256);
#if defined(__x86_64__)
  *--top = nullptr;
  *--top = (void *)fiber_main;
  for (int i = 0; i < SAVED_WORDS; ++i) *--top = nullptr;
#else
  top -= 20;
  std::fill(top, top + 20, nullptr);
  top[11] = (void *)fiber_main;
#endif
  fiber->stack_pointer = top;
  return fiber;
}

inline void Scheduler::shuffle() {
  for (u32 i = count; i > 1; --i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    std::swap(order[i - 1], order[(random >> 33) % i]);
  }
}

inline void Scheduler::begin_order() {
  for (u32 i = 0; i < count; ++i) order[i] = mode == REVERSE ? count - 1 - i : i;
  if (mode == SHUFFLED) shuffle();
}

// With all threads at one barrier, lets them go on.
inline bool Scheduler::pass_barrier() {
  if (live == 0 || waiting != live) return false;
  Thread *first = nullptr;
  for (u32 i = 0; i < count; ++i) {
    Thread *thread = &threads[i];
    if (thread->state != AT_BARRIER) continue;
    if (first && first->site != thread->site) {
      current = thread;
      fail(DIVERGENT_BARRIER, "threads of the group wait at different barriers");
    }
    if (!first) first = thread;
  }
  if (live != count) {
    current = first;
    fail(DIVERGENT_BARRIER, "a barrier is reached after some threads of the group have returned");
  }
  ++barriers;
  observe_group_barrier(first->flags);
  for (u32 i = 0; i < count; ++i) threads[i].state = READY;
  waiting = 0;
  if (mode == SHUFFLED) shuffle();
  return true;
}

inline void Scheduler::resolve(u32 simdgroup, u32 mask) {
  msl_lane *lanes[LANES] = {};
  Thread *base = &threads[simdgroup * LANES], *first = nullptr;
  for (u32 l = 0; l < LANES; ++l) {
    if (!(mask >> l & 1)) continue;
    lanes[l] = &base[l].lane;
    base[l].state = READY;
    if (!first) first = &base[l];
  }
  if (first->all && mask != ~0u) {
    current = first;
    fail(PARTIAL_SIMDGROUP, "a simdgroup matrix operation is reached by part of a simdgroup");
  }
  if (first->function) first->function(lanes, mask);
  else if (!first->all) {
    ++simd_barriers;
    observe_simd_barrier(simdgroup, first->flags);
  }
}

// With nothing left to run, lanes that wait for others which do not come go on without them. The
// lowest address first: lanes still in a loop catch up with those that have left it.
inline bool Scheduler::resolve_partial() {
  bool found = false;
  for (u32 simdgroup = 0; simdgroup * LANES < count; ++simdgroup) {
    Thread *base = &threads[simdgroup * LANES];
    u32 lanes = std::min(LANES, count - simdgroup * LANES), mask = 0;
    const void *site = nullptr;
    for (u32 l = 0; l < lanes; ++l)
      if (base[l].state == AT_LANES && (!site || base[l].site < site)) site = base[l].site;
    for (u32 l = 0; l < lanes; ++l)
      if (base[l].state == AT_LANES && base[l].site == site) mask |= 1u << l;
    if (mask) resolve(simdgroup, mask), found = true;
  }
  return found;
}

inline void Scheduler::run_group() {
  ++groups;
  live = count;
  waiting = 0;
  begin_order();
  for (u32 i = 0; i < count; ++i) threads[i].state = NOT_STARTED, threads[i].fiber = nullptr;
  while (live) {
    position = ~0u;
    if (Thread *next = next_in_pass()) {
      if (!next->fiber) next->fiber = take_fiber();
      current = next;
      switch_fibers(&main, next->fiber);
      continue;
    }
    if (pass_barrier() || resolve_partial()) continue;
    for (u32 i = 0; i < count; ++i)
      if (threads[i].state == AT_BARRIER) current = &threads[i];
    fail(DIVERGENT_BARRIER, "a barrier is reached by part of the group");
  }
}

// Makes the current thread wait for the lanes of its simdgroup; the last one resolves.
inline void wait_for_lanes(const void *site) {
  Scheduler &s = scheduler;
  Thread *me = s.current;
  me->site = site;
  me->state = AT_LANES;
  u32 simdgroup = me->info.index / LANES, mask = 0;
  Thread *base = &s.threads[simdgroup * LANES];
  u32 lanes = std::min(LANES, s.count - simdgroup * LANES);
  for (u32 l = 0; l < lanes; ++l) {
    if (base[l].state == DONE) continue;
    if (base[l].state != AT_LANES || base[l].site != site) {
      s.give_way();
      return;
    }
    mask |= 1u << l;
  }
  s.resolve(simdgroup, mask);
}

extern "C" __attribute__((noinline)) void msl_group_barrier(int flags) {
  Thread *me = scheduler.current;
  me->site = __builtin_return_address(0);
  me->flags = flags;
  me->state = AT_BARRIER;
  ++scheduler.waiting;
  scheduler.give_way();
}
extern "C" __attribute__((noinline)) void msl_simd_barrier(int flags) {
  Thread *me = scheduler.current;
  me->flags = flags;
  me->function = nullptr;
  me->all = false;
  wait_for_lanes(__builtin_return_address(0));
}
extern "C" __attribute__((noinline)) void msl_lanes(msl_lane_function function, const void *in,
                                                    void *out, unsigned argument, int all) {
  Thread *me = scheduler.current;
  me->lane = {in, out, argument};
  me->function = function;
  me->all = all;
  wait_for_lanes(__builtin_return_address(0));
}
extern "C" unsigned msl_lane_index() { return scheduler.current->info.index % LANES; }
