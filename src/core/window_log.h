// SPDX-License-Identifier: Apache-2.0
// The kernel of SLIDING_WINDOW: every admitted request is remembered and counts during [t, t + W).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/decision.h"
#include "sluice/limit.h"

namespace sluice::core {

// Admitted requests in the order of their times, equal times merged: at most limit.amount() live
// entries. Each entry carries the running total of units, so that the sum over any stretch is one
// subtraction (modulo 2^64, which a sum below 2^53 survives) and both searches are binary.
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

  // Whether Add needs no more memory than the log has; never so for one that has none.
  bool HasRoom(Micros window, TimePoint now) const;

  // Records `units` at `now`, or at the newest time if that is later, and forgets what the window
  // has left. Only an admitted request may do this: after it no moment before `now` is ever looked
  // at again, so that what was forgotten is never missed.
  void Add(Micros window, TimePoint now, std::int64_t units);

  // Takes up to `units` out again, the newest first, of what is in the window at `now`, or at the
  // newest time if that is later. If there are any, forgets what the window has left, as Add does.
  void GiveBack(Micros window, TimePoint now, std::int64_t units);

  // Has the newest request, if any, count from `now` on: what is added then needs no entry of its
  // own.
  void MoveNewest(TimePoint now);

 private:
  void Forget(std::int64_t until_us);

  std::vector<Entry> entries_;  // Those before first_ are forgotten and await compaction.
  std::size_t first_ = 0;
  std::uint64_t total_before_ = 0;  // Total of the newest forgotten entry.
};

// What a decision needs to know of a log.
struct LogFacts {
  std::int64_t now_us;  // Not before the newest entry.
  std::int64_t used;    // Units in the window.
  std::int64_t newest;  // Time of the newest entry, if any is in the window.
  std::int64_t oldest;  // Likewise, of the oldest that is in the window.
  std::int64_t
      leaves;  // If the request does not fit: time of the last entry that must leave first.
};

// `log` is null for an untouched budget.
LogFacts Look(const Limit& limit, const Log* log, TimePoint now, std::int64_t cost);

Decision Decide(const Limit& limit, const LogFacts& facts, std::int64_t cost);

// `log` is null for an untouched budget; 0 <= cost <= limit.amount(). An admitted request of
// positive cost is then recorded with Log::Add.
inline Decision Decide(const Limit& limit, const Log* log, TimePoint now, std::int64_t cost) {
  return Decide(limit, Look(limit, log, now, cost), cost);
}

// Whether the state equals an untouched budget by now, so that it may be dropped.
inline bool Recovered(const Limit& limit, const Log& log, TimePoint now) {
  return log.empty() ||
         log.entries().back().time + limit.span().count() <= now.time_since_epoch().count();
}

}  // namespace sluice::core
