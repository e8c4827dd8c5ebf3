// SPDX-License-Identifier: Apache-2.0
// Memory that starts as zeros, aligned to cache lines.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>

namespace sluice::memory {

inline constexpr std::size_t kLineBytes = 64;

// Large blocks come straight from the operating system. When freed, they go back to it at once, and
// growing shards leave no holes in the heap.
inline constexpr std::size_t kMappedBytesMin = 64 * 1024;

inline void* AllocateZeroed(std::size_t bytes) {
  if (bytes < kMappedBytesMin) {
    void* memory = ::operator new(bytes, std::align_val_t{kLineBytes});
    std::memset(memory, 0, bytes);
    return memory;
  }
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

inline void FreeZeroed(void* memory, std::size_t bytes) {
  if (bytes < kMappedBytesMin) {
    ::operator delete(memory, std::align_val_t{kLineBytes});
  } else {
    ::munmap(memory, bytes);
  }
}

}  // namespace sluice::memory
