// SPDX-License-Identifier: Apache-2.0
#include "core/window_log.h"

#include <algorithm>

namespace sluice::core {

void Log::Forget(std::int64_t until_us) {
  const auto live = std::ranges::upper_bound(entries(), until_us, {}, &Entry::time);
  const auto forgotten = static_cast<std::size_t>(live - entries().begin());
  if (forgotten == 0) return;
  total_before_ = entries()[forgotten - 1].total;
  first_ += forgotten;
  // Compacting when half is dead costs each entry one move on average.
  if (first_ * 2 >= entries_.size()) {
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
    if (entries_.capacity() > 4 * entries_.size() + 4) entries_.shrink_to_fit();
  }
}

bool Log::HasRoom(Micros window, TimePoint now) const {
  if (entries_.size() < entries_.capacity()) return true;
  if (empty()) return first_ > 0;
  const std::int64_t time = now.time_since_epoch().count();
  if (time <= entries_.back().time) return true;  // It merges with the newest.
  const auto live = std::ranges::upper_bound(entries_, time - window.count(), {}, &Entry::time);
  return 2 * static_cast<std::size_t>(live - entries_.begin()) >= entries_.size();  // See Forget.
}

void Log::Add(Micros window, TimePoint now, std::int64_t units) {
  std::int64_t time = now.time_since_epoch().count();
  if (!empty()) time = std::max(time, entries_.back().time);
  Forget(time - window.count());
  const std::uint64_t total = empty() ? total_before_ : entries_.back().total;
  if (!empty() && entries_.back().time == time) {
    entries_.back().total += static_cast<std::uint64_t>(units);
  } else {
    entries_.push_back({.time = time, .total = total + static_cast<std::uint64_t>(units)});
  }
}

void Log::GiveBack(Micros window, TimePoint now, std::int64_t units) {
  if (empty() || units == 0) return;
  const std::int64_t time = std::max(now.time_since_epoch().count(), entries_.back().time);
  if (entries_.back().time <= time - window.count()) return;
  Forget(time - window.count());
  const auto used = static_cast<std::int64_t>(entries_.back().total - total_before_);
  const auto kept = static_cast<std::uint64_t>(used - std::min(units, used));
  // The entry with the last unit that stays.
  const auto last = std::ranges::lower_bound(
      entries_.begin() + static_cast<std::ptrdiff_t>(first_), entries_.end(), kept, {},
      [&](const Entry& entry) { return entry.total - total_before_; });
  entries_.erase(kept == 0 ? last : last + 1, entries_.end());
  if (kept > 0) entries_.back().total = total_before_ + kept;
  if (entries_.capacity() > 4 * entries_.size() + 4) entries_.shrink_to_fit();
}

void Log::Untake(TimePoint taken, std::int64_t units) {
  const auto first = entries_.begin() + static_cast<std::ptrdiff_t>(first_);
  const std::int64_t time = taken.time_since_epoch().count();
  const auto found = std::ranges::lower_bound(first, entries_.end(), time, {}, &Entry::time);
  if (found == entries_.end() || found->time != time) return;
  const std::uint64_t before = found == first ? total_before_ : std::prev(found)->total;
  const std::uint64_t removed = std::min(static_cast<std::uint64_t>(units), found->total - before);
  for (Entry& entry : std::span(found, entries_.end())) entry.total -= removed;
  if (found->total == before) entries_.erase(found);
}

void Log::MoveNewest(TimePoint now) {
  if (empty()) return;
  entries_.back().time = std::max(entries_.back().time, now.time_since_epoch().count());
}

WindowLog::State WindowLog::Look(const Limit& limit, const Log& log, TimePoint now,
                                 std::int64_t cost) {
  State state{};
  if (log.empty()) return state;
  const auto entries = log.entries();
  state.newest = entries.back().time;
  const auto first = std::ranges::upper_bound(entries, MomentUs(state, now) - limit.span().count(),
                                              {}, &Log::Entry::time);
  const std::uint64_t total_before =
      first == entries.begin() ? log.total_before() : std::prev(first)->total;
  state.used = static_cast<std::int64_t>(entries.back().total - total_before);
  if (first != entries.end()) state.oldest = first->time;

  const std::int64_t must_leave = state.used - (limit.amount() - cost);
  if (must_leave > 0 && state.used > 0) {
    state.leaves = std::ranges::lower_bound(
                       first, entries.end(), static_cast<std::uint64_t>(must_leave), {},
                       [&](const Log::Entry& entry) { return entry.total - total_before; })
                       ->time;
  }
  return state;
}

Decision WindowLog::DecisionOn(const Limit& limit, const State& state, TimePoint now,
                               std::int64_t cost) {
  // Room may be negative if the limit was lowered below what was used.
  const std::int64_t room = limit.amount() - state.used;
  Decision decision;
  decision.allowed = cost <= room || cost == 0;
  decision.limit = limit.amount();
  if (decision.allowed && cost > 0) {
    decision.remaining = room - cost;
    decision.reset_after = limit.span();
    return decision;
  }
  decision.remaining = std::max<std::int64_t>(0, room);
  const auto until_left = [&](std::int64_t time) {
    return Micros{time - MomentUs(state, now)} + limit.span();
  };
  if (state.used > 0) decision.reset_after = until_left(state.newest);
  if (!decision.allowed) decision.retry_after = until_left(state.leaves);
  return decision;
}

Step<WindowLog::State> WindowLog::Decide(const Limit& limit, const State* state, TimePoint now,
                                         std::int64_t cost) {
  const State known = state ? At(limit, *state, now) : State{};
  Step<State> step{.decision = DecisionOn(limit, known, now, cost),
                   .next = known.used > 0 ? known : State{}};
  if (step.decision.allowed && cost > 0) {
    step.next = {.used = known.used + cost,
                 .newest = MomentUs(known, now),
                 .oldest = known.used > 0 ? known.oldest : MomentUs(known, now),
                 .leaves = known.leaves};
  }
  return step;
}

}  // namespace sluice::core
