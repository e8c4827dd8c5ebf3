// SPDX-License-Identifier: Apache-2.0
// The holds on one state. They lie beside the slots: most states have none.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>

#include "core/arithmetic.h"
#include "sluice/store.h"
#include "store/memory/hold_index.h"
#include "store/memory/hold_record.h"

namespace sluice::memory {

// Live holds, and ended ones until their ids are forgotten. A few with short ids lie here, a line
// of the cache each, and are found by looking at all of them. Others are indexed, and stay so until
// none is left.
class Holds {
 public:
  Holds() {}  // NOLINT(modernize-use-equals-default): no entry is initialized.
  Holds(const Holds&) = delete;
  Holds& operator=(const Holds&) = delete;

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  std::size_t live() const { return live_; }
  std::int64_t units() const { return units_; }  // Of the live ones.
  // For one more live hold. What is on hold stays a number that the arithmetic can handle: units of
  // windows that are over may still be.
  bool HasRoom(std::int64_t units) const {
    return live_ < kLiveHoldsMax && units <= core::kExactMax - units_;
  }

  // Null if the id is not remembered. Valid until the next Add or Forget.
  HoldRecord* Find(std::string_view id);

  // Requires that the id is not remembered, and has at most kHoldIdBytesMax.
  HoldRecord& Add(std::string_view id, const HoldRecord& record);

  void Extend(HoldRecord& hold, std::int64_t expires_us);

  // The hold is not live any more.
  void End(HoldRecord& hold, HoldRecord::Status status);

  // Whether any hold may have expired, or any id's time be over.
  bool IsDue(std::int64_t now_us) const { return now_us >= due_us_; }

  // The live hold that expires first, if it has by then; else null.
  HoldRecord* FirstExpired(std::int64_t now_us);

  // Forgets the ids whose time is over. Returns how many.
  std::size_t Forget(std::int64_t now_us);

  // When the last live hold expires; 0 if there is none.
  std::int64_t LastExpiry() const;

  // When at most `units` will be on hold, if nothing but time ends them.
  std::int64_t ExpiredDownTo(std::int64_t units) const;

  // The live ones, as HoldList says.
  void List(HoldList& list);

  // All units were taken at this moment instead. `release`: live holds are released at their
  // expiry.
  void Redate(std::int64_t taken_us, bool release);

  void Clear();

  // Calls `function` with every id and its record.
  template <typename Function>
  void ForEach(Function function) const {
    if (many_) return many_->ForEach(function);
    for (const FewHold& hold : few()) function(hold.id(), hold);
  }

 private:
  static constexpr std::size_t kFew = 5;
  static constexpr std::size_t kShortIdBytes = 37;  // A UUID has 36.
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  using FewHold = IdentifiedHold<kShortIdBytes>;
  static_assert(sizeof(FewHold) == 64);

  std::span<FewHold> few() { return {few_.data(), size_}; }
  std::span<const FewHold> few() const { return {few_.data(), size_}; }

  // The same for live ones, in the order of expiry, for as long as `function` returns true.
  template <typename Function>
  void ForEachLive(Function function) const;

  std::uint32_t size_ = 0;
  std::uint32_t live_ = 0;
  std::int64_t units_ = 0;
  std::int64_t due_us_ = kNever;  // Nothing expires or is forgotten before.
  std::unique_ptr<HoldIndex> many_;
  union {
    std::array<FewHold, kFew> few_;  // Unless there are many.
  };
};

}  // namespace sluice::memory
