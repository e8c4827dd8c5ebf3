// SPDX-License-Identifier: Apache-2.0
#include "store/memory/shard.h"

#include <algorithm>
#include <memory>
#include <optional>

namespace sluice::memory {
namespace {

using core::Log;

bool Recovered(const Limit& limit, const Packed& state, TimePoint now) {
  return core::VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    return Kernel::Recovered(limit, Unpack<Kernel>(state), now);
  });
}

// The state under a limit that counts in the same units; none if `to` does not. See core/kernel.h.
std::optional<Packed> Carry(const Limit& from, const Packed& state, const Limit& to) {
  if (core::KernelOf(from) != core::KernelOf(to)) return std::nullopt;
  return core::VisitKernel(to, [&]<typename Kernel>(Kernel) -> std::optional<Packed> {
    if constexpr (kIsLog<Kernel>) {
      return state;
    } else {
      const auto carried = Kernel::Carry(from, Unpack<Kernel>(state), to);
      return carried ? std::optional(Pack(*carried)) : std::nullopt;
    }
  });
}

// How much of a state is used, and at what moment, which is not before its newest time.
struct Usage {
  std::int64_t used;
  TimePoint now;
};

Usage UsageOf(const Limit& limit, const Packed& packed, TimePoint now) {
  return core::VisitKernel(limit, [&]<typename Kernel>(Kernel) -> Usage {
    const auto state = StateIn<Kernel>(limit, packed, now, 0);
    const TimePoint at = std::max(now, TimePoint{Kernel::NewestTick(limit, state) * limit.tick()});
    return {Kernel::UsedUnits(limit, state, at), at};
  });
}

Packed UsedState(const Limit& limit, const Usage& usage) {
  return core::VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    return Keep<Kernel>(limit, Kernel::Start(limit, usage.now, usage.used));
  });
}

}  // namespace

Shard::~Shard() {
  for (const Slot& slot : table_.slots()) {
    if (slot.empty()) continue;
    const std::unique_ptr<HeldState> held(slot.has_holds() ? slot.held() : nullptr);
    const Slot& state = held ? held->slot : slot;
    if (IsLog(LimitOf(state))) delete LogIn(state.state());
  }
}

void Shard::CountLogEntries(std::size_t before, std::size_t after) {
  if (before == after) return;
  totals_->log_entries.fetch_add(
      static_cast<std::int64_t>(after) - static_cast<std::int64_t>(before),
      std::memory_order_relaxed);
}

void Shard::Convert(Slot* slot, const Limit& limit, TimePoint now) {
  const Limit from = LimitOf(*slot);
  const std::uint16_t number = limits_.Acquire(limit);
  if (const auto carried = Carry(from, slot->state(), limit)) {
    slot->set_state(*carried);
  } else {
    const Packed state = UsedState(limit, UsageOf(from, slot->state(), now));
    FreeLog(*slot);
    slot->set_state(state);
    if (IsLog(limit)) CountLogEntries(0, LogIn(state)->capacity());
  }
  limits_.Release(slot->limit);
  slot->limit = number;
}

void Shard::Convert(HeldState& state, const Limit& limit, TimePoint now) {
  const Limit from = LimitOf(state.slot);
  // Only what is on hold still lies in the bucket.
  const Evaluation known = memory::Evaluate(from, state, now, 0);
  if (!IsLog(from)) state.slot.set_state(known.next);
  const bool carried = Carry(from, state.slot.state(), limit).has_value();
  const TimePoint at = UsageOf(from, state.slot.state(), now).now;
  Convert(&state.slot, limit, now);
  // Under the new limit everything was taken at this moment.
  if (!carried) state.holds.Redate(at.time_since_epoch().count(), core::NeedsHold(limit));
  Summarize(limit, state);
}

// Requires that `change` changes nothing but this slot's log, if it has one.
template <typename Change>
void Shard::CountingLog(const Slot& slot, const Change& change) {
  const Limit& limit = LimitOf(slot);
  const auto capacity = [&] { return IsLog(limit) ? LogIn(slot.state())->capacity() : 0; };
  const std::size_t before = capacity();
  change(limit);
  CountLogEntries(before, capacity());
}

HeldState* Shard::HeldIn(Slot* slot, TimePoint now, bool to_hold) {
  if (ExpireHolds(slot, now) || to_hold) return slot->held();
  DropHeld(slot);
  if (core::NeedsHold(LimitOf(*slot))) Erase(slot);
  return nullptr;
}

bool Shard::ExpireHolds(Slot* slot, TimePoint now) {
  HeldState* const state = slot->held();
  if (IsDue(LimitOf(state->slot), *state, now)) {
    CountingLog(state->slot, [&](const Limit& limit) {
      holds_.Add(-static_cast<std::int64_t>(Expire(limit, *state, now)), totals_->holds);
    });
  }
  return !state->holds.empty();
}

HeldState* Shard::NewHeld(const Slot& slot) {
  if (spare_.empty()) spare_.push_back(std::make_unique<HeldState>());
  HeldState* const state = spare_.back().release();
  spare_.pop_back();
  state->slot = slot;
  ++held_;
  return state;
}

void Shard::DropHeld(Slot* slot) {
  std::unique_ptr<HeldState> state(slot->held());
  *slot = state->slot;
  --held_;
  if (spare_.size() > held_ + kSlotsPerSweep) return;
  state->holds.Clear();
  spare_.push_back(std::move(state));
}

HeldState& Shard::MakeHeld(Slot* slot, const Identity& identity, const Limit& limit,
                           TimePoint now) {
  if (!slot) {
    const Packed untouched = core::VisitKernel(limit, [&]<typename Kernel>(Kernel) {
      if constexpr (kIsLog<Kernel>) {
        return Keep<Kernel>(limit, {});
      } else {
        return Pack(Kernel::Decide(limit, nullptr, now, 0).next);
      }
    });
    Restore(identity, limit, untouched);
    slot = Find(identity);
  } else if (slot->has_holds()) {
    return *slot->held();
  }
  HeldState* const state = NewHeld(*slot);
  slot->limit = Slot::kHeld;
  slot->set_state({.b = reinterpret_cast<std::uintptr_t>(state)});
  return *state;
}

HoldRecord& Shard::AddHold(HeldState& state, std::string_view id, const HoldRecord& record) {
  holds_.Add(1, totals_->holds);
  HoldRecord& hold = state.holds.Add(id, record);
  Summarize(LimitOf(state.slot), state);
  return hold;
}

bool Shard::Settle(HeldState& state, TimePoint now, HoldRecord& hold, std::int64_t actual) {
  bool overdrawn = false;
  CountingLog(state.slot, [&](const Limit& limit) {
    overdrawn = memory::Settle(limit, state, now, hold, actual);
  });
  return overdrawn;
}

void Shard::Overdraw(HeldState& state, TimePoint now, std::int64_t units) {
  CountingLog(state.slot, [&](const Limit& limit) { memory::Overdraw(limit, state, now, units); });
}

void Shard::GiveBack(HeldState& state, TimePoint now, std::int64_t units) {
  CountingLog(state.slot, [&](const Limit& limit) { memory::GiveBack(limit, state, now, units); });
}

void Shard::FreeLog(const Slot& slot) {
  if (!IsLog(LimitOf(slot))) return;
  const std::unique_ptr<Log> log(LogIn(slot.state()));
  CountLogEntries(log->capacity(), 0);
}

void Shard::CommitSlowly(Slot* slot, const Identity& identity, const Limit& limit,
                         const Packed& next, TimePoint now, std::int64_t cost) {
  if (!slot) {
    // Everything that allocates comes before the first change.
    Packed state = next;
    std::unique_ptr<Log> log;
    if (IsLog(limit)) {
      log = std::make_unique<Log>();
      log->Add(limit.span(), now, cost);
      state = Pack(log.get());
    }
    Restore(identity, limit, state);
    static_cast<void>(log.release());
    return;
  }
  Log* const log = LogIn(slot->state());
  const std::size_t before = log->capacity();
  if (totals_->LogsFull() && !log->HasRoom(limit.span(), now)) log->MoveNewest(now);
  log->Add(limit.span(), now, cost);
  CountLogEntries(before, log->capacity());
}

void Shard::GiveBack(Slot* slot, const Limit& limit, TimePoint now, std::int64_t units) {
  core::VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    if constexpr (kIsLog<Kernel>) {
      Log* const log = LogIn(slot->state());
      const std::size_t before = log->capacity();
      log->GiveBack(limit.span(), now, units);
      CountLogEntries(before, log->capacity());
    } else {
      const auto next = Kernel::GiveBack(limit, Unpack<Kernel>(slot->state()), now, units);
      if (next) slot->set_state(Pack(*next));
    }
  });
}

void Shard::Restore(const Identity& identity, const Limit& limit, const Packed& state) {
  const std::uint16_t number = limits_.Acquire(limit);
  Slot* const slot = table_.Insert(identity);
  slot->limit = number;
  slot->set_state(state);
  keys_.Add(1, totals_->keys);
  if (IsLog(limit)) CountLogEntries(0, LogIn(state)->capacity());
}

void Shard::LoseHolds(Slot* slot) {
  if (!slot->has_holds()) return;
  holds_.Add(-static_cast<std::int64_t>(slot->held()->holds.size()), totals_->holds);
  DropHeld(slot);
}

void Shard::Erase(Slot* slot) {
  LoseHolds(slot);
  FreeLog(*slot);
  limits_.Release(slot->limit);
  table_.Erase(slot);
  keys_.Add(-1, totals_->keys);
}

Bound Shard::BoundOf(const Identity& identity, TimePoint horizon) const {
  return sketch_ ? sketch_->Find(identity, horizon.time_since_epoch().count()) : Bound{};
}

void Shard::TakeFromSketch(const Identity& identity, const Limit& limit, TimePoint now,
                           TimePoint horizon, std::int64_t units) {
  if (!sketch_) sketch_ = std::make_unique<Sketch>(totals_->sketch_lines);
  const Bound bound = BoundOf(identity, horizon);
  sketch_->Raise(identity, Take(limit, bound, now, units), horizon.time_since_epoch().count());
}

Sketch::Forgot Shard::ForgetInSketch(const Identity& identity, TimePoint horizon) {
  if (!sketch_) return Sketch::Forgot::kNothing;
  return sketch_->Forget(identity, horizon.time_since_epoch().count());
}

Slot* Shard::MoveFromSketch(const Identity& identity, const Limit& limit, TimePoint horizon) {
  const Bound bound = sketch_->Noted(identity, horizon.time_since_epoch().count());
  if (bound == Bound{}) return nullptr;
  Restore(identity, limit, StateOf(limit, bound));
  return Find(identity);
}

void Shard::MoveToSketch(Slot* slot, const Limit& limit, TimePoint now, TimePoint horizon) {
  LoseHolds(slot);
  const Usage usage = UsageOf(LimitOf(*slot), slot->state(), now);
  if (usage.used > 0) {
    TakeFromSketch(slot->identity(), limit, usage.now, horizon, usage.used);
  }
  Erase(slot);
}

bool Shard::IsRecovered(Slot* slot, TimePoint horizon) {
  if (slot->has_holds()) {
    if (ExpireHolds(slot, horizon)) return false;
    DropHeld(slot);
  }
  return Recovered(LimitOf(*slot), slot->state(), horizon);
}

// Those of the next `count` slots.
void Shard::PrefetchHeld(std::size_t count) const {
  const auto slots = table_.slots();
  const std::size_t begin = std::min(hand_, slots.size());
  for (const Slot& slot : slots.subspan(begin, std::min(count, slots.size() - begin))) {
    if (slot.has_holds()) slot.held()->Prefetch();
  }
}

std::int64_t Shard::Sweep(TimePoint horizon, std::size_t count) {
  if (sketch_ && TimePoint{Micros{sketch_->until_us()}} <= horizon) sketch_.reset();
  // What was booked ahead, when there was more room.
  std::int64_t freed = keys_.Add(0, totals_->keys);
  holds_.Add(0, totals_->holds);
  PrefetchHeld(count);
  for (; count > 0; --count) {
    const auto slots = table_.slots();
    if (slots.empty()) break;
    if (hand_ >= slots.size()) {
      hand_ = 0;
      table_.ShrinkIfSparse();
      continue;
    }
    Slot& slot = slots[hand_];
    if (!slot.empty() && IsRecovered(&slot, horizon)) {
      Erase(&slot);  // Another slot may have moved here: look again.
      ++freed;
      ++dropped;
    } else {
      ++hand_;
    }
  }
  return freed;
}

}  // namespace sluice::memory
