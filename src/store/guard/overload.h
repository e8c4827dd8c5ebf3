// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "sluice/guarded_store.h"
#include "sluice/time.h"

namespace sluice::guard {

// Why the store does not decide a request.
enum class Cause : std::uint8_t {
  kOutage,    // It fails, or does not answer at all.
  kOverload,  // It answers, but cannot keep up.
};

// Distinguishes a store that cannot keep up from one that is out of reach, by whether it still
// answers. A pure state machine: no clock, no lock, no I/O; times come from outside and never go
// back.
class Overload {
 public:
  using Change = GuardedStore::OverloadChange;

  struct Options {
    Micros silence{1'000'000};     // After waiting this long in vain, the store is out of reach.
    Micros calm_after{5'000'000};  // An overload ends after this long without a decision due to it.

    // An overload begins with this many decisions, each within `calm_after` of the one before: a
    // single late answer is not an overload.
    std::int64_t begins_with = 10;
  };

  // Late answers count like any other, so that many deadlines fit into a silence.
  static Options For(Micros deadline) {
    return {.silence = std::max<Micros>(std::chrono::seconds(1), 10 * deadline)};
  }

  explicit Overload(const Options& options) : options_(options) {}

  // A call goes to the store. One Answered or Failed follows, at any time.
  void Asked(TimePoint now);

  // The store has decided a request of the call.
  void Answered(TimePoint now);

  // The call brought only failures, which do not count as signs of life.
  void Failed(TimePoint now);

  // Why `requests` are decided without the store now. `failing`: the breaker is open because of
  // errors.
  Cause Judge(bool failing, std::int64_t requests, TimePoint now);

  // Ends an overload that has not shown for a while.
  void EndIfCalm(TimePoint now);

  bool active() const { return active_; }
  std::int64_t changes() const { return changes_; }
  std::int64_t overloads() const { return overloads_; }
  const std::optional<Change>& last_change() const { return last_change_; }

 private:
  Micros SilentFor(TimePoint now) const;

  const Options options_;

  // Time counts as silence only while calls are out: a store that nobody asks does not answer.
  std::int64_t out_ = 0;
  TimePoint waiting_from_;  // While calls are out.
  Micros waited_{0};        // In vain before that, since the last answer.

  bool active_ = false;
  TimePoint began_;
  TimePoint last_;              // The last decision because of it.
  std::int64_t decisions_ = 0;  // Because of it, since the last calm.
  std::int64_t changes_ = 0;
  std::int64_t overloads_ = 0;
  std::optional<Change> last_change_;
};

}  // namespace sluice::guard
