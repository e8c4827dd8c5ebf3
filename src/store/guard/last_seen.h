// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "sluice/store.h"
#include "store/hash.h"
#include "store/spin_lock.h"

namespace sluice::guard {

// What the store last told of budgets that are half used up and more, in fixed memory: local shares
// start from it when the store cannot keep up, so that an overload does not make them whole. Sets
// of four entries, of which the oldest makes room for a new one; what was pushed out is not known.
// Thread-safe.
class LastSeen {
 public:
  // What is left of a budget, if nobody has taken from it since.
  struct Left {
    std::int64_t units;
    Micros taken_ago;  // When the last of what is used was taken, at the latest; else 0.
  };

  // Room for at least `entries`; 0: remembers nothing.
  explicit LastSeen(std::size_t entries);

  // The store was asked at `asked` and left the state as it was seen, with `remaining` units.
  void Note(const Hash128& state, const Limit& limit, std::int64_t remaining, const SeenState& seen,
            TimePoint asked);

  // None: nothing is known.
  std::optional<Left> Find(const Hash128& state, const Limit& limit, TimePoint now) const;

  // The state may have more left than was known; or any state.
  void Forget(const Hash128& state);
  void Clear();

 private:
  static constexpr std::size_t kWays = 4;
  static constexpr std::size_t kLocks = 64;

  struct Entry {
    Hash128 state;
    std::uint64_t limit;  // Fingerprint.
    std::int64_t at_us;   // When the store was asked, by our clock; 0: an empty entry.
    SeenState seen;       // By the store's clock.
  };

  struct alignas(64) Lock {
    SpinLock lock;
  };

  std::size_t SetOf(const Hash128& state) const { return state.low % sets_; }
  SpinLock& LockOf(std::size_t set) const { return locks_[set % kLocks].lock; }
  std::span<Entry> Ways(std::size_t set) const { return {entries_.get() + set * kWays, kWays}; }
  std::optional<Entry> Get(const Hash128& state, const Limit& limit) const;

  // Constant after construction.
  const std::size_t sets_;
  const std::unique_ptr<Entry[]> entries_;  // Guarded by the lock of their set.
  const std::unique_ptr<Lock[]> locks_;
};

}  // namespace sluice::guard
