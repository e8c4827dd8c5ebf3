// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <boost/container/static_vector.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "sluice/memory_store.h"
#include "store/group.h"
#include "store/hash.h"
#include "store/memory/shard.h"

namespace sluice {

class MemoryStore::Impl {
 public:
  // Enough that threads seldom meet, and that copying or growing one shard takes well under a
  // millisecond at ten million keys. Few enough that all shard headers stay in a core's cache.
  static constexpr std::size_t kShards = 256;

  Impl(const Options& options, const Seed& seed);

  Expected<Decision> Check(const Charge& charge, std::optional<TimePoint> at);
  // Decides any request as of `now`, and returns its outcome.
  Expected<Decision> Decide(Request& request, TimePoint now);
  void Apply(std::span<Request> requests);
  Stats GetStats() const;

  const Options& options() const { return options_; }
  const Seed& seed() const { return seed_; }
  std::span<memory::Shard> shards() { return {shards_.get(), kShards}; }
  std::span<const memory::Shard> shards() const { return {shards_.get(), kShards}; }

 private:
  // Where a charge's state is: the shard, and the slot's identity there.
  struct Place {
    std::size_t shard;
    memory::Identity identity;
    bool to_hold = false;               // The request is about a hold.
    bool sketched = false;              // No room for a slot: the shard's sketch decides.
    memory::HeldState* held = nullptr;  // The state, if it has holds.
  };

  // One for each charge. Making the most there may be would take longer than most decisions.
  template <typename Type>
  using Few = boost::container::static_vector<Type, kChargesMax>;

  // A state that a request about a hold is about.
  struct HoldPart {
    Place& place;
    const Charge& charge;
    std::int64_t cost;                   // Of all charges of the state.
    memory::HoldRecord* hold = nullptr;  // Null if the id is not remembered.
    Decision decision = {};
    memory::Packed next = {};  // If a hold is made.

    const Limit& limit() const { return *charge.limit; }
  };

  static bool SameState(const Place& a, const Place& b) {
    return a.shard == b.shard && a.identity == b.identity;
  }

  static Place PlaceOf(const Hash128& hash) {
    return {.shard = hash.high >> 56,
            .identity = {.hash = hash.low, .check = static_cast<std::uint32_t>(hash.high)}};
  }
  Expected<Decision> Decide(const Charge& charge, Place& place, TimePoint now);
  Decision DecideBySketch(const Place& place, const Charge& charge, TimePoint now);
  Decision DecideHeld(const Place& place, const Charge& charge, TimePoint now);
  memory::Evaluation EvaluateAt(const Place& place, const Limit& limit, TimePoint now,
                                std::int64_t cost);
  [[gnu::noinline]] memory::Evaluation EvaluateUnheld(const Place& place, const Limit& limit,
                                                      TimePoint now, std::int64_t cost);
  Expected<Decision> DecideHold(Request& request, Place& place, TimePoint now);
  Expected<Decision> DecideHold(Request& request, std::span<Place> places, const StateGroup& group,
                                TimePoint now);
  std::optional<Error> DecideHold(Action action, HoldTerms& terms, std::span<HoldPart> parts,
                                  TimePoint now);
  std::optional<Error> Hold(HoldTerms& terms, std::span<HoldPart> parts, TimePoint now);
  std::optional<Error> Settle(HoldTerms& terms, std::span<HoldPart> parts, TimePoint now);
  std::optional<Error> Extend(HoldTerms& terms, std::span<HoldPart> parts, TimePoint now);
  void Look(std::span<HoldPart> parts, TimePoint now);
  bool HasRoomForHolds(const Place& place, std::size_t count) const;
  memory::HeldState& MakeHeld(Place& place, const Limit& limit, TimePoint now);
  static std::int64_t ExpiryOf(const HoldTerms& terms, const Limit& limit, TimePoint moment);
  static TimePoint EarliestExpiry(std::span<const HoldPart> parts);
  SeenState SeeAt(const Place& place, const Limit& limit, TimePoint now);
  void GiveBack(std::span<const Charge> charges, std::span<const Place> places, TimePoint now);
  Expected<bool> Forget(std::span<const Place> places, TimePoint now);
  memory::Slot* Resolve(Place& place, const Limit& limit, TimePoint now, std::int64_t new_keys);
  bool HasRoom(const memory::Shard& own, const Limit& limit, std::int64_t new_keys) const;
  bool MakeRoom(memory::Shard& own, const Limit& limit, TimePoint now, std::int64_t new_keys);
  std::int64_t SweepNext(TimePoint horizon, std::size_t slots);
  bool Reclaim(memory::Shard& own, TimePoint now);
  TimePoint Horizon(TimePoint now) const;

  // Constant after construction.
  const Options options_;
  const Seed seed_;
  const std::unique_ptr<memory::Shard[]> shards_;

  memory::Totals totals_;
  std::atomic<std::uint32_t> sweep_next_ = 0;       // The shard whose turn it is.
  std::atomic<std::int64_t> reclaim_after_us_ = 0;  // No point in looking before.
};

}  // namespace sluice
