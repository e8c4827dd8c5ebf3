// SPDX-License-Identifier: Apache-2.0
// A small number for each running thread, so that it can write where no other thread writes. The
// only thing here that the whole process shares.
#pragma once

#include <cstdint>

namespace sluice::telemetry {

inline constexpr std::uint32_t kOwnSlots = 64;           // Threads with their own slot.
inline constexpr std::uint32_t kSharedSlot = kOwnSlots;  // All others share this one.
inline constexpr std::uint32_t kSlots = kSharedSlot + 1;

namespace internal {
inline constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};
inline constinit thread_local std::uint32_t thread_slot = kNoSlot;
std::uint32_t TakeSlot();
}  // namespace internal

// The calling thread's slot, the lowest that was free when it first asked. After the thread has
// ended, another one gets the slot, and sees everything that this one wrote.
inline std::uint32_t ThreadSlot() {
  const std::uint32_t slot = internal::thread_slot;
  return slot != internal::kNoSlot ? slot : internal::TakeSlot();
}

// One past the highest slot below kSharedSlot that any thread ever had.
std::uint32_t SlotsEverUsed();

}  // namespace sluice::telemetry
