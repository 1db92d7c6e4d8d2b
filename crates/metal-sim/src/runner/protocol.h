// Talking to the Rust side: little-endian numbers and bytes over stdin and stdout.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <unistd.h>
#include <vector>

typedef uint32_t u32;
typedef uint64_t u64;

// Ends the runner quietly when the other side is gone.
inline void read_all(void *to, size_t bytes) {
  for (char *at = (char *)to; bytes > 0;) {
    ssize_t got = read(0, at, bytes);
    if (got <= 0) _exit(0);
    at += got, bytes -= got;
  }
}
inline void write_all(const void *from, size_t bytes) {
  for (const char *at = (const char *)from; bytes > 0;) {
    ssize_t put = write(1, at, bytes);
    if (put <= 0) _exit(0);
    at += put, bytes -= put;
  }
}
template <class T> inline T read_number() {
  T value;
  read_all(&value, sizeof value);
  return value;
}
inline u32 read_u32() { return read_number<u32>(); }
inline u64 read_u64() { return read_number<u64>(); }
inline std::string read_text() {
  std::string text(read_u32(), 0);
  read_all(text.data(), text.size());
  return text;
}
inline std::vector<u32> read_words() {
  std::vector<u32> words(read_u32());
  read_all(words.data(), words.size() * sizeof(u32));
  return words;
}

// Why a run was given up. The numbers are known to the Rust side.
enum FailureKind : u32 {
  LOAD = 0,
  OUT_OF_BOUNDS = 1,
  DIVERGENT_BARRIER = 2,
  PARTIAL_SIMDGROUP = 3,
  RACE = 4,
  TIMEOUT = 5,
  CRASH = 6,
};
constexpr u32 NO_BINDING = ~0u;

// Reports a failure and ends the runner. Safe in a signal handler but for the formatting that the
// caller did.
[[noreturn]] void fail(FailureKind kind, const char *message, u32 binding = NO_BINDING);
