// SPDX-License-Identifier: Apache-2.0
#include "store/guard/last_seen.h"

#include <algorithm>
#include <mutex>

#include "core/seen.h"

namespace sluice::guard {

LastSeen::LastSeen(std::size_t entries)
    : sets_((entries + kWays - 1) / kWays),
      entries_(std::make_unique<Entry[]>(sets_ * kWays)),
      locks_(std::make_unique<Lock[]>(kLocks)) {}

void LastSeen::Note(const Hash128& state, const Limit& limit, std::int64_t remaining,
                    const SeenState& seen, TimePoint asked) {
  // Of a budget that is fuller, a whole share is not much too much; and few are emptier.
  if (sets_ == 0 || seen.now_us() < 0 || remaining > limit.amount() / 2) return;
  const std::size_t set = SetOf(state);
  const std::lock_guard lock(LockOf(set));
  const auto ways = Ways(set);
  auto entry = std::ranges::find(ways, state, &Entry::state);
  if (entry == ways.end()) entry = std::ranges::min_element(ways, {}, &Entry::at_us);
  const std::int64_t asked_us = asked.time_since_epoch().count();
  if (entry->state == state && entry->at_us > asked_us) return;
  *entry = {.state = state, .limit = limit.fingerprint(), .at_us = asked_us, .seen = seen};
}

std::optional<LastSeen::Entry> LastSeen::Get(const Hash128& state, const Limit& limit) const {
  if (sets_ == 0) return std::nullopt;
  const std::size_t set = SetOf(state);
  const std::lock_guard lock(LockOf(set));
  const auto ways = Ways(set);
  const auto entry = std::ranges::find(ways, state, &Entry::state);
  if (entry == ways.end() || entry->at_us == 0 || entry->limit != limit.fingerprint()) {
    return std::nullopt;
  }
  return *entry;
}

std::optional<LastSeen::Left> LastSeen::Find(const Hash128& state, const Limit& limit,
                                             TimePoint now) const {
  const auto known = Get(state, limit);
  const std::int64_t now_us = now.time_since_epoch().count();
  if (!known || now_us < known->at_us || now_us - known->at_us >= kSpanMax.count()) {
    return std::nullopt;
  }
  // At most: the store decided after it was asked. So nothing counts as used for too long.
  const std::int64_t then_us = known->seen.now_us() + now_us - known->at_us;
  if (then_us > kTimeMax.time_since_epoch().count()) return std::nullopt;
  const TimePoint then{Micros{then_us}};
  if (core::IsSeenWhole(limit)) {
    return Left{core::Decide(limit, known->seen, then, 0).remaining, Micros{0}};
  }
  using core::WindowLog;
  const auto log = WindowLog::At(limit, core::StateOf<WindowLog>(known->seen), then);
  return Left{std::max<std::int64_t>(0, limit.amount() - log.used),
              Micros{WindowLog::MomentUs(log, then) - log.newest}};
}

void LastSeen::Forget(const Hash128& state) {
  if (sets_ == 0) return;
  const std::size_t set = SetOf(state);
  const std::lock_guard lock(LockOf(set));
  const auto ways = Ways(set);
  const auto entry = std::ranges::find(ways, state, &Entry::state);
  if (entry != ways.end()) *entry = {};
}

void LastSeen::Clear() {
  for (std::size_t set = 0; set < sets_; ++set) {
    const std::lock_guard lock(LockOf(set));
    std::ranges::fill(Ways(set), Entry{});
  }
}

}  // namespace sluice::guard
