// The runner: a child process that loads libraries of kernels and launches them over the memory it
// is given. It ends itself at the first failure, having said what happened where.
#include <csignal>
#include <cstdio>
#include <dlfcn.h>
#include <map>
#include <sys/time.h>
#include "observe.h"

Scheduler scheduler;

// One launch, as the Rust side describes it.
struct Launch {
  std::string library, symbol;
  u32 threads[3], groups[3];
  u32 params_slot, sizes_slot;  // ~0: none
  std::vector<u32> params, sizes;
  struct Binding { u32 binding, slot, memory; };
  std::vector<Binding> bindings;
  std::vector<u32> threadgroup;
};
static Launch *launch;
static u32 launch_number;
static std::vector<Block> memory, threadgroup;
static bool in_kernel;

void fail(FailureKind kind, const char *message, u32 binding) {
  u32 head[12] = {1, kind, launch_number, (u32)in_kernel};
  if (in_kernel) {
    memcpy(head + 4, scheduler.current->info.group, 12);
    memcpy(head + 7, scheduler.current->info.local, 12);
  }
  head[10] = binding;
  head[11] = strlen(message);
  write_all(head, sizeof head);
  write_all(message, head[11]);
  _exit(1);
}

// Whose guard was touched?
static void on_fault(int signal, siginfo_t *info, void *) {
  char text[256];
  char *at = (char *)info->si_addr;
  if (signal == SIGALRM) fail(TIMEOUT, "the launch takes too long");
  if (signal == SIGFPE) fail(CRASH, "an integer is divided by zero");
  if (signal == SIGILL) fail(CRASH, "code that cannot be reached is reached");
  if (in_kernel && launch) {
    for (auto &bound : launch->bindings) {
      const Block &block = memory[bound.memory];
      if (!block.reserves(at)) continue;
      snprintf(text, sizeof text, "touches byte %td of a binding of %zu bytes", at - block.begin,
               block.bytes);
      fail(OUT_OF_BOUNDS, text, bound.binding);
    }
    for (size_t i = 0; i < threadgroup.size(); ++i) {
      if (!threadgroup[i].reserves(at)) continue;
      snprintf(text, sizeof text, "touches byte %td of threadgroup variable %zu of %zu bytes",
               at - threadgroup[i].begin, i, threadgroup[i].bytes);
      fail(OUT_OF_BOUNDS, text);
    }
    Fiber *fiber = scheduler.current ? scheduler.current->fiber : nullptr;
    if (fiber && at >= fiber->stack && at < fiber->stack + PAGE)
      fail(CRASH, "a thread needs more stack than there is");
  }
  snprintf(text, sizeof text, "signal %d at address %p", signal, (void *)at);
  fail(CRASH, text);
}

static void catch_signals() {
  static char stack[64 << 10];
  stack_t alternate = {};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM}) sigaction(signal, &action, nullptr);
}

static msl_entry find_entry(const Launch &launch) {
  static std::map<std::string, void *> libraries;
  void *&library = libraries[launch.library];
  if (!library) library = dlopen(launch.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(LOAD, dlerror());
  void *entry = dlsym(library, launch.symbol.c_str());
  if (!entry) fail(LOAD, "the library has no such kernel");
  return (msl_entry)entry;
}

static void set_timer(u32 seconds) {
  struct itimerval timer = {};
  timer.it_value.tv_sec = seconds;
  setitimer(ITIMER_REAL, &timer, nullptr);
}

static void flush_denormals(bool on) {
#if defined(__x86_64__)
  constexpr u32 BITS = 0x8040;
  u32 control = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(on ? control | BITS : control & ~BITS);
#endif
}

static Launch read_launch() {
  Launch launch;
  launch.library = read_text();
  launch.symbol = read_text();
  read_all(launch.threads, sizeof launch.threads);
  read_all(launch.groups, sizeof launch.groups);
  launch.params_slot = read_u32();
  launch.params = read_words();
  launch.sizes_slot = read_u32();
  launch.sizes = read_words();
  launch.bindings.resize(read_u32());
  read_all(launch.bindings.data(), launch.bindings.size() * sizeof(Launch::Binding));
  launch.threadgroup = read_words();
  return launch;
}

static void observe_regions(std::vector<std::vector<Cell>> &cells) {
  Observer &o = observer;
  o.regions.clear();
  o.low = (char *)~(uintptr_t)0, o.high = nullptr;
  auto add = [&](const Block &block, u32 place, Space space, std::vector<Cell> &cells) {
    cells.resize(block.limit() - block.begin);
    o.regions.push_back({block.begin, block.limit(), place, space, &cells});
    o.low = std::min(o.low, block.begin), o.high = std::max(o.high, block.limit());
  };
  for (auto &bound : launch->bindings)
    add(memory[bound.memory], bound.binding, DEVICE, cells[bound.memory]);
  for (size_t i = 0; i < threadgroup.size(); ++i)
    add(threadgroup[i], MAX_PLACES - 1, THREADGROUP, cells[memory.size() + i]);
}

static void run_launch(std::vector<std::vector<Cell>> &cells) {
  Scheduler &s = scheduler;
  void *buffers[MAX_PLACES] = {}, *variables[64] = {};
  s.entry = find_entry(*launch);
  s.count = launch->threads[0] * launch->threads[1] * launch->threads[2];
  for (auto &bound : launch->bindings) buffers[bound.slot] = memory[bound.memory].begin;
  if (launch->params_slot != ~0u) buffers[launch->params_slot] = launch->params.data();
  if (launch->sizes_slot != ~0u) buffers[launch->sizes_slot] = launch->sizes.data();
  threadgroup.resize(launch->threadgroup.size());
  for (size_t i = 0; i < threadgroup.size(); ++i) {
    threadgroup[i].allocate(launch->threadgroup[i]);
    variables[i] = threadgroup[i].begin;
  }
  for (u32 i = 0; i < s.count; ++i) {
    const u32 *size = launch->threads;
    msl_thread &info = s.threads[i].info;
    info = {buffers, variables, {}, {}, {}, {}, i};
    memcpy(info.groups, launch->groups, 12);
    memcpy(info.size, size, 12);
    info.local[0] = i % size[0];
    info.local[1] = i / size[0] % size[1];
    info.local[2] = i / (size[0] * size[1]);
  }
  s.groups = s.ended = s.barriers = s.simd_barriers = 0;
  if (observer.on) {
    cells.resize(memory.size());
    cells.resize(memory.size() + threadgroup.size());
    observe_regions(cells);
    observer.begin_launch();
  }

  const u32 *groups = launch->groups;
  u64 total = (u64)groups[0] * groups[1] * groups[2];
  for (u64 number = 0; number < total; ++number) {
    u64 group = s.mode == REVERSE ? total - 1 - number : number;
    // A stride that shares no factor with the number of groups visits each once.
    if (s.mode == SHUFFLED && total > 2 && total % 7919) group = number * 7919 % total;
    u32 at[3] = {(u32)(group % groups[0]), (u32)(group / groups[0] % groups[1]),
                 (u32)(group / groups[0] / groups[1])};
    for (u32 i = 0; i < s.count; ++i) memcpy(s.threads[i].info.group, at, 12);
    for (auto &block : threadgroup) memset(block.begin, POISON, block.bytes);
    if (observer.on) observer.begin_group();
    s.current = &s.threads[0];
    in_kernel = true;
    s.run_group();
    in_kernel = false;
    if (observer.on) observer.end_group();
  }
  for (auto &bound : launch->bindings)
    if (memory[bound.memory].damaged())
      fail(OUT_OF_BOUNDS, "something was written just outside of the binding", bound.binding);
  for (auto &block : threadgroup) {
    if (block.damaged())
      fail(OUT_OF_BOUNDS, "something was written just outside of a threadgroup variable");
    block.release();
  }
}

static void run() {
  Scheduler &s = scheduler;
  s.mode = (Order)read_u32();
  s.random = read_u64();
  u32 timeout = read_u32();
  observer.on = read_u32();
  flush_denormals(read_u32());
  memory.resize(read_u32());
  std::vector<bool> writes;
  for (auto &block : memory) {
    writes.push_back(read_u32());
    block.allocate(read_u64());
    read_all(block.begin, block.bytes);
  }
  std::vector<Launch> launches(read_u32());
  for (auto &each : launches) each = read_launch();

  std::vector<std::vector<Cell>> cells;
  std::vector<u64> numbers;
  launch_number = 0;
  for (auto &each : launches) {
    launch = &each;
    set_timer(timeout);
    run_launch(cells);
    set_timer(0);
    numbers.insert(numbers.end(), {s.groups, s.ended, s.barriers, s.simd_barriers});
    if (observer.on)
      for (auto &count : observer.counts) {
        const u64 *words = (const u64 *)&count;
        numbers.insert(numbers.end(), words, words + sizeof count / sizeof(u64));
      }
    ++launch_number;
  }
  u32 good = 0;
  write_all(&good, sizeof good);
  write_all(numbers.data(), numbers.size() * sizeof(u64));
  for (size_t i = 0; i < memory.size(); ++i)
    if (writes[i]) write_all(memory[i].begin, memory[i].bytes);
  for (auto &block : memory) block.release();
  memory.clear();
  launch = nullptr;
}

int main() {
  catch_signals();
  for (;;)
    if (read_u32() == 1) run();
}
