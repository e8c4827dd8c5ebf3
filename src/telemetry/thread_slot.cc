// SPDX-License-Identifier: Apache-2.0
#include "telemetry/thread_slot.h"

#include <atomic>
#include <bit>

namespace sluice::telemetry {
namespace {

static_assert(kOwnSlots == 64, "one bit a slot");

constinit std::atomic<std::uint64_t> taken{0};
constinit std::atomic<std::uint32_t> ever_used{0};

// Gives the slot back when its thread ends. What the thread counts after that, in destructors of
// other thread-local objects, goes to the shared slot.
struct Lease {
  std::uint32_t slot;

  ~Lease() {
    internal::thread_slot = kSharedSlot;
    if (slot != kSharedSlot) {
      taken.fetch_and(~(std::uint64_t{1} << slot), std::memory_order_release);
    }
  }
};

std::uint32_t TakeLowest() {
  std::uint64_t now = taken.load(std::memory_order_relaxed);
  for (;;) {
    const auto slot = static_cast<std::uint32_t>(std::countr_one(now));
    if (slot == kOwnSlots) return kSharedSlot;
    // Acquires what the previous thread of the slot wrote to its cells.
    if (taken.compare_exchange_weak(now, now | std::uint64_t{1} << slot, std::memory_order_acquire,
                                    std::memory_order_relaxed)) {
      return slot;
    }
  }
}

}  // namespace

std::uint32_t internal::TakeSlot() {
  thread_local const Lease lease{TakeLowest()};
  thread_slot = lease.slot;
  if (lease.slot != kSharedSlot) {
    std::uint32_t most = ever_used.load(std::memory_order_relaxed);
    while (most <= lease.slot && !ever_used.compare_exchange_weak(most, lease.slot + 1)) {
    }
  }
  return lease.slot;
}

std::uint32_t SlotsEverUsed() { return ever_used.load(); }

}  // namespace sluice::telemetry
