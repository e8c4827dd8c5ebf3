// SPDX-License-Identifier: Apache-2.0
//
// The reference model of section 2 of the requirements, and of holds, concurrency and giving back
// (HOLDS.md, sections 1 to 3): slow, and meant to be checked by reading.
//
// It was written from the requirement text alone and shares nothing with the implementation: that
// the two agree is evidence, not an echo. Three choices keep it independent:
//  - Nothing is reduced to lowest terms or counted in ticks. A bucket's level is kept in units of
//    1/period_us of a token and time stays in microseconds, rounded down to the tick, in 128 bits.
//  - No wait has a closed formula. Each is a binary search for the smallest d for which the
//    definition itself, evaluated again at now + d with the state untouched, holds. That is sound
//    because with nothing else happening a budget only ever grows: each search predicate goes from
//    false to true at most once.
//  - State never expires. The text lets state go only once it equals an untouched budget, so while
//    time moves forward, forgetting and remembering cannot be told apart. (Where a test moves the
//    clock back to before such a moment, they can, and the text allows both.)
//
// Every operation first lets the holds of its states expire that are due, in order of their expiry
// and each as if at that very moment. That changes the state even when the operation does not, so
// where there are holds, time must not move back.

#ifndef SLUICE_TESTS_CONFORMANCE_MODEL_H_
#define SLUICE_TESTS_CONFORMANCE_MODEL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "conformance/model_calendar.h"
#include "conformance/model_holds.h"

namespace sluice::model {

// GCRA is a token bucket of burst + 1, so it has no kind of its own.
enum class Kind {
  kTokenBucket,
  kLeakyBucket,
  kFixedWindow,
  kSlidingWindow,
  kSlidingWindowCounter,
  kConcurrency,
  kCalendar,
};

struct Spec {
  Kind kind = Kind::kTokenBucket;
  std::int64_t amount = 0;     // capacity of a bucket, limit of a window or of concurrency
  std::int64_t refill = 0;     // buckets only: units per span
  std::int64_t span_us = 0;    // period of a bucket, length of a window, ttl of concurrency
  CalendarSpec calendar = {};  // of a calendar, which has no span_us

  friend bool operator==(const Spec&, const Spec&) = default;
};

struct Answer {
  bool allowed = false;
  std::int64_t limit = 0;
  std::int64_t remaining = 0;
  std::int64_t retry_after_us = 0;
  std::int64_t reset_after_us = 0;
  std::int64_t delay_us = 0;
  std::int64_t held = 0;        // units on hold after the operation
  bool overdrawn = false;       // this settle took more than the id had held
  std::int64_t expires_us = 0;  // of the hold that was made, found or extended; 0 if there is none

  friend bool operator==(const Answer&, const Answer&) = default;
};

namespace internal {

inline constexpr std::int64_t kMaxWaitUs = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t kEndOfTimeUs = std::int64_t{1} << 52;  // now_us is below this
inline constexpr std::int64_t kMaxSpanUs = std::int64_t{1} << 52;    // a span may equal this
inline constexpr std::int64_t kExactBound = std::int64_t{1} << 53;   // products stay below this

inline bool IsBucket(Kind kind) { return kind == Kind::kTokenBucket || kind == Kind::kLeakyBucket; }

inline Int128 GreatestCommonDivisor(Int128 a, Int128 b) {
  return b == 0 ? a : GreatestCommonDivisor(b, a % b);
}

// The smallest d >= 0 for which holds(now + d), saturated at kMaxWaitUs. `holds` must not turn
// false again once it is true.
template <typename Predicate>
std::int64_t SmallestWait(Int128 now_us, Predicate holds) {
  if (holds(now_us)) return 0;
  if (!holds(now_us + kMaxWaitUs)) return kMaxWaitUs;
  std::int64_t too_short = 0;
  std::int64_t enough = kMaxWaitUs;
  while (enough - too_short > 1) {
    const std::int64_t middle = too_short + (enough - too_short) / 2;
    (holds(now_us + middle) ? enough : too_short) = middle;
  }
  return enough;
}

// How the settling of one hold of one state went.
struct Ending {
  bool late = false;
  bool overdrawn = false;
};

// The state of one limit for one key. Every `at_us` handed in is at least NewestUs(), and the holds
// that were due by then have expired.
//
// Waits look ahead from now_us to at_us, as if nothing else happened and all that is on hold had
// been spent.
class Budget {
 public:
  Budget(const Spec& spec, std::int64_t tick_us) : spec_(spec), tick_us_(tick_us) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  virtual ~Budget() = default;

  const Spec& spec() const { return spec_; }
  Holds& holds() { return holds_; }
  const Holds& holds() const { return holds_; }

  // The newest time in the state; 0, the beginning of time, while the budget is untouched.
  virtual Int128 NewestUs() const = 0;
  // Seen from now_us, would a request of this cost (above 0) be allowed at at_us?
  virtual bool Grants(Int128 now_us, Int128 at_us, std::int64_t cost) const = 0;
  // Units left at that time; may come out negative where time moved back inside a window, and where
  // more was taken than there was.
  virtual Int128 Remaining(Int128 at_us) const = 0;
  // Seen from now_us, has the budget become full by at_us?
  virtual bool IsWhole(Int128 now_us, Int128 at_us) const = 0;
  // Charges the budget. Only called for a cost above 0 that Grants() allows at at_us.
  virtual void Take(Int128 at_us, std::int64_t cost) = 0;
  // Takes so many units (above 0) whether or not they are there, but no more than the arithmetic
  // bears.
  virtual void Overdraw(Int128 at_us, std::int64_t units) = 0;
  // Gives back up to so many units of what was taken and still counts at at_us. If that is none,
  // nothing changes.
  virtual void Give(Int128 at_us, std::int64_t units) = 0;
  // At at_us, gives back up to so many units as if they had never been taken at taken_us.
  virtual void Refund(Int128 taken_us, Int128 at_us, std::int64_t units) = 0;

  // Applies each expiry that is due at at_us as if at its own moment, then forgets old ids.
  void LetExpire(Int128 at_us) {
    for (HoldRecord* hold : holds_.DueAt(at_us)) {
      ChangeHeld(hold->expires_us, -hold->units);
      if (hold->on_expiry == OnExpiry::kRelease) {
        Refund(hold->taken_us, hold->expires_us, hold->units);
        hold->phase = Phase::kReleased;
      } else {
        hold->phase = Phase::kCharged;
      }
    }
    holds_.ForgetOld(at_us);
  }

  // Only called for an id that is not known, and units that Grants() allows at at_us or 0.
  void Hold(const std::string& id, Int128 at_us, std::int64_t units, std::int64_t ttl_us,
            OnExpiry on_expiry) {
    if (units > 0) Take(at_us, units);
    ChangeHeld(at_us, units);
    if (spec_.kind == Kind::kConcurrency) on_expiry = OnExpiry::kRelease;
    holds_.Add(id, {units, at_us, at_us + ttl_us, on_expiry, Phase::kLive});
  }

  // Makes the cost of the hold `actual`. (For concurrency, taking and giving back do nothing: what
  // is live is what is taken.)
  Ending Settle(const std::string& id, Int128 at_us, std::int64_t actual) {
    HoldRecord* hold = holds_.Find(id);
    if (hold == nullptr) {
      Correct(at_us, at_us, 0, actual);
      holds_.Add(id, {0, at_us, at_us, OnExpiry::kCharge, Phase::kSettledLate});
      return {.late = true, .overdrawn = IsOverdrawn(0, actual)};
    }
    const bool overdrawn = IsOverdrawn(hold->units, actual);
    switch (hold->phase) {
      case Phase::kLive:
        ChangeHeld(at_us, -hold->units);
        Correct(hold->taken_us, at_us, hold->units, actual);
        hold->phase = Phase::kSettled;
        return {.late = false, .overdrawn = overdrawn};
      case Phase::kCharged:
        Correct(hold->taken_us, at_us, hold->units, actual);
        hold->phase = Phase::kSettledLate;
        return {.late = true, .overdrawn = overdrawn};
      case Phase::kReleased:  // Nothing of it is taken any more.
        Correct(hold->taken_us, at_us, 0, actual);
        hold->phase = Phase::kSettledLate;
        return {.late = true, .overdrawn = overdrawn};
      case Phase::kSettled:
        return {.late = false, .overdrawn = false};
      case Phase::kSettledLate:
        return {.late = true, .overdrawn = false};
    }
    throw std::invalid_argument("unknown phase");
  }

 protected:
  // So many more or fewer units are on hold. Taking and giving them back is another matter.
  virtual void ChangeHeld(Int128 /*at_us*/, std::int64_t /*by*/) {}

  // Time as this limit sees it: it stands still between two ticks.
  Int128 OnTick(Int128 at_us) const { return at_us / tick_us_ * tick_us_; }

  std::int64_t tick_us() const { return tick_us_; }

 private:
  // Of what was taken at taken_us, `taken` units count, but it should have been `actual`.
  void Correct(Int128 taken_us, Int128 at_us, std::int64_t taken, std::int64_t actual) {
    if (actual < taken) Refund(taken_us, at_us, taken - actual);
    if (actual > taken) Overdraw(at_us, actual - taken);
  }

  bool IsOverdrawn(std::int64_t held, std::int64_t actual) const {
    return spec_.kind != Kind::kConcurrency && actual > held;
  }

  const Spec spec_;
  const std::int64_t tick_us_;
  Holds holds_;
};

// Token bucket, leaky bucket and GCRA. A token is spec().span_us parts, so one microsecond brings
// exactly spec().refill parts and no fraction is ever lost. Units on hold still lie in the bucket
// for its capacity: it refills only as far as they leave room.
class Bucket final : public Budget {
 public:
  Bucket(const Spec& spec, std::int64_t tick_us) : Budget(spec, tick_us), parts_(FullParts()) {}

  Int128 NewestUs() const override { return time_us_; }

  bool Grants(Int128 now_us, Int128 at_us, std::int64_t cost) const override {
    return PartsSeenFrom(now_us, at_us) >= Parts(cost);
  }

  Int128 Remaining(Int128 at_us) const override { return PartsAt(at_us) / Parts(1); }

  bool IsWhole(Int128 now_us, Int128 at_us) const override {
    return PartsSeenFrom(now_us, at_us) == FullParts();
  }

  void Take(Int128 at_us, std::int64_t cost) override {
    SetParts(at_us, PartsAt(at_us) - Parts(cost));
  }

  void Overdraw(Int128 at_us, std::int64_t units) override {
    SetParts(at_us, std::max(LowestParts(), PartsAt(at_us) - Parts(units)));
  }

  void Give(Int128 at_us, std::int64_t units) override {
    if (units == 0 || PartsAt(at_us) == RoomParts()) return;
    SetParts(at_us, std::min(RoomParts(), PartsAt(at_us) + Parts(units)));
  }

  void Refund(Int128 /*taken_us*/, Int128 at_us, std::int64_t units) override {
    Give(at_us, units);
  }

 protected:
  // What came until now came beside the old holds.
  void ChangeHeld(Int128 at_us, std::int64_t by) override {
    SetParts(at_us, PartsAt(at_us));
    held_ += by;
  }

 private:
  Int128 Parts(Int128 units) const { return units * spec().span_us; }
  Int128 FullParts() const { return Parts(spec().amount); }
  // level + held <= C at all times.
  Int128 RoomParts() const { return FullParts() - Parts(held_); }

  // A debt is bounded in units of 1/p of a token: from the lowest level to the full bucket it is
  // 2^53 - 1 of them. p is span / divisor, so that one such unit is `divisor` of our parts.
  Int128 LowestParts() const {
    const Int128 divisor = GreatestCommonDivisor(Int128{spec().refill} * tick_us(), spec().span_us);
    return FullParts() - Int128{kExactBound - 1} * divisor;
  }

  Int128 PartsAt(Int128 at_us) const {
    return std::min(RoomParts(), parts_ + (OnTick(at_us) - time_us_) * spec().refill);
  }

  // From now_us on, as if what is on hold had been spent.
  Int128 PartsSeenFrom(Int128 now_us, Int128 at_us) const {
    const Int128 elapsed_us = OnTick(at_us) - OnTick(now_us);
    return std::min(FullParts(), PartsAt(now_us) + elapsed_us * spec().refill);
  }

  void SetParts(Int128 at_us, Int128 parts) {
    parts_ = parts;
    time_us_ = OnTick(at_us);
  }

  Int128 parts_;
  Int128 time_us_ = 0;
  std::int64_t held_ = 0;
};

// Counts per epoch-aligned window, shared by the two algorithms that count windows. Every window
// ever used is kept: a count that has lost its influence is simply never asked for.
class WindowCounts {
 public:
  std::int64_t In(Int128 window) const {
    const auto it = counts_.find(window);
    return it == counts_.end() ? 0 : it->second;
  }

  void Add(Int128 window, std::int64_t cost) { counts_[window] += cost; }

  // Adds so many, but not beyond `most`.
  void AddUpTo(Int128 most, Int128 window, std::int64_t units) {
    const Int128 room = std::max<Int128>(0, most - In(window));
    Add(window, static_cast<std::int64_t>(std::min<Int128>(units, room)));
  }

  // Removes up to so many, and returns how many. A window that was used stays known.
  std::int64_t Remove(Int128 window, std::int64_t units) {
    const std::int64_t removed = std::min(units, In(window));
    if (removed > 0) counts_[window] -= removed;
    return removed;
  }

  Int128 Newest() const { return counts_.empty() ? 0 : counts_.rbegin()->first; }

 private:
  std::map<Int128, std::int64_t> counts_;
};

class FixedWindow final : public Budget {
 public:
  using Budget::Budget;

  Int128 NewestUs() const override { return counts_.Newest() * spec().span_us; }

  bool Grants(Int128 /*now_us*/, Int128 at_us, std::int64_t cost) const override {
    return Int128{counts_.In(WindowAt(at_us))} + cost <= spec().amount;
  }

  Int128 Remaining(Int128 at_us) const override {
    return Int128{spec().amount} - counts_.In(WindowAt(at_us));
  }

  // The window's end, whether or not anything was counted in it.
  bool IsWhole(Int128 now_us, Int128 at_us) const override {
    return WindowAt(at_us) > WindowAt(now_us);
  }

  void Take(Int128 at_us, std::int64_t cost) override { counts_.Add(WindowAt(at_us), cost); }

  void Overdraw(Int128 at_us, std::int64_t units) override {
    counts_.AddUpTo(kExactBound - 1, WindowAt(at_us), units);
  }

  void Give(Int128 at_us, std::int64_t units) override { counts_.Remove(WindowAt(at_us), units); }

  void Refund(Int128 taken_us, Int128 at_us, std::int64_t units) override {
    if (WindowAt(taken_us) == WindowAt(at_us)) counts_.Remove(WindowAt(taken_us), units);
  }

 private:
  Int128 WindowAt(Int128 at_us) const { return at_us / spec().span_us; }

  WindowCounts counts_;
};

// The windows are numbered by the moments at which they begin.
class Calendar final : public Budget {
 public:
  Calendar(const Spec& spec, std::int64_t tick_us)
      : Budget(spec, tick_us), windows_(spec.calendar) {}

  Int128 NewestUs() const override { return counts_.Newest(); }

  bool Grants(Int128 /*now_us*/, Int128 at_us, std::int64_t cost) const override {
    return Int128{counts_.In(WindowAt(at_us))} + cost <= spec().amount;
  }

  Int128 Remaining(Int128 at_us) const override {
    return Int128{spec().amount} - counts_.In(WindowAt(at_us));
  }

  bool IsWhole(Int128 now_us, Int128 at_us) const override {
    return WindowAt(at_us) > WindowAt(now_us);
  }

  void Take(Int128 at_us, std::int64_t cost) override { counts_.Add(WindowAt(at_us), cost); }

  void Overdraw(Int128 at_us, std::int64_t units) override {
    counts_.AddUpTo((Int128{1} << 46) - 1, WindowAt(at_us), units);
  }

  void Give(Int128 at_us, std::int64_t units) override { counts_.Remove(WindowAt(at_us), units); }

  void Refund(Int128 taken_us, Int128 at_us, std::int64_t units) override {
    if (WindowAt(taken_us) == WindowAt(at_us)) counts_.Remove(WindowAt(taken_us), units);
  }

 private:
  // All that comes after the last window that can be asked for is one.
  Int128 WindowAt(Int128 at_us) const {
    if (at_us >= kEndOfTimeUs + kLongestUs) return kEndOfTimeUs + kLongestUs;
    return windows_.At(static_cast<std::int64_t>(at_us)).begin;
  }

  static constexpr std::int64_t kLongestUs = std::int64_t{400} * 86'400 * 1'000'000;

  const CalendarWindows windows_;
  WindowCounts counts_;
};

class SlidingWindowCounter final : public Budget {
 public:
  using Budget::Budget;

  Int128 NewestUs() const override { return counts_.Newest() * spec().span_us; }

  bool Grants(Int128 /*now_us*/, Int128 at_us, std::int64_t cost) const override {
    return WeightedAt(at_us) + Int128{cost} * spec().span_us <=
           Int128{spec().amount} * spec().span_us;
  }

  // Rounds towards zero, which is not the floor below zero; Decide() reports 0 there either way.
  Int128 Remaining(Int128 at_us) const override {
    return (Int128{spec().amount} * spec().span_us - WeightedAt(at_us)) / spec().span_us;
  }

  bool IsWhole(Int128 /*now_us*/, Int128 at_us) const override { return WeightedAt(at_us) == 0; }

  void Take(Int128 at_us, std::int64_t cost) override { counts_.Add(WindowAt(at_us), cost); }

  void Overdraw(Int128 at_us, std::int64_t units) override {
    const Int128 most = std::min((Int128{1} << 46) - 1, Int128{kMaxOverdraft} * spec().amount);
    counts_.AddUpTo(most, WindowAt(at_us), units);
  }

  void Refund(Int128 taken_us, Int128 at_us, std::int64_t units) override {
    const Int128 taken_in = WindowAt(taken_us);
    const Int128 current = WindowAt(at_us);
    if (taken_in == current || taken_in == current - 1) counts_.Remove(taken_in, units);
  }

  void Give(Int128 at_us, std::int64_t units) override {
    const Int128 window = WindowAt(at_us);
    const std::int64_t of_current = counts_.Remove(window, units);
    const std::int64_t of_previous = counts_.Remove(window - 1, units - of_current);
    // It was written now, as when something is taken.
    if (of_previous > 0) counts_.Add(window, 0);
  }

 private:
  // A count may come to so many times the limit.
  static constexpr std::int64_t kMaxOverdraft = 256;

  // A window is a whole number of ticks, so a tick never straddles two windows.
  Int128 WindowAt(Int128 at_us) const { return OnTick(at_us) / spec().span_us; }

  // In units of 1/span_us of a request. The ratio to amount * span_us does not depend on the tick.
  Int128 WeightedAt(Int128 at_us) const {
    const Int128 window = WindowAt(at_us);
    const Int128 elapsed_us = OnTick(at_us) - window * spec().span_us;
    return Int128{counts_.In(window - 1)} * (spec().span_us - elapsed_us) +
           Int128{counts_.In(window)} * spec().span_us;
  }

  WindowCounts counts_;
};

class SlidingWindow final : public Budget {
 public:
  using Budget::Budget;

  Int128 NewestUs() const override { return log_.empty() ? 0 : log_.back().first; }

  bool Grants(Int128 /*now_us*/, Int128 at_us, std::int64_t cost) const override {
    return SumAt(at_us) + cost <= spec().amount;
  }

  Int128 Remaining(Int128 at_us) const override { return spec().amount - SumAt(at_us); }

  bool IsWhole(Int128 /*now_us*/, Int128 at_us) const override { return SumAt(at_us) == 0; }

  // No later request is seen before this newest time, so what has left by now is gone for good and
  // is dropped to keep long test runs quick.
  void Take(Int128 at_us, std::int64_t cost) override {
    std::erase_if(log_, [&](const auto& entry) { return !CountsAt(entry.first, at_us); });
    log_.emplace_back(at_us, cost);
  }

  void Overdraw(Int128 at_us, std::int64_t units) override {
    const Int128 room = std::max<Int128>(0, kExactBound - 1 - SumAt(at_us));
    const auto taken = static_cast<std::int64_t>(std::min<Int128>(units, room));
    if (taken > 0) Take(at_us, taken);
  }

  // As when something is taken, what has left by now is gone for good.
  void Give(Int128 at_us, std::int64_t units) override {
    if (units == 0 || SumAt(at_us) == 0) return;
    std::erase_if(log_, [&](const auto& entry) { return !CountsAt(entry.first, at_us); });
    while (units > 0 && !log_.empty()) {
      const std::int64_t taken = std::min(units, log_.back().second);
      log_.back().second -= taken;
      units -= taken;
      if (log_.back().second == 0) log_.pop_back();
    }
  }

  void Refund(Int128 taken_us, Int128 /*at_us*/, std::int64_t units) override {
    for (auto& [entry_us, taken] : log_) {
      if (entry_us != taken_us) continue;
      const std::int64_t given = std::min(units, taken);
      taken -= given;
      units -= given;
    }
    std::erase_if(log_, [](const auto& entry) { return entry.second == 0; });
  }

 private:
  // A request at t counts during [t, t + W).
  bool CountsAt(Int128 entry_us, Int128 at_us) const {
    return entry_us <= at_us && at_us < entry_us + spec().span_us;
  }

  Int128 SumAt(Int128 at_us) const {
    Int128 sum = 0;
    for (const auto& [entry_us, units] : log_) {
      if (CountsAt(entry_us, at_us)) sum += units;
    }
    return sum;
  }

  std::vector<std::pair<Int128, std::int64_t>> log_;  // (time, units), oldest first, not merged
};

// Units are taken while they are on hold and at no other time, so the records of the holds are the
// whole state, and there is nothing to take, correct or give back beside them.
class Concurrency final : public Budget {
 public:
  using Budget::Budget;

  Int128 NewestUs() const override { return 0; }

  bool Grants(Int128 /*now_us*/, Int128 at_us, std::int64_t cost) const override {
    return holds().UnitsLiveAt(at_us) + cost <= spec().amount;
  }

  Int128 Remaining(Int128 at_us) const override {
    return spec().amount - holds().UnitsLiveAt(at_us);
  }

  // Until the last expiry, also if that hold has no units.
  bool IsWhole(Int128 /*now_us*/, Int128 at_us) const override {
    return holds().CountLiveAt(at_us) == 0;
  }

  void Take(Int128 /*at_us*/, std::int64_t /*cost*/) override {}
  void Overdraw(Int128 /*at_us*/, std::int64_t /*units*/) override {}
  void Give(Int128 /*at_us*/, std::int64_t /*units*/) override {}
  void Refund(Int128 /*taken_us*/, Int128 /*at_us*/, std::int64_t /*units*/) override {}
};

}  // namespace internal

// The finest tick in which all products of the limit stay below 2^53: 1, 1000 or 1000000. 0 when
// there is none, or when a number is outside the domain: such a limit must be refused.
inline std::int64_t TickUs(const Spec& spec) {
  using internal::Int128;
  using internal::kExactBound;
  if (spec.amount < 1 || spec.amount >= kExactBound) return 0;
  if (spec.kind == Kind::kCalendar) return spec.amount < std::int64_t{1} << 46 ? 1 : 0;
  if (spec.span_us < 1 || spec.span_us > internal::kMaxSpanUs) return 0;
  if (internal::IsBucket(spec.kind) && (spec.refill < 1 || spec.refill >= kExactBound)) return 0;
  // These two multiply nothing: they compare counts and add times.
  if (spec.kind == Kind::kFixedWindow || spec.kind == Kind::kSlidingWindow) return 1;
  if (spec.kind == Kind::kConcurrency) {
    return spec.span_us >= internal::kMinTtlUs && spec.span_us <= internal::kMaxTtlUs ? 1 : 0;
  }
  for (const std::int64_t tick_us : {1, 1'000, 1'000'000}) {
    if (internal::IsBucket(spec.kind)) {
      // r/p: tokens per tick, in lowest terms.
      const Int128 numerator = Int128{spec.refill} * tick_us;
      const Int128 divisor = internal::GreatestCommonDivisor(numerator, spec.span_us);
      const Int128 r = numerator / divisor;
      const Int128 p = spec.span_us / divisor;
      if (spec.amount * p < kExactBound && r < kExactBound) return tick_us;
    } else if (spec.span_us % tick_us == 0) {
      if (Int128{spec.amount} * (spec.span_us / tick_us) < kExactBound) return tick_us;
    }
  }
  return 0;
}

// All keys of any number of limits. A state is identified by its key and the name of its limit, and
// remembers the ids of its own holds: an id is looked up in the states of each request.
//
// Throws std::invalid_argument where the requirements define no answer: a refused limit, a negative
// cost, a time, ttl or id outside the domain, one state twice in a group, or a state whose limit
// has changed.
class Model {
 public:
  struct Charge {
    std::string key;
    std::string name;
    Spec spec;
    std::int64_t cost = 1;
  };

  struct Group {
    // COST_EXCEEDS_LIMIT: nothing was decided, and `overall` and `each` hold nothing.
    bool cost_exceeds = false;
    Answer overall;
    std::vector<Answer> each;  // in the order of the charges
    // After any error, too, `overall` and `each` hold nothing.
    Status status = Status::kOk;
  };

  // All or nothing: if any limit denies, none is charged.
  Group Decide(const std::vector<Charge>& charges, std::int64_t now_us) {
    CheckDomain(charges, now_us);
    for (const Charge& charge : charges) {
      if (charge.cost > 0 && IsConcurrency(charge)) return Failed(Status::kNeedsHold);
    }
    if (AnyCostExceeds(charges)) return Failed(Status::kCostExceeds);
    return Conclude(PendingOf(charges, now_us), [](const Pending& one) {
      if (one.cost > 0) one.budget->Take(one.at_us, one.cost);
    });
  }

  // Takes what was granted elsewhere: as much of each cost as is left. Never denies.
  Group Debit(std::vector<Charge> charges, std::int64_t now_us) {
    CheckDomain(charges, now_us);
    if (std::ranges::any_of(charges, IsConcurrency)) return Failed(Status::kNeedsHold);
    for (Charge& charge : charges) {
      const Pending one = PendingOf(charge, now_us);
      // The largest cost that a check would grant.
      std::int64_t granted = 0;
      std::int64_t refused = std::min(charge.cost, charge.spec.amount) + 1;
      while (refused - granted > 1) {
        const std::int64_t middle = granted + (refused - granted) / 2;
        (one.budget->Grants(one.at_us, one.at_us, middle) ? granted : refused) = middle;
      }
      charge.cost = granted;
    }
    return Decide(charges, now_us);
  }

  // Gives back up to each cost of what was taken. Never denies.
  Group Give(const std::vector<Charge>& charges, std::int64_t now_us) {
    CheckDomain(charges, now_us);
    if (std::ranges::any_of(charges, IsConcurrency)) return Failed(Status::kNeedsHold);
    for (const Pending& one : PendingOf(charges, now_us)) one.budget->Give(one.at_us, one.cost);
    return Peek(charges, now_us);
  }

  // What Decide would answer to a request that is denied for another reason: takes nothing.
  // `overall` is denied only if one of these limits denies. Of concurrency, what Hold would answer.
  Group Look(const std::vector<Charge>& charges, std::int64_t now_us) {
    CheckDomain(charges, now_us);
    Group group;
    bool all_allowed = true;
    for (const Pending& one : PendingOf(charges, now_us)) {
      all_allowed = all_allowed && one.allowed;
      group.each.push_back(AnswerTo(one));
    }
    group.overall = Combine(group.each, all_allowed);
    return group;
  }

  // Puts the cost of each charge on hold under the id until now + ttl; a ttl of 0 is the limit's
  // own, which only concurrency has. All or nothing, as Decide. Of an id that is live with the same
  // units in all of the states, the answer is as of a peek, and nothing changes.
  Group Hold(const std::vector<Charge>& charges, const std::string& id, std::int64_t ttl_us,
             OnExpiry on_expiry, std::int64_t now_us) {
    CheckDomain(charges, now_us);
    CheckId(id);
    for (const Charge& charge : charges) CheckTtl(charge, ttl_us);
    if (AnyCostExceeds(charges)) return Failed(Status::kCostExceeds);

    const std::vector<Pending> pending = PendingOf(charges, now_us);
    bool known_to_any = false;
    bool same_in_all = true;
    bool too_many = false;
    for (const Pending& one : pending) {
      const internal::HoldRecord* hold = one.budget->holds().Find(id);
      known_to_any = known_to_any || hold != nullptr;
      same_in_all = same_in_all && IsLive(hold) && hold->units == one.cost;
      const internal::Holds& holds = one.budget->holds();
      too_many = too_many || holds.CountLiveAt(one.at_us) >= internal::kMaxLiveHolds ||
                 holds.UnitsLiveAt(one.at_us) + one.cost >= internal::kExactBound;
    }
    if (known_to_any && !same_in_all) return Failed(Status::kHoldConflict);
    if (known_to_any) return WithExpiry(Peek(charges, now_us), pending, id);
    if (too_many) return Failed(Status::kTooManyHolds);

    Group group = Conclude(pending, [&](const Pending& one) {
      one.budget->Hold(id, one.at_us, one.cost, TtlOf(one.budget->spec(), ttl_us), on_expiry);
    });
    return group.overall.allowed ? WithExpiry(std::move(group), pending, id) : group;
  }

  // Ends the hold: what each charge took becomes its `cost`. Never denies. The states need not
  // agree about the id: each does what it would do alone.
  Group Settle(const std::vector<Charge>& charges, const std::string& id, std::int64_t now_us) {
    CheckDomain(charges, now_us);
    CheckId(id);
    std::vector<internal::Ending> endings;
    for (const Pending& one : PendingOf(charges, now_us)) {
      endings.push_back(one.budget->Settle(id, one.at_us, one.cost));
    }
    Group group = Peek(charges, now_us);
    for (std::size_t i = 0; i < endings.size(); ++i) {
      if (endings[i].late) group.status = Status::kLate;
      group.each[i].overdrawn = endings[i].overdrawn;
      group.overall.overdrawn = group.overall.overdrawn || endings[i].overdrawn;
    }
    return group;
  }

  // The hold lasts until now + ttl, which may be sooner than before. The costs are ignored.
  Group Extend(const std::vector<Charge>& charges, const std::string& id, std::int64_t ttl_us,
               std::int64_t now_us) {
    CheckDomain(charges, now_us);
    CheckId(id);
    for (const Charge& charge : charges) CheckTtl(charge, ttl_us);
    const std::vector<Pending> pending = PendingOf(charges, now_us);
    for (const Pending& one : pending) {
      if (!IsLive(one.budget->holds().Find(id))) return Failed(Status::kHoldLost);
    }
    for (const Pending& one : pending) {
      one.budget->holds().Find(id)->expires_us = one.at_us + TtlOf(one.budget->spec(), ttl_us);
    }
    return WithExpiry(Peek(charges, now_us), pending, id);
  }

  // A live hold on one state.
  struct Held {
    std::string id;
    std::int64_t units;
    std::int64_t taken_us;
    std::int64_t expires_us;
    OnExpiry on_expiry;
  };

  // All of them, in the order of expiry and id.
  std::vector<Held> ListHolds(const Charge& charge, std::int64_t now_us) {
    const Pending one = PendingOf(charge, now_us);
    std::vector<Held> list;
    for (const auto& [id, hold] : one.budget->holds().LiveAt(one.at_us)) {
      list.push_back({id, hold.units, static_cast<std::int64_t>(hold.taken_us),
                      static_cast<std::int64_t>(hold.expires_us), hold.on_expiry});
    }
    return list;
  }

  // Takes at a moment that is not before the state's newest, without asking: what was decided then.
  void Take(const Charge& charge, std::int64_t at_us) {
    PendingOf(charge, at_us).budget->Take(at_us, charge.cost);
  }

  // Of a log: gives back up to so many units of what was taken at that very moment.
  void Untake(const Charge& charge, std::int64_t when_us) {
    BudgetOf(charge).Refund(when_us, when_us, charge.cost);
  }

  // Missing state is an untouched budget that knows no id.
  void Reset(const std::string& key, const std::string& name) { budgets_.erase({key, name}); }

  // Whether forgetting the state at this moment changes nothing from then on.
  bool IsUntouched(const Charge& charge, std::int64_t now_us) {
    internal::Budget& budget = BudgetOf(charge);
    if (budget.NewestUs() > now_us) return false;
    budget.LetExpire(now_us);
    if (!budget.holds().IsEmpty()) return false;
    if (charge.spec.kind == Kind::kFixedWindow || charge.spec.kind == Kind::kCalendar) {
      return budget.Remaining(now_us) == charge.spec.amount;
    }
    return budget.IsWhole(now_us, now_us);
  }

  // Whether the state knows this id.
  bool Remembers(const Charge& charge, const std::string& id, std::int64_t now_us) {
    return PendingOf(charge, now_us).budget->holds().Find(id) != nullptr;
  }

  // The newest time in the state.
  std::int64_t NewestUs(const Charge& charge) {
    return static_cast<std::int64_t>(BudgetOf(charge).NewestUs());
  }

 private:
  using Id = std::pair<std::string, std::string>;  // key, name

  struct Pending {
    internal::Budget* budget;
    std::int64_t cost;
    internal::Int128 at_us;
    bool allowed;
  };

  // The state as it is at this moment, with all expiries up to it.
  Pending PendingOf(const Charge& charge, std::int64_t now_us) {
    internal::Budget& budget = BudgetOf(charge);
    // Each state holds back its own clock; the injected time is the same for all.
    const internal::Int128 at_us = std::max<internal::Int128>(now_us, budget.NewestUs());
    budget.LetExpire(at_us);
    return {&budget, charge.cost, at_us,
            charge.cost == 0 || budget.Grants(at_us, at_us, charge.cost)};
  }

  std::vector<Pending> PendingOf(const std::vector<Charge>& charges, std::int64_t now_us) {
    std::vector<Pending> pending;
    for (const Charge& charge : charges) pending.push_back(PendingOf(charge, now_us));
    return pending;
  }

  static bool IsConcurrency(const Charge& charge) { return charge.spec.kind == Kind::kConcurrency; }

  static bool AnyCostExceeds(const std::vector<Charge>& charges) {
    return std::ranges::any_of(
        charges, [](const Charge& charge) { return charge.cost > charge.spec.amount; });
  }

  static bool IsLive(const internal::HoldRecord* hold) {
    return hold != nullptr && hold->phase == internal::Phase::kLive;
  }

  static std::int64_t TtlOf(const Spec& spec, std::int64_t ttl_us) {
    return ttl_us == 0 ? spec.span_us : ttl_us;
  }

  static void CheckTtl(const Charge& charge, std::int64_t ttl_us) {
    if (ttl_us == 0 && IsConcurrency(charge)) return;
    if (ttl_us < internal::kMinTtlUs || ttl_us > internal::kMaxTtlUs) {
      throw std::invalid_argument("ttl_us is outside the domain");
    }
  }

  static void CheckId(const std::string& id) {
    const bool printable = std::ranges::all_of(id, [](char c) { return c >= ' ' && c <= '~'; });
    if (id.empty() || id.size() > 64 || !printable) throw std::invalid_argument("not an id");
  }

  static Group Failed(Status status) {
    Group group;
    group.cost_exceeds = status == Status::kCostExceeds;
    group.status = status;
    return group;
  }

  static void CheckDomain(const std::vector<Charge>& charges, std::int64_t now_us) {
    if (now_us < 0 || now_us >= internal::kEndOfTimeUs) {
      throw std::invalid_argument("now_us is outside the domain");
    }
    std::set<Id> seen;
    for (const Charge& charge : charges) {
      if (charge.cost < 0) throw std::invalid_argument("negative cost");
      if (TickUs(charge.spec) == 0) throw std::invalid_argument("the limit must be refused");
      if (!seen.insert({charge.key, charge.name}).second) {
        throw std::invalid_argument("one state twice in a group");
      }
    }
  }

  internal::Budget& BudgetOf(const Charge& charge) {
    std::unique_ptr<internal::Budget>& budget = budgets_[{charge.key, charge.name}];
    if (budget == nullptr) budget = Untouched(charge.spec);
    if (budget->spec() != charge.spec) {
      throw std::invalid_argument("the state belongs to another limit; reset it first");
    }
    return *budget;
  }

  static std::unique_ptr<internal::Budget> Untouched(const Spec& spec) {
    const std::int64_t tick_us = TickUs(spec);
    switch (spec.kind) {
      case Kind::kTokenBucket:
      case Kind::kLeakyBucket:
        return std::make_unique<internal::Bucket>(spec, tick_us);
      case Kind::kFixedWindow:
        return std::make_unique<internal::FixedWindow>(spec, tick_us);
      case Kind::kSlidingWindow:
        return std::make_unique<internal::SlidingWindow>(spec, tick_us);
      case Kind::kSlidingWindowCounter:
        return std::make_unique<internal::SlidingWindowCounter>(spec, tick_us);
      case Kind::kConcurrency:
        return std::make_unique<internal::Concurrency>(spec, tick_us);
      case Kind::kCalendar:
        return std::make_unique<internal::Calendar>(spec, tick_us);
    }
    throw std::invalid_argument("unknown kind");
  }

  static std::int64_t ResetAfterUs(const Pending& one) {
    return internal::SmallestWait(
        one.at_us, [&](internal::Int128 at_us) { return one.budget->IsWhole(one.at_us, at_us); });
  }

  // Charges each limit, by `take`, if the whole group is allowed.
  template <typename Take>
  static Group Conclude(const std::vector<Pending>& pending, Take take) {
    const bool all_allowed = std::ranges::all_of(pending, &Pending::allowed);
    Group group;
    for (const Pending& one : pending) {
      // What is in the bucket before this request has drained when the bucket would be full again
      // had the request never come. A denied request is never emitted, so it has no delay.
      const bool has_delay = all_allowed && one.budget->spec().kind == Kind::kLeakyBucket;
      const std::int64_t delay_us = has_delay ? ResetAfterUs(one) : 0;
      if (all_allowed) take(one);
      group.each.push_back(AnswerTo(one));
      group.each.back().delay_us = delay_us;
    }
    group.overall = Combine(group.each, all_allowed);
    return group;
  }

  // The numbers as they stand.
  Group Peek(std::vector<Charge> charges, std::int64_t now_us) {
    for (Charge& charge : charges) charge.cost = 0;
    return Decide(charges, now_us);
  }

  // A group is on hold as long as all of it is.
  static Group WithExpiry(Group group, const std::vector<Pending>& pending, const std::string& id) {
    for (std::size_t i = 0; i < pending.size(); ++i) {
      const auto expires_us =
          static_cast<std::int64_t>(pending[i].budget->holds().Find(id)->expires_us);
      group.each[i].expires_us = expires_us;
      group.overall.expires_us =
          i == 0 ? expires_us : std::min(group.overall.expires_us, expires_us);
    }
    return group;
  }

  // The limit's numbers after the operation, but for the delay.
  static Answer AnswerTo(const Pending& one) {
    const internal::Budget& budget = *one.budget;
    Answer answer;
    answer.allowed = one.allowed;
    answer.limit = budget.spec().amount;
    if (!one.allowed) {
      answer.retry_after_us = internal::SmallestWait(one.at_us, [&](internal::Int128 at_us) {
        return budget.Grants(one.at_us, at_us, one.cost);
      });
    }
    answer.remaining =
        static_cast<std::int64_t>(std::max<internal::Int128>(0, budget.Remaining(one.at_us)));
    answer.reset_after_us = ResetAfterUs(one);
    answer.held = static_cast<std::int64_t>(budget.holds().UnitsLiveAt(one.at_us));
    return answer;
  }

  // retry_after is 0 for a limit that allows, so the largest of all is the largest of the denying;
  // delay is 0 for every limit of a denied group. `limit` and `held` go with `remaining`: the text
  // does not say which to name, and numbers of different limits would mean nothing together.
  static Answer Combine(const std::vector<Answer>& each, bool all_allowed) {
    Answer overall;
    overall.allowed = all_allowed;
    for (std::size_t i = 0; i < each.size(); ++i) {
      if (i == 0 || each[i].remaining < overall.remaining) {
        overall.limit = each[i].limit;
        overall.remaining = each[i].remaining;
        overall.held = each[i].held;
      }
      overall.retry_after_us = std::max(overall.retry_after_us, each[i].retry_after_us);
      overall.reset_after_us = std::max(overall.reset_after_us, each[i].reset_after_us);
      overall.delay_us = std::max(overall.delay_us, each[i].delay_us);
    }
    return overall;
  }

  std::map<Id, std::unique_ptr<internal::Budget>> budgets_;
};

}  // namespace sluice::model

#endif  // SLUICE_TESTS_CONFORMANCE_MODEL_H_
