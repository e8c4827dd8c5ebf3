// SPDX-License-Identifier: Apache-2.0
// What a store reports about a state besides the decision: the state of its kernel. For a log, that
// is the units in the window and the times of the newest and the oldest of them; all zero if there
// are none.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/kernel.h"
#include "sluice/store.h"

namespace sluice::core {

// The only type that may look inside.
struct SeenNumbers {
  template <typename State>
  static SeenState Put(const State& state, TimePoint now) {
    SeenState seen;
    seen.now_us_ = now.time_since_epoch().count();
    const auto numbers = ToNumbers(state);
    std::copy_n(numbers.begin(), std::min(numbers.size(), seen.numbers_.size()),
                seen.numbers_.begin());
    return seen;
  }

  template <typename State>
  static State Get(const SeenState& seen) {
    NumbersOf<State> numbers{};
    std::copy_n(seen.numbers_.begin(), std::min(numbers.size(), seen.numbers_.size()),
                numbers.begin());
    return FromNumbers<State>(numbers);
  }
};

// The state as it is at `now`; null for an untouched budget.
template <typename Kernel>
SeenState See(const Limit& limit, const typename Kernel::State* state, TimePoint now) {
  return SeenNumbers::Put(Kernel::Decide(limit, state, now, 0).next, now);
}

template <typename Kernel>
typename Kernel::State StateOf(const SeenState& seen) {
  return SeenNumbers::Get<typename Kernel::State>(seen);
}

// Whether a SeenState holds all that later decisions need. For a log, it does not.
inline bool IsSeenComplete(const Limit& limit) {
  return VisitKernel(limit, [](auto kernel) { return kernel.kSeenComplete; });
}

// The decision on a seen state at a later `now` of the same clock, if nobody has taken from it
// since. Requires IsSeenComplete.
inline Decision Decide(const Limit& limit, const SeenState& seen, TimePoint now,
                       std::int64_t cost) {
  return VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    const auto state = StateOf<Kernel>(seen);
    return Kernel::Decide(limit, &state, now, cost).decision;
  });
}

// What a request of this cost, which the limit can grant, would get from a state that was only
// peeked at. `look` is the decision of cost 0 on it. Only whether and when it would pass can differ
// from `look`, since nothing is taken. The wait may be longer than necessary if the store did not
// report its state, if several units would have to leave a log, or if units would have to be
// released.
inline Decision Foresee(const Limit& limit, const Decision& look, const SeenState& seen,
                        std::int64_t cost) {
  Decision foreseen = look;
  foreseen.allowed = cost <= look.remaining;
  const bool is_known = seen.now_us() >= 0;
  const TimePoint now{Micros{seen.now_us()}};
  if (IsSeenComplete(limit) && is_known) {
    const Decision exact = Decide(limit, seen, now, cost);
    foreseen.retry_after = exact.retry_after;
    foreseen.delay = exact.delay;
  } else if (!foreseen.allowed) {
    const auto log = StateOf<WindowLog>(seen);
    const bool oldest_is_enough = is_known && KernelOf(limit) == KernelKind::kWindowLog &&
                                  log.used + cost - limit.amount() == 1;
    const Micros oldest_leaves = limit.span() + Micros{log.oldest - WindowLog::MomentUs(log, now)};
    foreseen.retry_after = oldest_is_enough ? oldest_leaves : look.reset_after;
  }
  return foreseen;
}

// Whole units used in a seen state, perhaps more than the limit grants.
inline std::int64_t UsedUnits(const Limit& limit, const SeenState& seen) {
  return VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    return Kernel::UsedUnits(limit, StateOf<Kernel>(seen), TimePoint{Micros{seen.now_us()}});
  });
}

// WindowLog::State::leaves of `denial`, the decision that left the log as it was seen.
inline std::int64_t LeavesOf(const Limit& limit, const SeenState& seen, const Decision& denial) {
  const TimePoint now{Micros{seen.now_us()}};
  return WindowLog::MomentUs(StateOf<WindowLog>(seen), now) +
         (denial.retry_after - limit.span()).count();
}

}  // namespace sluice::core
