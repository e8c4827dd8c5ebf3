// SPDX-License-Identifier: Apache-2.0
//
// What the reference model knows about holds, written from sections 1 to 3 of HOLDS.md alone. What
// a hold does to a budget is in model.h; here is only what one state remembers about its ids.
//
// A record goes through these phases, and is forgotten one minute after its expiry in each of them:
//
//   kLive --settle--> kSettled
//   kLive --expiry--> kCharged or kReleased --settle--> kSettledLate
//   unknown --settle--> kSettledLate, as if it had expired at that moment

#ifndef SLUICE_TESTS_CONFORMANCE_MODEL_HOLDS_H_
#define SLUICE_TESTS_CONFORMANCE_MODEL_HOLDS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace sluice::model {

// What becomes of the units of a hold that nobody settles.
enum class OnExpiry { kCharge, kRelease };

// How a request over holds went. All but the first two are errors: nothing was decided or written.
enum class Status {
  kOk,    // Also of a hold that was denied.
  kLate,  // The hold had expired, or was unknown, when it was settled.
  kHoldLost,
  kHoldConflict,
  kNeedsHold,
  kTooManyHolds,
  kCostExceeds,
};

namespace internal {

// __extension__ keeps -Wpedantic quiet about a type that ISO C++ does not have. The largest value
// that occurs is elapsed * refill < 2^64 * 2^53, far inside 127 bits.
__extension__ typedef __int128 Int128;

inline constexpr std::int64_t kMinTtlUs = 1'000;
inline constexpr std::int64_t kMaxTtlUs = std::int64_t{24} * 3'600 * 1'000'000;
inline constexpr std::int64_t kRememberedUs = 60'000'000;  // after the expiry
inline constexpr std::size_t kMaxLiveHolds = 4'096;

enum class Phase { kLive, kCharged, kReleased, kSettled, kSettledLate };

struct HoldRecord {
  std::int64_t units = 0;
  Int128 taken_us = 0;
  Int128 expires_us = 0;
  OnExpiry on_expiry = OnExpiry::kCharge;
  Phase phase = Phase::kLive;
};

// The ids that one state remembers. A budget lets its holds expire before anything else looks at
// it, so that a record in phase kLive is live at that moment; waits look ahead, to when it is not.
class Holds {
 public:
  // Null if the id is not known.
  HoldRecord* Find(const std::string& id) {
    const auto it = records_.find(id);
    return it == records_.end() ? nullptr : &it->second;
  }

  void Add(const std::string& id, const HoldRecord& record) { records_[id] = record; }

  bool IsEmpty() const { return records_.empty(); }

  // Records whose expiry has come but was not applied yet, the earliest first.
  std::vector<HoldRecord*> DueAt(Int128 at_us) {
    std::vector<HoldRecord*> due;
    for (auto& [id, record] : records_) {
      if (record.phase == Phase::kLive && !IsLiveAt(record, at_us)) due.push_back(&record);
    }
    std::stable_sort(due.begin(), due.end(), [](const HoldRecord* a, const HoldRecord* b) {
      return a->expires_us < b->expires_us;
    });
    return due;
  }

  void ForgetOld(Int128 at_us) {
    std::erase_if(records_, [&](const auto& entry) {
      return at_us >= entry.second.expires_us + kRememberedUs;
    });
  }

  std::size_t CountLiveAt(Int128 at_us) const {
    std::size_t count = 0;
    for (const auto& [id, record] : records_) count += IsLiveAt(record, at_us) ? 1 : 0;
    return count;
  }

  // With their ids, in the order of expiry and id.
  std::vector<std::pair<std::string, HoldRecord>> LiveAt(Int128 at_us) const {
    std::vector<std::pair<std::string, HoldRecord>> live;
    for (const auto& entry : records_) {
      if (IsLiveAt(entry.second, at_us)) live.push_back(entry);
    }
    std::stable_sort(live.begin(), live.end(), [](const auto& a, const auto& b) {
      return a.second.expires_us < b.second.expires_us;
    });
    return live;
  }

  Int128 UnitsLiveAt(Int128 at_us) const {
    Int128 units = 0;
    for (const auto& [id, record] : records_) {
      if (IsLiveAt(record, at_us)) units += record.units;
    }
    return units;
  }

 private:
  // A hold is live before its expiry, and not at it.
  static bool IsLiveAt(const HoldRecord& record, Int128 at_us) {
    return record.phase == Phase::kLive && at_us < record.expires_us;
  }

  std::map<std::string, HoldRecord> records_;
};

}  // namespace internal

}  // namespace sluice::model

#endif  // SLUICE_TESTS_CONFORMANCE_MODEL_HOLDS_H_
