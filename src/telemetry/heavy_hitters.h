// SPDX-License-Identifier: Apache-2.0
// Which keys are asked for most, and which are denied most, in bounded memory.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/thread_slot.h"

namespace sluice::telemetry {

// Space-Saving (Metwally, Agrawal, El Abbadi, 2005), set-associative: a key's hash chooses one of
// kSets sets, and each set is a Space-Saving summary of kWays counters over the keys that fall into
// it. A key takes part if it is counted there, or takes over the counter with the smallest count,
// whose count becomes the newcomer's error. Counts are therefore never too low, and too high by at
// most `error`. A key is certainly found if its share is above 1/kWays of its set's traffic, that
// is about 1/(kSets * kWays) of all.
//
// Each thread counts in a summary of its own; Top() merges them. A request that comes in the
// nanoseconds in which Top() copies a set of its thread's summary is not counted rather than made
// to wait. Threads without a slot of their own share a summary, by the same rule. All counts are
// halved once per `half_life`, so that the top is that of the last minutes. (A halved count is
// rounded down: from then on bounds hold but for one.)
class HeavyHitters {
 public:
  static constexpr std::size_t kSets = 128;
  static constexpr std::size_t kWays = 8;
  static constexpr std::size_t kKeyBytesShown = 96;  // Longer keys are told apart, but shown cut.
  static constexpr std::size_t kTopMax = 100;

  // Of a clock that nobody sets, read by whoever calls: a request's time is known before it is
  // counted, and to read a clock once more would cost as much as the rest.
  using Time = std::chrono::steady_clock::time_point;

  enum class Kind : std::uint8_t { kBusy, kDenied };

  struct Entry {
    std::string key;          // At most kKeyBytesShown bytes, any bytes.
    bool cut = false;         // Whether that is only its beginning.
    std::uint64_t count = 0;  // At most so many.
    std::uint64_t error = 0;  // At least count - error.
  };

  explicit HeavyHitters(std::chrono::seconds half_life = std::chrono::minutes{1});
  ~HeavyHitters();
  HeavyHitters(const HeavyHitters&) = delete;
  HeavyHitters& operator=(const HeavyHitters&) = delete;

  // Counts one request of this key. Tens of nanoseconds; allocates only on a thread's first call.
  void Record(std::string_view key, bool allowed, Time now);

  // The largest counts first; at most kTopMax.
  std::vector<Entry> Top(Kind kind, std::size_t n, Time now) const;

 private:
  class Summary;

  Summary& OfThisThread(Time now);

  // Constant after construction.
  const std::chrono::seconds half_life_;
  std::array<std::uint64_t, 2> seed_;  // Unknown to clients, who could otherwise crowd a set.

  std::array<std::atomic<Summary*>, kSlots> summaries_ = {};
};

}  // namespace sluice::telemetry
