// SPDX-License-Identifier: Apache-2.0
// The holds on one state. They lie beside the slots: most states have none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/arithmetic.h"
#include "sluice/store.h"
#include "sluice/time.h"

namespace sluice::memory {

struct HoldRecord {
  enum class Status : std::uint8_t {
    kLive,
    kExpired,
    kSettled,
    kSettledLate,
  };

  std::int64_t units = 0;  // That were held.
  std::int64_t taken_us = 0;
  std::int64_t expires_us = 0;
  OnExpiry on_expiry = OnExpiry::kCharge;
  Status status = Status::kLive;

  // How many units are taken on its account, unless it was settled.
  std::int64_t Charged() const {
    return status == Status::kLive || on_expiry == OnExpiry::kCharge ? units : 0;
  }
  std::int64_t ForgottenUs() const { return expires_us + kHoldRemembered.count(); }
};

// Live holds in the order of their expiry, and ended ones until their ids are forgotten.
class Holds {
 public:
  using ById = std::unordered_map<std::string, HoldRecord, std::hash<std::string>>;
  using Entry = ById::value_type;

  Holds() = default;
  Holds(const Holds&) = delete;
  Holds& operator=(const Holds&) = delete;

  bool empty() const { return by_id_.empty(); }
  std::size_t size() const { return by_id_.size(); }
  std::size_t live() const { return live_.size(); }
  std::int64_t units() const { return units_; }  // Of the live ones.
  // For one more live hold. What is on hold stays a number that the arithmetic can handle: units of
  // windows that are over may still be.
  bool HasRoom(std::int64_t units) const {
    return live_.size() < kLiveHoldsMax && units <= core::kExactMax - units_;
  }
  const ById& all() const { return by_id_; }

  // Null if the id is not remembered.
  Entry* Find(std::string_view id);

  // Requires that the id is not remembered.
  Entry& Add(std::string_view id, const HoldRecord& record);

  void Extend(Entry& entry, std::int64_t expires_us);

  // The hold is not live any more.
  void End(Entry& entry, HoldRecord::Status status);

  // The live hold that expires first, if it has by then; else null.
  Entry* FirstExpired(std::int64_t now_us);

  // Forgets the ids whose time is over. Returns how many.
  std::size_t Forget(std::int64_t now_us);

  // When the last live hold expires; 0 if there is none.
  std::int64_t LastExpiry() const { return live_.empty() ? 0 : live_.rbegin()->first; }

  // When at most `units` will be on hold, if nothing but time ends them.
  std::int64_t ExpiredDownTo(std::int64_t units) const;

  // All units were taken at this moment instead. `release`: live holds are released at their
  // expiry.
  void Redate(std::int64_t taken_us, bool release);

 private:
  using Times = std::set<std::pair<std::int64_t, Entry*>>;

  ById by_id_;
  Times live_;   // By expiry.
  Times ended_;  // By when they are forgotten.
  std::int64_t units_ = 0;
};

}  // namespace sluice::memory
