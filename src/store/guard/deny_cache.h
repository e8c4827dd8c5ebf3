// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
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
// cost of 1 and otherwise a lower bound. When the store cannot be asked, it also stands for greater
// costs, which are denied for longer.
//
// A request of several charges is answered if it is denied for sure and something is known of all
// of its states; the store's denial of such a request teaches exactly that, and what is granted
// later keeps it up to date.
//
// What is remembered is believed for a limited time, in case something made a budget larger that
// nobody told of. After that it is still better than nothing, for when the store cannot be asked.
//
// Thread-safe. Memory is fixed when it is made: sets of four entries, of which the one that would
// end first makes room for a new one.
class DenyCache {
 public:
  // Where a state is remembered, as of a moment: what was learned from a question asked before the
  // place was last invalidated is worth nothing.
  struct Place {
    Hash128 hash;
    std::uint32_t version;
  };

  struct Stats {
    std::int64_t entries = 0;
    std::int64_t bytes = 0;
  };

  // Room for at least `entries`; 0: remembers nothing. `trust` is how long it is believed.
  DenyCache(std::size_t entries, Micros trust);

  bool enabled() const { return sets_ > 0; }

  enum class Age { kTrusted, kAny };

  // Whether the request was answered: denied. kAny: even if the store has not confirmed it of late.
  bool Answer(Request& request, TimePoint now, Age age = Age::kTrusted);

  // To be taken before the store is asked.
  Place PlaceOf(const Charge& charge) const;

  // What the store said to a request asked at `asked`, `each` being the numbers of its charges.
  void Learn(const Request& request, std::span<const Decision> each, std::span<const Place> places,
             TimePoint asked);

  // The state may have more left than was known.
  void Invalidate(const Hash128& hash);

  // Any state may.
  void Clear();

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
                                        std::int64_t now_us, Age age);

  std::size_t SetOf(const Hash128& hash) const { return hash.low % sets_; }
  Shard& ShardOf(const Hash128& hash) const { return shards_[SetOf(hash) % kShards]; }
  std::span<Entry> Ways(const Hash128& hash) const {
    return {entries_.get() + SetOf(hash) * kWays, kWays};
  }

  // The moments between which a question must have been asked for its answer to be of use now.
  struct Times {
    std::int64_t since_us;
    std::int64_t now_us;
    Age age;
  };

  std::optional<Decision> Look(const Hash128& hash, const Charge& charge, const Times& times);
  bool AnswerOne(Request& request, const Times& times);
  bool AnswerGroup(Request& request, const Times& times);
  void Insert(const Place& place, Entry entry, Algorithm algorithm);
  void Refresh(const Place& place, const Charge& charge, const Decision& decision, TimePoint asked);
  static void Forget(Shard& shard, Entry& entry);

  // Constant after construction.
  const std::size_t sets_;
  const Micros trust_;
  const Seed seed_;
  const std::unique_ptr<Entry[]> entries_;  // Guarded by the shard of their set.
  const std::unique_ptr<Shard[]> shards_;
};

}  // namespace sluice::guard
