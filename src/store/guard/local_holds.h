// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/store.h"
#include "store/guard/ledger.h"
#include "store/hash.h"

namespace sluice::guard {

// What is on hold on this instance's shares, because the store could not be asked: one entry for
// each state of a hold. Requests about it are decided here, too, until its id is forgotten.
// Bounded.
class LocalHolds {
 public:
  enum class Status : std::uint8_t { kLive, kExpired, kSettled };

  struct Hold {
    Ledger::Debt units;
    OnExpiry on_expiry = OnExpiry::kCharge;
    TimePoint expires;
    Status status = Status::kLive;
  };

  LocalHolds(std::size_t holds_max, std::size_t bytes_max, const Seed& seed)
      : holds_max_(holds_max), bytes_max_(bytes_max), seed_(seed) {}

  bool HasRoom() const { return holds_.size() < holds_max_ && bytes_ < bytes_max_; }
  bool empty() const { return holds_.empty(); }

  // One that is there already stays as it is.
  void Add(std::string_view id, const Hold& hold);

  // The hold's entry for the state of this charge. Null if there is none, or if it is forgotten.
  const Hold* Find(std::string_view id, const Charge& charge) const;

  // Of one that is there.
  void Extend(std::string_view id, const Charge& charge, TimePoint expires);
  void SetStatus(std::string_view id, const Charge& charge, Status status);
  void Forget(std::string_view id, const Charge& charge);

  // When Expire has something to do; TimePoint::max() if never.
  TimePoint next_due() const;

  // Lets up to `most` of them expire, or be forgotten. Returns what stays taken.
  std::vector<Ledger::Debt> Expire(TimePoint now, std::size_t most);

  std::size_t live() const { return live_; }

 private:
  using Holds = std::map<std::string, Hold>;  // By id and state.

  std::string KeyOf(std::string_view id, const Charge& charge) const;
  static std::size_t BytesOf(const std::string& key, const Hold& hold);
  // Its next change: it expires, or is forgotten.
  static TimePoint DueOf(const Hold& hold);

  template <typename Change>
  void Alter(Holds::iterator hold, const Change& change);
  void Erase(Holds::iterator hold);

  const std::size_t holds_max_;
  const std::size_t bytes_max_;
  const Seed seed_;
  std::size_t bytes_ = 0;
  std::size_t live_ = 0;
  Holds holds_;
  std::set<std::pair<TimePoint, std::string_view>> due_;  // Views of the keys of holds_.
};

}  // namespace sluice::guard
