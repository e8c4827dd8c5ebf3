// SPDX-License-Identifier: Apache-2.0
// Which budgets get the most requests, and which are denied most and by what, in bounded memory.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/thread_slot.h"

namespace sluice::telemetry {

// A budget is a key and the name of the limit that counts it, as in Charge.
//
// Space-Saving (Metwally, Agrawal, El Abbadi, 2005), set-associative: a hash of both selects one of
// kSets sets, and each set is a Space-Saving summary of kWays counters over what falls into it. A
// budget that is not in its set takes over the counter with the smallest count, which becomes the
// newcomer's error. So counts are never too low, and too high by at most `error`. A budget is
// certain to be found if its share is above 1/kWays of its set's traffic, that is about 1/(kSets *
// kWays) of all.
//
// Each thread counts in its own summary; Top() merges them. A request that comes in the nanoseconds
// in which Top() copies a set of its thread's summary is not counted, so that it need not wait.
// Threads without their own slot share a summary, by the same rule. All counts are halved once per
// `half_life`, so that the top reflects the last minutes. (A halved count is rounded down: from
// then on the bounds are off by at most one.)
class HeavyHitters {
 public:
  static constexpr std::size_t kSets = 128;
  static constexpr std::size_t kWays = 8;
  static constexpr std::size_t kNameBytesShown = 200;  // Longer than the name of any rule's band.
  static constexpr std::size_t kTextBytesShown = 300;  // Of name and key together.
  static constexpr std::size_t kTopMax = 100;

  // From a clock that nobody sets, read by the caller: a request's time is known before it is
  // counted, and reading a clock once more would cost as much as the rest.
  using Time = std::chrono::steady_clock::time_point;

  enum class Kind : std::uint8_t {
    kBusy,          // Requested.
    kDenied,        // Denied by this limit.
    kShadowDenied,  // Would have been denied by it, but it is a shadow rule.
    kNear,          // Most of the budget was used.
  };
  static constexpr std::size_t kKinds = 4;

  // A set of kinds.
  class Kinds {
   public:
    constexpr Kinds() = default;
    constexpr Kinds(std::initializer_list<Kind> kinds) {
      for (const Kind kind : kinds) Add(kind);
    }
    constexpr void Add(Kind kind) { bits_ |= 1U << static_cast<unsigned>(kind); }
    constexpr bool Has(std::size_t kind) const { return (bits_ >> kind & 1U) != 0; }
    constexpr bool empty() const { return bits_ == 0; }

   private:
    unsigned bits_ = 0;
  };

  struct Entry {
    std::string name;         // At most kNameBytesShown bytes, any bytes.
    std::string key;          // As much as fits.
    bool cut = false;         // Whether the key is cut.
    std::uint64_t count = 0;  // An upper bound.
    std::uint64_t error = 0;  // The true count is at least count - error.
  };

  explicit HeavyHitters(std::chrono::seconds half_life = std::chrono::minutes{1});
  ~HeavyHitters();
  HeavyHitters(const HeavyHitters&) = delete;
  HeavyHitters& operator=(const HeavyHitters&) = delete;

  // Counts one request of this budget under each of the kinds. Takes tens of nanoseconds; allocates
  // only on a thread's first call.
  void Record(Kinds kinds, std::string_view name, std::string_view key, Time now);

  // The largest counts first, of names that `wants` accepts; at most kTopMax. Null accepts all.
  using Wants = std::function<bool(std::string_view name)>;
  std::vector<Entry> Top(Kind kind, std::size_t n, Time now, const Wants& wants = nullptr) const;

 private:
  class Summary;

  Summary& OfThisThread(Time now);

  // Constant after construction.
  const std::chrono::seconds half_life_;
  std::array<std::uint64_t, 2> seed_;  // Unknown to clients, who could otherwise crowd a set.

  std::array<std::atomic<Summary*>, kSlots> summaries_ = {};
};

}  // namespace sluice::telemetry
