// SPDX-License-Identifier: Apache-2.0
#include "store/guard/local_holds.h"

#include <array>
#include <bit>

namespace sluice::guard {

void LocalHolds::Add(std::string_view id, const Hold& hold) {
  const auto [added, is_new] = holds_.try_emplace(KeyOf(id, hold.units.ToCharge()), hold);
  if (!is_new) return;
  due_.emplace(DueOf(hold), added->first);
  bytes_ += BytesOf(added->first, hold);
  ++live_;
}

const LocalHolds::Hold* LocalHolds::Find(std::string_view id, const Charge& charge) const {
  if (holds_.empty()) return nullptr;
  const auto found = holds_.find(KeyOf(id, charge));
  return found == holds_.end() ? nullptr : &found->second;
}

template <typename Change>
void LocalHolds::Alter(Holds::iterator hold, const Change& change) {
  due_.erase({DueOf(hold->second), hold->first});
  live_ -= hold->second.status == Status::kLive;
  change(hold->second);
  live_ += hold->second.status == Status::kLive;
  due_.emplace(DueOf(hold->second), hold->first);
}

void LocalHolds::Extend(std::string_view id, const Charge& charge, TimePoint expires) {
  Alter(holds_.find(KeyOf(id, charge)), [&](Hold& hold) { hold.expires = expires; });
}

void LocalHolds::SetStatus(std::string_view id, const Charge& charge, Status status) {
  Alter(holds_.find(KeyOf(id, charge)), [&](Hold& hold) { hold.status = status; });
}

void LocalHolds::Forget(std::string_view id, const Charge& charge) {
  Erase(holds_.find(KeyOf(id, charge)));
}

TimePoint LocalHolds::next_due() const {
  return due_.empty() ? TimePoint::max() : due_.begin()->first;
}

std::vector<Ledger::Debt> LocalHolds::Expire(TimePoint now, std::size_t most) {
  std::vector<Ledger::Debt> taken;
  for (; most > 0 && next_due() <= now; --most) {
    const auto hold = holds_.find(std::string(due_.begin()->second));
    if (hold->second.status != Status::kLive) {
      Erase(hold);
      continue;
    }
    Alter(hold, [](Hold& it) { it.status = Status::kExpired; });
    if (hold->second.on_expiry == OnExpiry::kCharge) taken.push_back(hold->second.units);
  }
  return taken;
}

std::string LocalHolds::KeyOf(std::string_view id, const Charge& charge) const {
  const Hash128 state = StateHash(seed_, charge);
  const auto bytes = std::bit_cast<std::array<char, sizeof(state)>>(state);
  std::string key(id);
  key.append(bytes.begin(), bytes.end());
  return key;
}

std::size_t LocalHolds::BytesOf(const std::string& key, const Hold& hold) {
  constexpr std::size_t kNodes = 160;  // Of both containers, approximately.
  return kNodes + sizeof(Hold) + key.size() + hold.units.bytes();
}

TimePoint LocalHolds::DueOf(const Hold& hold) {
  return hold.status == Status::kLive ? hold.expires : hold.expires + kHoldRemembered;
}

void LocalHolds::Erase(Holds::iterator hold) {
  due_.erase({DueOf(hold->second), hold->first});
  bytes_ -= BytesOf(hold->first, hold->second);
  live_ -= hold->second.status == Status::kLive;
  holds_.erase(hold);
}

}  // namespace sluice::guard
