// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>

#include "sluice/guarded_store.h"
#include "sluice/time.h"

namespace sluice::guard {

// Decides whether to ask a store, from its recent answers. A pure state machine: no clock, no lock,
// no I/O; times come from outside and never go back.
class Breaker {
 public:
  using State = GuardedStore::BreakerState;
  using Reason = GuardedStore::Reason;
  using Transition = GuardedStore::Transition;
  using Options = GuardedStore::BreakerOptions;

  // How a call ended.
  struct Result {
    bool failed = false;
    Micros took{0};
    bool missed = false;  // Failed only because its deadline passed.
  };

  // Permission to make one call. At most one Record follows: a call that is never answered does no
  // harm.
  struct Pass {
    std::uint64_t epoch;
    bool probe;
  };

  explicit Breaker(const Options& options);

  // None: the store must not be asked now. May begin to probe.
  std::optional<Pass> Admit(TimePoint now);

  void Record(const Pass& pass, const Result& result, TimePoint now);

  // The call is not made after all, so that another may be.
  void GiveBack(const Pass& pass);

  // Remembered as the reason of the next failure.
  void set_last_failure(const Error& error) { last_failure_ = error; }

  State state() const { return state_; }

  // Whether errors opened it, and would have without any slow answer or missed deadline.
  bool failing() const { return state_ != State::kClosed && failing_; }

  std::int64_t transitions() const { return transitions_; }
  const GuardedStore::TransitionCounts& transitions_by_reason() const { return by_reason_; }
  const std::optional<Error>& last_failure() const { return last_failure_; }
  const std::optional<Transition>& last_transition() const { return last_transition_; }

 private:
  static constexpr std::size_t kSlices = 10;

  struct Counts {
    std::int64_t calls = 0;
    std::int64_t failures = 0;
    std::int64_t slow = 0;
    std::int64_t missed = 0;  // Of the failures.
  };

  Counts& SliceAt(TimePoint now);
  Counts Sum() const;
  void OpenIfDue(TimePoint now);
  void Open(TimePoint now, Reason reason, const Counts& counts);
  void Enter(State to, Reason reason, const Counts& counts, Micros open_for);

  const Options options_;
  std::mt19937_64 random_;

  State state_ = State::kClosed;
  std::uint64_t epoch_ = 0;  // Passes from before the last transition no longer count.
  std::int64_t transitions_ = 0;
  GuardedStore::TransitionCounts by_reason_{};
  std::optional<Transition> last_transition_;
  std::optional<Error> last_failure_;

  // Closed: calls of the last window, in slices of time. `newest_slice_` is the number of the
  // latest one since the epoch of the clock.
  std::array<Counts, kSlices> slices_;
  std::int64_t newest_slice_ = 0;

  // Open. `open_time_` excludes jitter; zero while all is well.
  TimePoint open_until_;
  Micros open_time_{0};
  TimePoint closed_at_;
  bool failing_ = false;

  // Half-open.
  std::int64_t probes_out_ = 0;
  std::int64_t probes_good_ = 0;
  TimePoint last_probe_;
};

}  // namespace sluice::guard
