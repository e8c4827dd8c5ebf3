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
  kOutage,    // It fails, or says nothing at all.
  kOverload,  // It answers, but cannot keep up.
};

// Tells a store that cannot keep up from one that is not there, by whether it is still heard of. A
// pure state machine: no clock, no lock, no I/O; times come from outside and never go back.
class Overload {
 public:
  using Change = GuardedStore::OverloadChange;

  struct Options {
    Micros silence{1'000'000};     // Waited for in vain for so long, the store is not there.
    Micros calm_after{5'000'000};  // Without a decision because of it, an overload is over.

    // So many decisions, none of them longer than that after the last, are one to speak of: a
    // single late answer is none.
    std::int64_t begins_with = 10;
  };

  // Late answers are as good as others, so that many deadlines fit into a silence.
  static Options For(Micros deadline) {
    return {.silence = std::max<Micros>(std::chrono::seconds(1), 10 * deadline)};
  }

  explicit Overload(const Options& options) : options_(options) {}

  // A call goes to the store. One Answered or Failed follows, whenever that is.
  void Asked(TimePoint now);

  // The store has decided a request of it.
  void Answered(TimePoint now);

  // It came to nothing but failures: nothing was heard of the store that would count.
  void Failed(TimePoint now);

  // Why `requests` are decided without the store now. `failing`: errors are what the breaker is
  // open for.
  Cause Judge(bool failing, std::int64_t requests, TimePoint now);

  // Ends an overload of which nothing has been seen for a while.
  void EndIfCalm(TimePoint now);

  bool active() const { return active_; }
  std::int64_t changes() const { return changes_; }
  std::int64_t overloads() const { return overloads_; }
  const std::optional<Change>& last_change() const { return last_change_; }

 private:
  Micros SilentFor(TimePoint now) const;

  const Options options_;

  // Time counts as silence only while calls are out: of a store that nobody asks, nothing is heard.
  std::int64_t out_ = 0;
  TimePoint waiting_from_;  // While calls are out.
  Micros waited_{0};        // In vain before that, since the last answer.

  bool active_ = false;
  TimePoint began_;
  TimePoint last_;              // Decision because of it.
  std::int64_t decisions_ = 0;  // Because of it, since the last calm.
  std::int64_t changes_ = 0;
  std::int64_t overloads_ = 0;
  std::optional<Change> last_change_;
};

}  // namespace sluice::guard
