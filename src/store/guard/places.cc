// SPDX-License-Identifier: Apache-2.0
#include "store/guard/places.h"

#include <algorithm>

namespace sluice::guard {
namespace {

constexpr std::size_t kLimitPerFree = 2;

bool Add(std::atomic<std::uint32_t>& count, std::size_t max) {
  if (count.fetch_add(1, std::memory_order_relaxed) < max) return true;
  count.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

void Subtract(std::atomic<std::uint32_t>& count) { count.fetch_sub(1, std::memory_order_relaxed); }

}  // namespace

Places::Places(std::size_t max)
    : max_(max),
      plenty_(max < kSharedFrom ? max : max / 4),
      fresh_max_(static_cast<std::uint32_t>(max / 4)),
      client_max_(static_cast<std::uint32_t>(max / 8)) {}

bool Places::Share(const Asker& asker, std::size_t free, Grip& grip) {
  grip = {.limit = static_cast<std::uint16_t>(asker.limit % kLimits),
          .client = static_cast<std::uint16_t>(asker.client % kClients),
          .known = asker.known};
  const bool shared =
      grip.known ? Add(known_of_[grip.limit], kLimitPerFree * free) : ShareFresh(grip.limit);
  if (!shared) return false;
  if (Add(clients_[grip.client], client_max_)) return true;
  ReleaseLimit(grip);
  return false;
}

bool Places::ShareFresh(std::size_t limit) {
  const std::size_t taken = fresh_.fetch_add(1, std::memory_order_relaxed);
  if (taken < fresh_max_ && Add(fresh_of_[limit], kLimitPerFree * (fresh_max_ - taken))) {
    return true;
  }
  Subtract(fresh_);
  return false;
}

void Places::ReleaseLimit(const Grip& grip) {
  Subtract((grip.known ? known_of_ : fresh_of_)[grip.limit]);
  if (!grip.known) Subtract(fresh_);
}

bool Places::TakeBeyond(std::size_t more) {
  if (taken_.fetch_add(1, std::memory_order_relaxed) < max_ + more) return true;
  taken_.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

void Places::Release(std::size_t count, std::span<const Grip> grips) {
  for (const Grip& grip : grips) {
    ReleaseLimit(grip);
    Subtract(clients_[grip.client]);
  }
  taken_.fetch_sub(count, std::memory_order_relaxed);
}

}  // namespace sluice::guard
