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

// Remembers the states that a denial has shown, and answers its repeats.
//
// What is kept is not the answer but each state as the store's decision left it, and the kernel
// decides on that again, for any cost, as the store would: every number is the same for as long as
// nobody else takes from the state. If a cost may fit, the store is asked.
//
// A log shows less of itself:
// - How much is in its window is known until the oldest of that leaves. Then the store is asked.
// - When a cost will fit is known for each cost that was denied. The last one is remembered with
//   the state and the others in entries of their own, which count while the state's entry is of the
//   same generation: for as long as it is certain that nothing was added to the log.
//
// A request of several charges is answered if it is denied for sure and something is known of all
// of its states; the store's denial of such a request teaches exactly that, and what is granted
// later keeps it up to date.
//
// What is remembered is believed for a limited time, in case something made a budget larger that
// nobody told of. After that it is still better than nothing, for when the store cannot be asked.
// Then less will do of a log: costs greater than one that is denied are denied, too, for at least
// as long, and at least what is known to be left remains.
//
// Thread-safe. Memory is fixed when it is made: sets of four entries, of which the one that is
// believed for the shortest time makes room for a new one.
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
  DenyCache(std::size_t entries, Micros trust, const Seed& seed);

  bool enabled() const { return sets_ > 0; }

  enum class Age { kTrusted, kAny };

  // Whether the request was answered: denied. kAny: even if the store has not confirmed it of late.
  bool Answer(Request& request, TimePoint now, Age age = Age::kTrusted);

  // To be taken before the store is asked.
  Place PlaceOf(const Charge& charge);

  // What the store said to a request asked at `asked`, `each` being the numbers of its charges. It
  // was asked for the states, too; if it tells none, there is nothing to be learned.
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

  // A state, under its hash; or what it said of another cost, under the hash of both.
  struct Entry {
    Hash128 hash;
    std::uint64_t limit;    // Fingerprint.
    std::int64_t at_us;     // When the store was asked, by our clock.
    std::int64_t until_us;  // From when on it is of no use; 0: an empty entry.
    SeenState seen;         // By the store's clock.

    // Of a log.
    std::uint64_t generation;  // Never used again for this state.
    std::int64_t cost;         // That was denied; 0: none.
    std::int64_t leaves;       // Its WindowLog::State::leaves.
  };

  struct alignas(64) Shard {
    mutable SpinLock lock;
    std::uint32_t version = 0;
    std::int64_t entries = 0;
    std::uint64_t generations = 0;
  };

  std::size_t SetOf(const Hash128& hash) const { return hash.low % sets_; }
  Shard& ShardOf(const Hash128& hash) const { return shards_[SetOf(hash) % kShards]; }
  std::span<Entry> Ways(const Hash128& hash) const {
    return {entries_.get() + SetOf(hash) * kWays, kWays};
  }
  Hash128 HashOf(const Hash128& state, std::int64_t cost) const;

  // The moments between which a question must have been asked for its answer to be of use now.
  struct Times {
    std::int64_t since_us;
    std::int64_t now_us;
    Age age;
  };

  bool AnswerOne(Request& request, const Times& times);
  bool AnswerGroup(Request& request, const Times& times);
  std::optional<Decision> Look(const Hash128& hash, const Charge& charge, const Times& times);
  std::optional<Decision> Decide(const Entry& known, const Limit& limit, std::int64_t cost,
                                 const Times& times);
  std::optional<std::int64_t> LeavesOf(const Entry& known, const Limit& limit, std::int64_t cost,
                                       const Times& times);
  std::optional<Entry> Find(const Hash128& hash, const Limit& limit, const Times& times);

  void Remember(const Place& place, Entry entry, Micros span);
  void Refresh(const Place& place, const Charge& charge, const SeenState& seen,
               std::int64_t asked_us);
  void Put(Shard& shard, const Entry& entry);
  Entry* Get(const Hash128& hash) const;
  void ForgetOther(Shard& shard, const Hash128& hash, const Limit& limit);
  static void Forget(Shard& shard, Entry& entry);

  // Constant after construction.
  const std::size_t sets_;
  const Micros trust_;
  const Seed seed_;
  const std::unique_ptr<Entry[]> entries_;  // Guarded by the shard of their set.
  const std::unique_ptr<Shard[]> shards_;
};

}  // namespace sluice::guard
