// SPDX-License-Identifier: Apache-2.0
// The kernel of SLIDING_WINDOW: every admitted request is remembered and counts during [t, t + W).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <vector>

#include "core/arithmetic.h"
#include "sluice/limit.h"

namespace sluice::core {

// Admitted requests ordered by time, equal times merged: at most limit.amount() live entries. Each
// entry carries the running total of units, so that the sum over any range is one subtraction
// (modulo 2^64, which does no harm to sums below 2^53) and both searches are binary.
class Log {
 public:
  struct Entry {
    std::int64_t time;    // Microseconds since the epoch.
    std::uint64_t total;  // Units recorded up to and including this entry.
  };

  bool empty() const { return first_ == entries_.size(); }
  std::span<const Entry> entries() const { return std::span(entries_).subspan(first_); }
  std::uint64_t total_before() const { return total_before_; }
  std::size_t capacity() const { return entries_.capacity(); }

  // Whether Add needs no more memory than the log has; never true for one that has none.
  bool HasRoom(Micros window, TimePoint now) const;

  // Records `units` at `now`, or at the newest time if that is later, and forgets what has left the
  // window. Only an admitted request may do this: afterwards no moment before `now` is ever looked
  // at again, so that forgotten entries are never missed.
  void Add(Micros window, TimePoint now, std::int64_t units);

  // Removes up to `units`, the newest first, from what is in the window at `now`, or at the newest
  // time if that is later. If it removes any, it forgets what has left the window, as Add does.
  void GiveBack(Micros window, TimePoint now, std::int64_t units);

  // Removes up to `units` from what was recorded at `taken`, and the entry if nothing is left.
  void Untake(TimePoint taken, std::int64_t units);

  // Makes the newest request, if any, count from `now` on, so that what is added then needs no
  // entry of its own.
  void MoveNewest(TimePoint now);

 private:
  void Forget(std::int64_t until_us);

  std::vector<Entry> entries_;  // Those before first_ are forgotten and await compaction.
  std::size_t first_ = 0;
  std::uint64_t total_before_ = 0;  // Total of the newest forgotten entry.
};

// core/kernel.h describes the members that all kernels have. A log is changed in place, so State is
// only what a decision needs to know about it.
struct WindowLog {
  struct State {
    std::int64_t used;    // Units in the window.
    std::int64_t newest;  // Time of the newest entry, if there is any.
    std::int64_t oldest;  // Time of the oldest entry in the window, if there is any.
    // If the request does not fit: time of the last entry that must leave first.
    std::int64_t leaves;

    friend bool operator==(const State&, const State&) = default;
  };

  static constexpr char kScriptKind = 'l';
  static constexpr bool kSeenComplete = false;
  static constexpr std::int64_t kAmountMax = kExactMax;

  static std::expected<Arithmetic, std::string> Fit(std::int64_t, std::int64_t, Micros window) {
    return Arithmetic{.tick = kTicks.front(), .unit = window / kTicks.front(), .rate = 0};
  }

  // What a decision on `cost` at `now` needs to know.
  static State Look(const Limit& limit, const Log& log, TimePoint now, std::int64_t cost);

  // The moment of a decision, which is not before the newest entry.
  static std::int64_t MomentUs(const State& state, TimePoint now) {
    return std::max(now.time_since_epoch().count(), state.newest);
  }

  // The state at a later `now`. From when the oldest entry has left until the newest has, `used` is
  // too high.
  static State At(const Limit& limit, State state, TimePoint now) {
    if (state.newest + limit.span().count() <= now.time_since_epoch().count()) state.used = 0;
    return state;
  }

  // The decision on a state taken at this moment and for this cost.
  static Decision DecisionOn(const Limit& limit, const State& state, TimePoint now,
                             std::int64_t cost);

  // If `state` was not taken at `now` and for this cost, the decision is only as exact as At.
  static Step<State> Decide(const Limit& limit, const State* state, TimePoint now,
                            std::int64_t cost);

  static std::int64_t UsedUnits(const Limit& limit, const State& state, TimePoint now) {
    return At(limit, state, now).used;
  }

  static bool Recovered(const Limit& limit, const Log& log, TimePoint now) {
    return log.empty() ||
           log.entries().back().time + limit.span().count() <= now.time_since_epoch().count();
  }

  static std::int64_t RecoveryTicks(const Limit& limit) { return limit.unit(); }

  static std::int64_t NewestTick(const Limit&, const State& state) { return state.newest; }

  static State Start(const Limit&, TimePoint now, std::int64_t used) {
    const std::int64_t now_us = now.time_since_epoch().count();
    return {.used = used, .newest = now_us, .oldest = now_us, .leaves = 0};
  }

  // `newest` is -1 if there is no entry.
  static bool IsSound(const Limit& limit, const State& state, TimePoint now) {
    const std::int64_t moment_us = MomentUs(state, now);
    const bool entries = state.used == 0 || (InRange(state.oldest, state.newest) &&
                                             state.oldest > moment_us - limit.span().count());
    return entries && InRange(state.used, kExactMax) && state.newest >= -1 &&
           state.newest <= LastTick(limit) && InRange(state.leaves, moment_us);
  }

  static std::int64_t LeftAt(const Limit& limit, std::int64_t now_us) {
    return now_us + limit.span().count();
  }

  static State UsedUntil(const Limit& limit, std::int64_t units, std::int64_t until_us) {
    return Start(limit, std::max(TimePoint{}, TimePoint{Micros{until_us}} - limit.span()), units);
  }
};

}  // namespace sluice::core
