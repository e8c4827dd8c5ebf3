// SPDX-License-Identifier: Apache-2.0
// Counts how often lines of the cache move from one thread to another, as if each thread had a core
// of its own: a thread misses a line that another one has written since. Linked in place of the
// runtime of the thread sanitizer: the compiler has put a call before every access of the program.
// What the libraries outside of it do, such as malloc, is not seen.
//
// SIGUSR1 begins a count, and makes the file $SLUICE_LINES.begun. SIGUSR2 ends it and writes it to
// $SLUICE_LINES: a line `base ADDRESS`, where the program was loaded, and for each thread `thread
// NAME` and lines of `ADDRESS MISSES WHERE`, where WHERE is the address in the code of the last
// miss.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

extern "C" const char __executable_start;

namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kThreadsMax = 64;
constexpr std::size_t kCopies = 1 << 24;  // Lines of a gigabyte: few of those in use share a place.

struct Line {
  std::uintptr_t number;
  std::uint64_t misses;
  const void* where;
};

// The threads, one bit each, that have a copy of a line: those that have used it since it was
// written, and the one that wrote it. 0: nobody has used it.
using Copies = std::atomic<std::uint64_t>;

// A hash table of the lines that one thread has missed in the current count.
struct Thread {
  static constexpr std::size_t kPlaces = 1 << 16;

  Line& Of(std::uintptr_t number) {
    for (std::size_t i = number * 0x9E3779B97F4A7C15U >> 48;; ++i) {
      Line& line = lines[i % kPlaces];
      if (line.number == number) return line;
      if (line.number == 0) {
        if (++used == kPlaces) std::abort();  // More than a count is meant for.
        line.number = number;
        return line;
      }
    }
  }

  std::uint64_t bit;
  char name[16];
  std::uint64_t count;  // The one that it belongs to.
  std::size_t used;
  std::array<Line, kPlaces> lines;
};

// Odd while counting.
constinit std::atomic<std::uint64_t> current{0};
constinit std::atomic<std::size_t> threads_used{0};
constinit std::array<std::atomic<Thread*>, kThreadsMax> threads{};
constinit thread_local Thread* mine = nullptr;
constinit Copies* copies = nullptr;

// Memory that takes none until it is used. All of it is 0.
template <typename Type>
Type* Reserve(std::size_t count) {
  void* const memory = ::mmap(nullptr, count * sizeof(Type), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<Type*>(memory);
}

Thread* Register() {
  const std::size_t place = threads_used.fetch_add(1);
  if (place >= kThreadsMax) std::abort();
  mine = Reserve<Thread>(1);
  mine->bit = std::uint64_t{1} << place;
  ::pthread_getname_np(::pthread_self(), mine->name, sizeof(mine->name));
  threads[place].store(mine, std::memory_order_release);
  return mine;
}

// Whether the thread had to fetch the line.
inline bool Fetch(std::uintptr_t line, std::uint64_t bit, bool writes) {
  Copies& copies_of = copies[line % kCopies];
  std::uint64_t before = copies_of.load(std::memory_order_relaxed);
  if (writes ? before == bit : (before & bit) != 0) return false;
  while (!copies_of.compare_exchange_weak(before, writes ? bit : before | bit)) {
  }
  return before != 0 && before != bit;
}

inline void Touch(const volatile void* address, std::size_t size, bool writes, const void* where) {
  const std::uint64_t count = current.load(std::memory_order_relaxed);
  if (count % 2 == 0) [[likely]]
    return;
  Thread* const thread = mine != nullptr ? mine : Register();
  if (thread->count != count) {
    thread->lines.fill({});
    thread->used = 0;
    thread->count = count;
  }
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  for (std::uintptr_t line = first / kLineBytes; line * kLineBytes < first + size; ++line) {
    if (!Fetch(line, thread->bit, writes)) continue;
    Line& missed = thread->Of(line);
    ++missed.misses;
    missed.where = where;
  }
}

std::FILE* Create(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) std::abort();
  return file;
}

void Write(std::uint64_t count, const std::string& path) {
  const std::string temporary = path + ".part";
  std::FILE* const file = Create(temporary);
  std::fprintf(file, "base %p\n", static_cast<const void*>(&__executable_start));
  for (const auto& place : threads) {
    const Thread* const thread = place.load(std::memory_order_acquire);
    if (thread == nullptr || thread->count != count) continue;
    std::fprintf(file, "thread %s\n", thread->name);
    for (const Line& line : thread->lines) {
      if (line.number == 0) continue;
      std::fprintf(file, "%zx %zu %p\n", line.number * kLineBytes, line.misses, line.where);
    }
  }
  std::fclose(file);
  std::rename(temporary.c_str(), path.c_str());
}

void* Serve(void*) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  sigaddset(&signals, SIGUSR2);
  for (int signal = 0; ::sigwait(&signals, &signal) == 0;) {
    const std::uint64_t count = current.load();
    if ((signal == SIGUSR1) == (count % 2 == 1)) continue;
    const char* const path = std::getenv("SLUICE_LINES");
    if (path == nullptr) std::abort();
    current.store(count + 1);
    if (signal == SIGUSR2) {
      Write(count, path);
    } else {
      std::fclose(Create(std::string(path) + ".begun"));
    }
  }
  return nullptr;
}

// Before any other thread starts, so that all of them leave the signals to this one.
[[gnu::constructor]] void Start() {
  copies = Reserve<Copies>(kCopies);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  sigaddset(&signals, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  pthread_t thread;
  if (::pthread_create(&thread, nullptr, Serve, nullptr) != 0) std::abort();
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier): the names that the compiler calls.
extern "C" {

#define HERE __builtin_return_address(0)

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void** object, void*) { Touch(object, sizeof(void*), true, HERE); }
void __tsan_read_range(void* address, unsigned long size) { Touch(address, size, false, HERE); }
void __tsan_write_range(void* address, unsigned long size) { Touch(address, size, true, HERE); }

#define ACCESS(size)                                                                     \
  void __tsan_read##size(void* address) { Touch(address, size, false, HERE); }           \
  void __tsan_write##size(void* address) { Touch(address, size, true, HERE); }           \
  void __tsan_unaligned_read##size(void* address) { Touch(address, size, false, HERE); } \
  void __tsan_unaligned_write##size(void* address) { Touch(address, size, true, HERE); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

#define CHANGE(bits, name, type)                                              \
  type __tsan_atomic##bits##_##name(volatile type* object, type value, int) { \
    Touch(object, sizeof(type), true, HERE);                                  \
    return __atomic_##name(object, value, __ATOMIC_SEQ_CST);                  \
  }
#define COMPARE(bits, strength, weak, type)                                                     \
  bool __tsan_atomic##bits##_compare_exchange_##strength(volatile type* object, type* expected, \
                                                         type value, int, int) {                \
    Touch(object, sizeof(type), true, HERE);                                                    \
    return __atomic_compare_exchange_n(object, expected, value, weak, __ATOMIC_SEQ_CST,         \
                                       __ATOMIC_SEQ_CST);                                       \
  }
#define ATOMIC(bits)                                                                         \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* object, \
                                                 int) {                                      \
    Touch(object, (bits) / 8, false, HERE);                                                  \
    return __atomic_load_n(object, __ATOMIC_SEQ_CST);                                        \
  }                                                                                          \
  void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* object,                     \
                                   std::uint##bits##_t value, int) {                         \
    Touch(object, (bits) / 8, true, HERE);                                                   \
    __atomic_store_n(object, value, __ATOMIC_SEQ_CST);                                       \
  }                                                                                          \
  std::uint##bits##_t __tsan_atomic##bits##_exchange(volatile std::uint##bits##_t* object,   \
                                                     std::uint##bits##_t value, int) {       \
    Touch(object, (bits) / 8, true, HERE);                                                   \
    return __atomic_exchange_n(object, value, __ATOMIC_SEQ_CST);                             \
  }                                                                                          \
  CHANGE(bits, fetch_add, std::uint##bits##_t)                                               \
  CHANGE(bits, fetch_sub, std::uint##bits##_t)                                               \
  CHANGE(bits, fetch_and, std::uint##bits##_t)                                               \
  CHANGE(bits, fetch_or, std::uint##bits##_t)                                                \
  CHANGE(bits, fetch_xor, std::uint##bits##_t)                                               \
  COMPARE(bits, strong, false, std::uint##bits##_t)                                          \
  COMPARE(bits, weak, true, std::uint##bits##_t)
ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

// Copies that are calls; the linker sends those of the program here (--wrap).
void* __real_memcpy(void* to, const void* from, std::size_t size);
void* __real_memmove(void* to, const void* from, std::size_t size);
void* __real_memset(void* to, int byte, std::size_t size);
void* __wrap_memcpy(void* to, const void* from, std::size_t size) {
  Touch(from, size, false, HERE);
  Touch(to, size, true, HERE);
  return __real_memcpy(to, from, size);
}
void* __wrap_memmove(void* to, const void* from, std::size_t size) {
  Touch(from, size, false, HERE);
  Touch(to, size, true, HERE);
  return __real_memmove(to, from, size);
}
void* __wrap_memset(void* to, int byte, std::size_t size) {
  Touch(to, size, true, HERE);
  return __real_memset(to, byte, size);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
