// Buffers and threadgroup variables, each ending at memory that faults when touched.
#pragma once
#include "protocol.h"
#include <cstdio>
#include <sys/mman.h>

constexpr size_t PAGE = 4096;
// No 32-bit index of elements of 16 bytes gets past this, so the guard tells whose index was wrong.
constexpr size_t GUARD = (size_t)65 << 30;
constexpr unsigned char POISON = 0xff;

struct Block {
  char *mapping = nullptr;
  size_t mapped = 0;  // with the guard
  char *front = nullptr;
  char *begin = nullptr;
  size_t bytes = 0;

  char *end() const { return begin + bytes; }
  // The bytes up to here can be touched; up to 15 of them are not the block's.
  char *limit() const { return begin + ((bytes + 15) & ~(size_t)15); }
  bool reserves(const void *at) const { return at >= mapping && at < mapping + mapped; }

  void allocate(size_t size) {
    bytes = size;
    size_t room = (size + 15) & ~(size_t)15, pages = (room + PAGE - 1) / PAGE * PAGE;
    mapped = PAGE + pages + GUARD;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    mapping = (char *)mmap(nullptr, mapped, PROT_NONE, flags, -1, 0);
    if (mapping == MAP_FAILED || (pages && mprotect(mapping + PAGE, pages, PROT_READ | PROT_WRITE)))
      fail(LOAD, "no memory");
    front = mapping + PAGE;
    begin = front + pages - room;
    memset(front, POISON, pages);
  }
  void release() {
    if (mapping) munmap(mapping, mapped);
    mapping = nullptr;
  }
  // Did something write where only the page is ours, not the block?
  bool damaged() const {
    auto touched = [](const char *from, const char *to) {
      for (; from < to; ++from)
        if ((unsigned char)*from != POISON) return true;
      return false;
    };
    return touched(front, begin) || touched(end(), limit());
  }
};
