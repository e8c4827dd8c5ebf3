// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "sluice/store.h"
#include "store/hash.h"
#include "store/spin_lock.h"

namespace sluice::guard {

// Remembers what a denial says about the states it touched, and answers its repeats.
//
// What is kept is not the answer but what it tells of each state: of a bucket the range in which
// its level lies, of a fixed window its count. The kernel then decides on that as the store would;
// where the ends of the range disagree in any number, the store is asked. The other sliding
// algorithms do not show enough of themselves for that: of those the answer for each cost is kept,
// in which the waits are exact and `remaining` is that of the first denial, which is exact for a
// cost of 1 and otherwise a lower bound.
//
// A request of several charges is answered if it is denied for sure and something is known of all
// of its states; the store's denial of such a request teaches exactly that, and what is granted
// later keeps it up to date.
//
// Thread-safe. Memory is fixed when it is made: sets of four entries, of which the one that would
// end first makes room for a new one.
class DenyCache {
 public:
  static constexpr std::size_t kChargesMax = 8;  // Requests of more charges are not answered.

  // Where a state is remembered, as of a moment: what was learned from a question asked before the
  // place was last invalidated is worth nothing.
  struct Place {
    Hash128 hash;
    std::uint32_t version;
  };

  struct Stats {
    std::int64_t hits = 0;
    std::int64_t entries = 0;
    std::int64_t bytes = 0;
  };

  // Room for at least `entries`; 0: remembers nothing.
  explicit DenyCache(std::size_t entries);

  bool enabled() const { return sets_ > 0; }

  // Whether the request was answered: denied.
  bool Answer(Request& request, TimePoint now);

  // To be taken before the store is asked.
  Place PlaceOf(const Charge& charge) const;

  // What the store said to a request asked at `asked`, `each` being the numbers of its charges.
  void Learn(const Request& request, std::span<const Decision> each, std::span<const Place> places,
             TimePoint asked);

  // The state may have more left than was known.
  void Invalidate(const Hash128& hash);

  Hash128 HashOf(const Charge& charge) const { return StateHash(seed_, charge); }

  Stats GetStats() const;

 private:
  static constexpr std::size_t kWays = 4;
  static constexpr std::size_t kShards = 64;

  // One cache line. The meaning of `a`, `b` and `c` depends on the algorithm; see deny_cache.cc.
  struct alignas(64) Entry {
    Hash128 hash;
    std::uint64_t limit;    // Fingerprint.
    std::int64_t at_us;     // When the store was asked.
    std::int64_t until_us;  // From when on it is of no use; 0: an empty entry.
    std::int64_t a;
    std::int64_t b;
    std::int64_t c;
  };

  struct alignas(64) Shard {
    mutable SpinLock lock;
    std::uint32_t version = 0;
    std::int64_t entries = 0;
  };

  static std::optional<Entry> Knowledge(const Charge& charge, const Decision& decision,
                                        Micros useful_for);
  static std::optional<Decision> Decide(const Entry& entry, const Limit& limit, std::int64_t cost,
                                        std::int64_t now_us);

  std::size_t SetOf(const Hash128& hash) const { return hash.low % sets_; }
  Shard& ShardOf(const Hash128& hash) const { return shards_[SetOf(hash) % kShards]; }
  std::span<Entry> Ways(const Hash128& hash) const {
    return {entries_.get() + SetOf(hash) * kWays, kWays};
  }

  std::optional<Decision> Look(const Hash128& hash, const Charge& charge, std::int64_t now_us);
  bool AnswerOne(Request& request, std::int64_t now_us);
  bool AnswerGroup(Request& request, std::int64_t now_us);
  void Insert(const Place& place, Entry entry, Algorithm algorithm);
  void Refresh(const Place& place, const Charge& charge, const Decision& decision, TimePoint asked);
  void Erase(Shard& shard, const Hash128& hash);

  // Constant after construction.
  const std::size_t sets_;
  const Seed seed_;
  const std::unique_ptr<Entry[]> entries_;  // Guarded by the shard of their set.
  const std::unique_ptr<Shard[]> shards_;

  std::atomic<std::int64_t> hits_ = 0;
};

}  // namespace sluice::guard
