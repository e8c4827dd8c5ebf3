// SPDX-License-Identifier: Apache-2.0
#include "store/guard/last_seen.h"

#include <algorithm>

#include "core/seen.h"

namespace sluice::guard {

LastSeen::LastSeen(std::size_t entries)
    : sets_((entries + kWays - 1) / kWays), entries_(sets_ * kWays) {}

// The entry of this state, if there is one.
LastSeen::Entry* LastSeen::Get(const Hash128& state) {
  if (sets_ == 0) return nullptr;
  for (Entry& entry : Ways(state)) {
    if (entry.at_us != 0 && entry.state == state) return &entry;
  }
  return nullptr;
}

void LastSeen::Note(const Hash128& state, const Limit& limit, std::int64_t remaining,
                    const SeenState& seen, TimePoint asked) {
  // With more left, a full share is not much too generous; and few budgets have less left.
  if (sets_ == 0 || seen.now_us() < 0 || remaining > limit.amount() / 2) return;
  const std::int64_t asked_us = asked.time_since_epoch().count();
  Entry* entry = Get(state);
  if (entry && entry->at_us > asked_us) return;
  if (!entry) entry = &*std::ranges::min_element(Ways(state), {}, &Entry::at_us);
  *entry = {.state = state, .limit = limit.fingerprint(), .at_us = asked_us, .seen = seen};
}

std::optional<LastSeen::Left> LastSeen::Find(const Hash128& state, const Limit& limit,
                                             TimePoint now) {
  const Entry* const known = Get(state);
  const std::int64_t now_us = now.time_since_epoch().count();
  if (!known || known->limit != limit.fingerprint()) return std::nullopt;
  if (now_us < known->at_us || now_us - known->at_us >= kSpanMax.count()) {
    return std::nullopt;
  }
  // An upper bound: the store decided after it was asked. So nothing counts as used for too long.
  const std::int64_t then_us = known->seen.now_us() + now_us - known->at_us;
  if (then_us > kTimeMax.time_since_epoch().count()) return std::nullopt;
  const TimePoint then{Micros{then_us}};
  if (core::IsSeenComplete(limit)) {
    return Left{core::Decide(limit, known->seen, then, 0).remaining, Micros{0}};
  }
  using core::WindowLog;
  const auto log = WindowLog::At(limit, core::StateOf<WindowLog>(known->seen), then);
  return Left{std::max<std::int64_t>(0, limit.amount() - log.used),
              Micros{WindowLog::MomentUs(log, then) - log.newest}};
}

void LastSeen::Forget(const Hash128& state) {
  if (Entry* const entry = Get(state)) *entry = {};
}

void LastSeen::Clear() { std::ranges::fill(entries_, Entry{}); }

}  // namespace sluice::guard
