// SPDX-License-Identifier: Apache-2.0
#include "store/guard/breaker.h"

#include <algorithm>
#include <utility>

namespace sluice::guard {
namespace {

constexpr std::int64_t kCallsMax = 1'000'000;
constexpr Micros kTimeMaximum = std::chrono::hours(24);

Breaker::Options Clamped(Breaker::Options options) {
  const auto time = [](Micros& value, Micros least) {
    value = std::clamp(value, least, std::max(least, kTimeMaximum));
  };
  const auto count = [](std::int64_t& value) {
    value = std::clamp<std::int64_t>(value, 1, kCallsMax);
  };
  time(options.window, std::chrono::milliseconds(1));
  time(options.slow_after, Micros{1});
  time(options.open_min, std::chrono::milliseconds(1));
  time(options.open_max, options.open_min);
  time(options.settled_after, Micros{0});
  time(options.probe_deadline, std::chrono::milliseconds(1));
  count(options.minimum_calls);
  count(options.failure_percent);
  count(options.slow_percent);
  count(options.probes_max);
  count(options.probes_to_close);
  options.jitter_percent = std::clamp<std::int64_t>(options.jitter_percent, 0, 100);
  return options;
}

}  // namespace

Breaker::Breaker(const Options& options)
    : options_(Clamped(options)),
      random_(options.jitter_seed ? *options.jitter_seed : std::random_device{}()) {}

std::optional<Breaker::Pass> Breaker::Admit(TimePoint now) {
  if (state_ == State::kOpen && now >= open_until_) {
    Enter(State::kHalfOpen, Reason::kOpenTimeOver, {}, Micros{0});
    probes_out_ = 0;
    probes_good_ = 0;
  }
  if (state_ == State::kHalfOpen && probes_out_ >= options_.probes_max &&
      now >= last_probe_ + options_.probe_deadline) {
    // None of them will be answered. Without this, nothing would ever be admitted again.
    Open(now, Reason::kProbeFailed, {});
  }
  switch (state_) {
    case State::kClosed:
      return Pass{.epoch = epoch_, .probe = false};
    case State::kOpen:
      return std::nullopt;
    case State::kHalfOpen:
      if (probes_out_ >= options_.probes_max) return std::nullopt;
      ++probes_out_;
      last_probe_ = now;
      return Pass{.epoch = epoch_, .probe = true};
  }
  return std::nullopt;
}

void Breaker::Record(const Pass& pass, const Result& result, TimePoint now) {
  if (pass.epoch != epoch_) return;
  // A slow failure is a failure; it does not count twice.
  const bool slow = !result.failed && result.took >= options_.slow_after;
  if (!pass.probe) {
    Counts& slice = SliceAt(now);
    ++slice.calls;
    slice.failures += result.failed ? 1 : 0;
    slice.slow += slow ? 1 : 0;
    slice.missed += result.failed && result.missed ? 1 : 0;
    if (result.failed || slow) OpenIfDue(now);
    return;
  }
  --probes_out_;
  // A store that is only slow would close the breaker and open it again at once, unless slowness is
  // ignored.
  if (result.failed || (slow && options_.slow_percent <= 100)) {
    failing_ = result.failed && !result.missed;
    return Open(now, Reason::kProbeFailed, {});
  }
  if (++probes_good_ < options_.probes_to_close) return;
  Enter(State::kClosed, Reason::kProbesSucceeded, {}, Micros{0});
  closed_at_ = now;
  slices_ = {};
}

void Breaker::GiveBack(const Pass& pass) {
  if (pass.probe && pass.epoch == epoch_) --probes_out_;
}

// The slice of this moment, after emptying those that have left the window.
Breaker::Counts& Breaker::SliceAt(TimePoint now) {
  const Micros length = options_.window / std::int64_t{kSlices};
  const std::int64_t number = now.time_since_epoch() / length;
  const std::int64_t passed = std::min<std::int64_t>(number - newest_slice_, kSlices);
  for (std::int64_t i = 0; i < passed; ++i) {
    slices_[static_cast<std::size_t>(number - i) % kSlices] = {};
  }
  newest_slice_ = std::max(newest_slice_, number);
  return slices_[static_cast<std::size_t>(newest_slice_) % kSlices];
}

Breaker::Counts Breaker::Sum() const {
  Counts sum;
  for (const Counts& slice : slices_) {
    sum.calls += slice.calls;
    sum.failures += slice.failures;
    sum.slow += slice.slow;
    sum.missed += slice.missed;
  }
  return sum;
}

void Breaker::OpenIfDue(TimePoint now) {
  const Counts sum = Sum();
  if (sum.calls < options_.minimum_calls) return;
  failing_ = (sum.failures - sum.missed) * 100 >= options_.failure_percent * sum.calls;
  if (sum.failures * 100 >= options_.failure_percent * sum.calls) {
    Open(now, Reason::kFailures, sum);
  } else if ((sum.failures + sum.slow) * 100 >= options_.slow_percent * sum.calls) {
    Open(now, Reason::kSlowCalls, sum);
  }
}

void Breaker::Open(TimePoint now, Reason reason, const Counts& counts) {
  const bool again = state_ == State::kHalfOpen ||
                     (open_time_ > Micros{0} && now < closed_at_ + options_.settled_after);
  open_time_ = again ? std::min(2 * open_time_, options_.open_max) : options_.open_min;
  const std::int64_t jitter =
      std::uniform_int_distribution<std::int64_t>(0, options_.jitter_percent)(random_);
  const Micros open_for = open_time_ + open_time_ * jitter / 100;
  open_until_ = now + open_for;
  Enter(State::kOpen, reason, counts, open_for);
}

void Breaker::Enter(State to, Reason reason, const Counts& counts, Micros open_for) {
  last_transition_ = Transition{.from = state_,
                                .to = to,
                                .reason = reason,
                                .number = ++transitions_,
                                .calls = counts.calls,
                                .failures = counts.failures,
                                .slow = counts.slow,
                                .open_for = open_for,
                                .last_failure = to == State::kOpen ? last_failure_ : std::nullopt};
  ++by_reason_[static_cast<std::size_t>(reason)];
  state_ = to;
  ++epoch_;
}

}  // namespace sluice::guard

namespace sluice {

std::string_view ToString(GuardedStore::BreakerState state) {
  switch (state) {
    case GuardedStore::BreakerState::kClosed:
      return "closed";
    case GuardedStore::BreakerState::kOpen:
      return "open";
    case GuardedStore::BreakerState::kHalfOpen:
      return "half_open";
  }
  std::unreachable();
}

std::string_view ToString(GuardedStore::Reason reason) {
  switch (reason) {
    case GuardedStore::Reason::kFailures:
      return "failures";
    case GuardedStore::Reason::kSlowCalls:
      return "slow_calls";
    case GuardedStore::Reason::kOpenTimeOver:
      return "open_time_over";
    case GuardedStore::Reason::kProbeFailed:
      return "probe_failed";
    case GuardedStore::Reason::kProbesSucceeded:
      return "probes_succeeded";
  }
  std::unreachable();
}

}  // namespace sluice
