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

Decision Decide(const Limit& limit, const Log* log, TimePoint now, std::int64_t cost) {
  const std::int64_t window = limit.span().count();
  std::int64_t now_us = now.time_since_epoch().count();
  std::int64_t used = 0;
  std::span<const Log::Entry> live;
  std::uint64_t total_before = 0;
  if (log && !log->empty()) {
    const auto entries = log->entries();
    now_us = std::max(now_us, entries.back().time);
    const auto first = std::ranges::upper_bound(entries, now_us - window, {}, &Log::Entry::time);
    total_before = first == entries.begin() ? log->total_before() : std::prev(first)->total;
    live = {first, entries.end()};
    used = static_cast<std::int64_t>(entries.back().total - total_before);
  }

  // Room may be negative: the limit may have been lowered below what was used.
  const std::int64_t room = limit.amount() - used;
  Decision decision;
  decision.allowed = cost <= room || cost == 0;
  decision.limit = limit.amount();
  if (decision.allowed && cost > 0) {
    decision.remaining = room - cost;
    decision.reset_after = limit.span();
    return decision;
  }
  decision.remaining = std::max<std::int64_t>(0, room);
  if (!live.empty()) decision.reset_after = Micros{live.back().time + window - now_us};
  if (!decision.allowed) {
    const auto must_leave = static_cast<std::uint64_t>(cost - room);
    const auto last_to_leave = std::ranges::lower_bound(
        live, must_leave, {}, [&](const Log::Entry& entry) { return entry.total - total_before; });
    decision.retry_after = Micros{last_to_leave->time + window - now_us};
  }
  return decision;
}

}  // namespace sluice::core
