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

// Remembers the states behind a denial, and answers its repeats.
//
// It keeps not the answer but each state as the store's decision left it. The kernel decides on
// that again, for any cost, as the store would: every number is the same as long as nobody else
// takes from the state. If a cost may fit, the store is asked.
//
// Less is known of a log:
// - How much is in its window is known until the oldest entry leaves. Then the store is asked.
// - When a cost will fit is known for each cost that was denied. The last one is kept with the
//   state. The others have entries of their own, which count while the state's entry is of the same
//   generation: as long as nothing can have been added to the log.
//
// A request of several charges is answered if it is certainly denied and something is known of all
// of its states. The store's denial of such a request teaches exactly that, and later grants keep
// it up to date.
//
// What is remembered is trusted for a limited time, in case a budget grew and nobody reported it.
// After that it is still better than nothing when the store cannot be asked. In that case less is
// needed of a log: costs greater than a denied one are denied, too, for at least as long, and at
// least what is known to be left remains.
//
// Thread-safe. Memory is allocated once: sets of four entries. A new entry replaces the one that
// would stop being trusted first.
class DenyCache {
 public:
  // Where a state is remembered, as of a moment. What is learned from a question asked before the
  // place was last invalidated is worthless.
  struct Place {
    Hash128 hash;
    std::uint32_t version;
  };

  struct Stats {
    std::int64_t entries = 0;
    std::int64_t bytes = 0;
  };

  // Room for at least `entries`; 0: remembers nothing. `trust` is how long an entry is trusted.
  DenyCache(std::size_t entries, Micros trust, const Seed& seed);

  bool enabled() const { return sets_ > 0; }

  enum class Age { kTrusted, kAny };

  // Returns whether it answered the request with a denial. kAny: even if the store has not
  // confirmed it lately.
  bool Answer(Request& request, TimePoint now, Age age = Age::kTrusted);

  // Call this before the store is asked.
  Place PlaceOf(const Charge& charge);

  // Learns from the store's answer to a request asked at `asked`. `each` has the numbers of its
  // charges. The request asked for the states, too; if the store reports none, there is nothing to
  // learn.
  void Learn(const Request& request, std::span<const Decision> each, std::span<const Place> places,
             TimePoint asked);

  // The state may have more left than is known.
  void Invalidate(const Hash128& hash);

  // Any state may have more left.
  void Clear();

  Hash128 HashOf(const Charge& charge) const { return StateHash(seed_, charge); }

  Stats GetStats() const;

 private:
  static constexpr std::size_t kWays = 4;
  static constexpr std::size_t kShards = 64;

  // A state, under its hash; or what is known of another cost on it, under the hash of both.
  struct Entry {
    Hash128 hash;
    std::uint64_t limit;    // Fingerprint.
    std::int64_t at_us;     // When the store was asked, by our clock.
    std::int64_t until_us;  // From when on it is useless; 0: an empty entry.
    SeenState seen;         // By the store's clock.

    // Of a log.
    std::uint64_t generation;  // Never used again for this state.
    std::int64_t cost;         // The denied cost; 0: none.
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

  // An answer is useful now if it was asked for between these moments.
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
