// SPDX-License-Identifier: Apache-2.0
#include "store/guard/places.h"

namespace sluice::guard {
namespace {

constexpr std::size_t kLimitPerFree = 2;

bool Add(std::uint32_t& count, std::size_t max) {
  if (count >= max) return false;
  ++count;
  return true;
}

}  // namespace

Places::Places(std::size_t max)
    : max_(max),
      plenty_(max < kSharedFrom ? max : max / 4),
      fresh_max_(static_cast<std::uint32_t>(max / 4)),
      client_max_(static_cast<std::uint32_t>(max / 8)) {}

bool Places::Share(const Requester& requester, std::size_t free, ScarcePlace& place) {
  place = {.limit = static_cast<std::uint16_t>(requester.limit % kLimits),
           .client = static_cast<std::uint16_t>(requester.client % kClients),
           .known = requester.known};
  const bool shared =
      place.known ? Add(known_of_[place.limit], kLimitPerFree * free) : ShareFresh(place.limit);
  if (!shared) return false;
  if (Add(clients_[place.client], client_max_)) return true;
  ReleaseLimit(place);
  return false;
}

bool Places::ShareFresh(std::size_t limit) {
  if (fresh_ >= fresh_max_) return false;
  if (!Add(fresh_of_[limit], kLimitPerFree * (fresh_max_ - fresh_))) return false;
  ++fresh_;
  return true;
}

void Places::ReleaseLimit(const ScarcePlace& place) {
  --(place.known ? known_of_ : fresh_of_)[place.limit];
  if (!place.known) --fresh_;
}

bool Places::TakeBeyond(std::size_t more) {
  if (taken_ >= max_ + more) return false;
  ++taken_;
  return true;
}

void Places::Release(std::size_t count, std::span<const ScarcePlace> scarce_places) {
  for (const ScarcePlace& place : scarce_places) {
    ReleaseLimit(place);
    --clients_[place.client];
  }
  taken_ -= count;
}

}  // namespace sluice::guard
