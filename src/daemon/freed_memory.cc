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

// The pause between checks: memory that is reused soon need not be returned. A check walks the
// lists of free memory and blocks other threads meanwhile, 10 ms for 100,000 pieces; the longer the
// lists, the less often.
constexpr std::chrono::seconds kPauseMin{3};
constexpr int kPauseForCost = 1000;

std::size_t ResidentBytes() {
  std::size_t size = 0;
  std::size_t resident = 0;  // In pages.
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Of this thread: the load of others does not count.
std::chrono::nanoseconds ProcessorTime() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Including those already returned to the system.
std::size_t FreeBytes() { return ::mallinfo2().fordblks; }

}  // namespace

FreedMemory::FreedMemory() : resident_min_(ResidentBytes()) {
  // By default, glibc serves pieces of up to 32 MiB from its arenas once one of that size was
  // freed. Unread answers then leave holes, seven times what is held for clients at a time.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): it takes its own lock.
  ::mallopt(M_MMAP_THRESHOLD, kLargeBytes);
}

void FreedMemory::GiveBack() {
  const Steady::time_point now = Steady::now();
  const std::size_t resident = ResidentBytes();
  if (resident == 0) return;  // Unreadable.
  resident_min_ = std::min(resident_min_, resident);
  if (now < next_look_ || resident - resident_min_ < kWorthwhileBytes) return;
  const std::chrono::nanoseconds begun = ProcessorTime();
  const std::size_t free = FreeBytes();
  next_look_ =
      now + std::max<Steady::duration>(kPauseMin, kPauseForCost * (ProcessorTime() - begun));
  // Part of what was used since had been returned before.
  returned_ = std::min(returned_, free);
  const std::size_t stayed_free = std::min(std::exchange(free_, free), free);
  if (stayed_free < returned_ + kWorthwhileBytes) return;
  ::malloc_trim(0);
  // Everything possible is returned; the rest, in parts of pages, is not tried again.
  returned_ = free_ = FreeBytes();
}

}  // namespace sluice::daemon
