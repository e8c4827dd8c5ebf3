// SPDX-License-Identifier: Apache-2.0
#include "daemon/freed_memory.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <utility>

namespace sluice::daemon {
namespace {

constexpr std::size_t kWorthwhileBytes = std::size_t{16} << 20;

// Pieces of this size come from the system one by one, and go back when they are freed.
constexpr int kLargeBytes = 128 << 10;

// Between two looks: what is used again at once need not travel. Looking walks the lists of free
// memory and keeps other threads from them meanwhile, 10 ms for 100,000 pieces; the longer the
// lists, the more seldom.
constexpr std::chrono::seconds kPauseMin{3};
constexpr int kPauseForCost = 1000;

std::size_t ResidentBytes() {
  std::size_t size = 0;
  std::size_t resident = 0;  // In pages.
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Of this thread: how busy others are does not count.
std::chrono::nanoseconds ProcessorTime() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Also those that the system has already.
std::size_t FreeBytes() { return ::mallinfo2().fordblks; }

}  // namespace

FreedMemory::FreedMemory() : resident_min_(ResidentBytes()) {
  // Unless told, glibc takes up to 32 MiB at once from its arenas as soon as one such piece was
  // freed. Answers that nobody took then leave holes, seven times what is held for clients at a
  // time.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): it takes a lock of its own.
  ::mallopt(M_MMAP_THRESHOLD, kLargeBytes);
}

void FreedMemory::GiveBack() {
  const Steady::time_point now = Steady::now();
  const std::size_t resident = ResidentBytes();
  if (resident == 0) return;  // It could not be read.
  resident_min_ = std::min(resident_min_, resident);
  if (now < next_look_ || resident - resident_min_ < kWorthwhileBytes) return;
  const std::chrono::nanoseconds begun = ProcessorTime();
  const std::size_t free = FreeBytes();
  next_look_ =
      now + std::max<Steady::duration>(kPauseMin, kPauseForCost * (ProcessorTime() - begun));
  // Whatever was used in between was in part what the system had.
  returned_ = std::min(returned_, free);
  const std::size_t stayed_free = std::min(std::exchange(free_, free), free);
  if (stayed_free < returned_ + kWorthwhileBytes) return;
  ::malloc_trim(0);
  // All that could be; what is left in parts of pages is not tried for again.
  returned_ = free_ = FreeBytes();
}

}  // namespace sluice::daemon
