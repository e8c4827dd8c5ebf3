// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "sluice/limit.h"
#include "sluice/time.h"
#include "store/memory/evaluate.h"
#include "store/memory/held_state.h"
#include "store/memory/limit_registry.h"
#include "store/memory/sketch.h"
#include "store/memory/slot.h"
#include "store/memory/table.h"
#include "store/memory/total.h"
#include "store/spin_lock.h"

namespace sluice::memory {

// Sums over all shards, which are checked against the bounds.
struct Totals {
  Total keys;
  Total holds;  // Ids of holds that are remembered.

  const std::int64_t log_entries_max;
  const std::size_t sketch_lines;  // Per shard.

  // Of all entries that logs have memory for, which seldom changes.
  alignas(64) std::atomic<std::int64_t> log_entries = 0;

  bool LogsFull() const { return log_entries.load(std::memory_order_relaxed) >= log_entries_max; }
};

// Sweeping advances half a slot per decision, so that recovered state is gone after twice as many
// decisions as there are slots. It takes many slots at a time: the first of them costs a cache
// miss, the others hardly anything.
inline constexpr std::uint32_t kDecisionsPerSweep = 64;
inline constexpr std::size_t kSlotsPerSweep = 32;

// A part of the keys with its lock. All methods except those of the lock require that it is held.
class alignas(128) Shard {
 public:
  Shard() = default;
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  void set_totals(Totals* totals) { totals_ = totals; }
  SpinLock& lock() const { return lock_; }

  // See Table::Prefetch; the lock need not be held.
  void Prefetch(std::uint64_t hash) const { table_.Prefetch(hash); }

  // Whatever there is under an identity: a slot of the table, which may only refer to a state with
  // holds.
  [[gnu::always_inline]] Slot* Find(const Identity& identity) { return table_.Find(identity); }

  // Requires a slot with a limit's number.
  const Limit& LimitOf(const Slot& slot) const { return limits_[slot.limit]; }
  bool CanAcquire(const Limit& limit, std::size_t count) const {
    return limits_.CanAcquire(limit, count);
  }

  // Carries the state over to a limit with other numbers. What was used stays used.
  void Convert(Slot* slot, const Limit& limit, TimePoint now);
  void Convert(HeldState& state, const Limit& limit, TimePoint now);

  // The state in a slot that has holds, after those that have expired. Null if none is left, unless
  // it is `to_hold` again; the state is in a slot or gone then: look it up again.
  HeldState* HeldIn(Slot* slot, TimePoint now, bool to_hold);

  // Moves what is in a slot to where it can have holds. If the slot is null, the state is that of
  // an untouched budget. Valid until HeldIn finds no hold there.
  HeldState& MakeHeld(Slot* slot, const Identity& identity, const Limit& limit, TimePoint now);

  HoldRecord& AddHold(HeldState& state, std::string_view id, const HoldRecord& record);
  bool Settle(HeldState& state, TimePoint now, HoldRecord& hold, std::int64_t actual);
  void Overdraw(HeldState& state, TimePoint now, std::int64_t units);
  void GiveBack(HeldState& state, TimePoint now, std::int64_t units);

  // Stores an admitted request of positive cost; `slot` is null for a new identity. When all logs
  // together remember as much as they may, a log that would grow adds the request to its newest
  // entry, which then counts from now on: it grants less than it could, and never more.
  void Commit(Slot* slot, const Identity& identity, const Limit& limit, const Packed& next,
              TimePoint now, std::int64_t cost) {
    if (slot && !IsLog(limit)) [[likely]]
      return slot->set_state(next);
    CommitSlowly(slot, identity, limit, next, now, cost);
  }

  // Gives back up to `units` of what was taken from the state in `slot`, which has this limit.
  void GiveBack(Slot* slot, const Limit& limit, TimePoint now, std::int64_t units);

  void Erase(Slot* slot);

  // What the sketch knows about identities that have no slot. The sketch is made when it is first
  // needed; a sweep drops it once everything in it has recovered.
  bool has_sketch() const { return sketch_ != nullptr; }
  Bound BoundOf(const Identity& identity, TimePoint horizon) const;
  void TakeFromSketch(const Identity& identity, const Limit& limit, TimePoint now,
                      TimePoint horizon, std::int64_t units);
  Sketch::Forgot ForgetInSketch(const Identity& identity, TimePoint horizon);

  // Gives an identity a slot with what the sketch knows about it; null if it has used nothing. The
  // sketch keeps its entry, too, until it has recovered, because others may share it. Requires
  // has_sketch.
  Slot* MoveFromSketch(const Identity& identity, const Limit& limit, TimePoint horizon);

  // Moves a state to the sketch, under `limit`, because the registry has no number for that limit.
  void MoveToSketch(Slot* slot, const Limit& limit, TimePoint now, TimePoint horizon);

  // Looks at the next `count` slots and drops the states that had recovered by `horizon`. Returns
  // for how many keys that made room.
  std::int64_t Sweep(TimePoint horizon, std::size_t count);

  // Called once per decision: whether it is time for a sweep.
  bool CountDecision() { return ++decisions_ % kDecisionsPerSweep == 0; }

  bool HasRoomForKey() const { return keys_.HasRoom(totals_->keys); }
  bool HasRoomForHold() const { return holds_.HasRoom(totals_->holds); }
  std::int64_t keys() const { return keys_.count(); }
  std::int64_t holds() const { return holds_.count(); }

  std::span<const Slot> slots() const { return table_.slots(); }
  std::size_t bytes() const {
    return table_.bytes() + limits_.bytes() + (sketch_ ? sketch_->bytes() : 0);
  }

  // Takes in the states of a snapshot: first their number, then each, ordered by hash.
  void Reserve(std::size_t size) { table_.Reserve(size); }
  bool crowded() const { return table_.crowded(); }
  void Restore(const Identity& identity, const Limit& limit, const Packed& state);

  std::int64_t dropped = 0;
  std::int64_t dropped_ahead = 0;       // Of a snapshot.
  std::int64_t overflow_decisions = 0;  // By the sketch.

 private:
  void CommitSlowly(Slot* slot, const Identity& identity, const Limit& limit, const Packed& next,
                    TimePoint now, std::int64_t cost);
  void FreeLog(const Slot& slot);
  void CountLogEntries(std::size_t before, std::size_t after);
  template <typename Change>
  void CountingLog(const Slot& slot, const Change& change);
  // A slot's state with holds: made, and put back into the slot without them.
  HeldState* NewHeld(const Slot& slot);
  void DropHeld(Slot* slot);
  void LoseHolds(Slot* slot);
  // Whether the state in the slot still has holds.
  bool ExpireHolds(Slot* slot, TimePoint now);
  bool IsRecovered(Slot* slot, TimePoint horizon);
  void PrefetchHeld(std::size_t count) const;

  mutable SpinLock lock_;
  std::uint32_t decisions_ = 0;
  Table table_;
  LimitRegistry limits_;
  std::size_t hand_ = 0;  // Where the next sweep goes on.
  Total::Part keys_;
  Total::Part holds_;
  Totals* totals_ = nullptr;
  std::unique_ptr<Sketch> sketch_;
  std::size_t held_ = 0;                           // States with holds.
  std::vector<std::unique_ptr<HeldState>> spare_;  // For the next ones; hardly more than those.
};

}  // namespace sluice::memory
