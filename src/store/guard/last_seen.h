// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sluice/store.h"
#include "store/hash.h"

namespace sluice::guard {

// What the store last reported about budgets that are at least half used up, in fixed memory. Local
// shares start from it when the store cannot keep up, so that an overload does not make budgets
// full again. Sets of four entries; a new entry replaces the oldest one, which is then no longer
// known.
class LastSeen {
 public:
  // What is left of a budget, if nobody has taken from it since.
  struct Left {
    std::int64_t units;
    Micros taken_ago;  // When the last used unit was taken, at the latest; else 0.
  };

  // Room for at least `entries`; 0: remembers nothing.
  explicit LastSeen(std::size_t entries);

  // The store was asked at `asked` and left the state as in `seen`, with `remaining` units.
  void Note(const Hash128& state, const Limit& limit, std::int64_t remaining, const SeenState& seen,
            TimePoint asked);

  // None: nothing is known.
  std::optional<Left> Find(const Hash128& state, const Limit& limit, TimePoint now);

  // The state may have more left than is known; Clear: any state may.
  void Forget(const Hash128& state);
  void Clear();

 private:
  static constexpr std::size_t kWays = 4;

  struct Entry {
    Hash128 state;
    std::uint64_t limit;  // Fingerprint.
    std::int64_t at_us;   // When the store was asked, by our clock; 0: an empty entry.
    SeenState seen;       // By the store's clock.
  };

  std::span<Entry> Ways(const Hash128& state) {
    return std::span(entries_).subspan(state.low % sets_ * kWays, kWays);
  }
  Entry* Get(const Hash128& state);

  const std::size_t sets_;
  std::vector<Entry> entries_;
};

}  // namespace sluice::guard
