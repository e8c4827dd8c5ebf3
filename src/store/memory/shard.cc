// SPDX-License-Identifier: Apache-2.0
#include "store/memory/shard.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/convert.h"

namespace sluice::memory {
namespace {

using core::BucketState;
using core::CounterState;
using core::Log;
using core::WindowState;

bool Recovered(const Limit& limit, const Packed& state, TimePoint now) {
  switch (limit.algorithm()) {
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
    case Algorithm::kGcra:
      return core::Recovered(limit, Unpack<BucketState>(state), now);
    case Algorithm::kFixedWindow:
      return core::Recovered(limit, Unpack<WindowState>(state), now);
    case Algorithm::kSlidingWindow:
      return core::Recovered(limit, *Unpack<Log*>(state), now);
    case Algorithm::kSlidingWindowCounter:
      return core::Recovered(limit, Unpack<CounterState>(state), now);
  }
  std::unreachable();
}

enum class Kernel { kBucket, kWindow, kLog, kCounter };

Kernel KernelOf(const Limit& limit) {
  switch (limit.algorithm()) {
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
    case Algorithm::kGcra:
      return Kernel::kBucket;
    case Algorithm::kFixedWindow:
      return Kernel::kWindow;
    case Algorithm::kSlidingWindow:
      return Kernel::kLog;
    case Algorithm::kSlidingWindowCounter:
      return Kernel::kCounter;
  }
  std::unreachable();
}

// Whether states under both limits are counted in the same units, so that they carry over as they
// are but for the amount.
bool SameUnits(const Limit& a, const Limit& b) {
  if (KernelOf(a) != KernelOf(b)) return false;
  switch (KernelOf(a)) {
    case Kernel::kBucket:
      return a.unit() == b.unit() && a.rate() == b.rate() && a.tick() == b.tick();
    case Kernel::kWindow:
    case Kernel::kCounter:
      return a.span() == b.span();
    case Kernel::kLog:
      return true;
  }
  std::unreachable();
}

Packed CarrySameUnits(const Limit& from, const Packed& state, const Limit& to) {
  switch (KernelOf(from)) {
    case Kernel::kBucket:
      return Pack(core::Carry(from, Unpack<BucketState>(state), to));
    case Kernel::kWindow:
      return Pack(core::Carry(Unpack<WindowState>(state)));
    case Kernel::kCounter:
      return Pack(core::Carry(Unpack<CounterState>(state), to));
    case Kernel::kLog:
      return state;
  }
  std::unreachable();
}

// What a state says of itself at a moment: how much is used, and the moment, which is not before
// its newest time.
struct Usage {
  std::int64_t used;
  TimePoint now;
};

Usage UsageOf(const Limit& limit, const Packed& state, TimePoint now) {
  const auto not_before = [&](std::int64_t tick) {
    return std::max(now, TimePoint{tick * limit.tick()});
  };
  switch (KernelOf(limit)) {
    case Kernel::kBucket: {
      const auto bucket = Unpack<BucketState>(state);
      const TimePoint at = not_before(bucket.time);
      return {core::UsedUnits(limit, bucket, at), at};
    }
    case Kernel::kWindow: {
      const auto window = Unpack<WindowState>(state);
      const TimePoint at = not_before(window.start);
      return {core::Decide(limit, &window, at, 0).next.count, at};
    }
    case Kernel::kCounter: {
      const auto counter = Unpack<CounterState>(state);
      const TimePoint at = not_before(counter.window * limit.unit());
      return {core::UsedUnits(limit, counter, at), at};
    }
    case Kernel::kLog: {
      const core::LogFacts facts = core::Look(limit, Unpack<Log*>(state), now, 0);
      return {facts.used, TimePoint{Micros{facts.now_us}}};
    }
  }
  std::unreachable();
}

Packed UsedState(const Limit& limit, const Usage& usage) {
  switch (KernelOf(limit)) {
    case Kernel::kBucket:
      return Pack(core::UsedBucket(limit, usage.now, usage.used));
    case Kernel::kWindow:
      return Pack(core::UsedWindow(limit, usage.now, usage.used));
    case Kernel::kCounter:
      return Pack(core::UsedCounter(limit, usage.now, usage.used));
    case Kernel::kLog: {
      auto log = std::make_unique<Log>();
      if (usage.used > 0) log->Add(limit.span(), usage.now, usage.used);
      return Pack(log.release());
    }
  }
  std::unreachable();
}

}  // namespace

Shard::~Shard() {
  for (const Slot& slot : table_.slots()) {
    if (!slot.empty() && IsLog(LimitOf(slot))) delete Unpack<Log*>(slot.state());
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
  if (SameUnits(from, limit)) {
    slot->set_state(CarrySameUnits(from, slot->state(), limit));
  } else {
    const Packed state = UsedState(limit, UsageOf(from, slot->state(), now));
    FreeLog(*slot);
    slot->set_state(state);
    if (IsLog(limit)) CountLogEntries(0, Unpack<Log*>(state)->capacity());
  }
  limits_.Release(slot->limit);
  slot->limit = number;
}

void Shard::FreeLog(const Slot& slot) {
  if (!IsLog(LimitOf(slot))) return;
  const std::unique_ptr<Log> log(Unpack<Log*>(slot.state()));
  CountLogEntries(log->capacity(), 0);
}

void Shard::Commit(Slot* slot, const Identity& identity, const Limit& limit, const Packed& next,
                   TimePoint now, std::int64_t cost) {
  if (!slot) {
    // Whatever allocates comes before the first change.
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
  if (!IsLog(limit)) return slot->set_state(next);
  Log* const log = Unpack<Log*>(slot->state());
  const std::size_t before = log->capacity();
  if (totals_->LogsFull() && !log->HasRoom(limit.span(), now)) log->MoveNewest(now);
  log->Add(limit.span(), now, cost);
  CountLogEntries(before, log->capacity());
}

void Shard::GiveBack(Slot* slot, const Limit& limit, TimePoint now, std::int64_t units) {
  const auto give_as = [&]<typename State>(const State& state) {
    if (const auto next = core::GiveBack(limit, state, now, units)) slot->set_state(Pack(*next));
  };
  switch (KernelOf(limit)) {
    case Kernel::kBucket:
      return give_as(Unpack<BucketState>(slot->state()));
    case Kernel::kWindow:
      return give_as(Unpack<WindowState>(slot->state()));
    case Kernel::kCounter:
      return give_as(Unpack<CounterState>(slot->state()));
    case Kernel::kLog: {
      Log* const log = Unpack<Log*>(slot->state());
      const std::size_t before = log->capacity();
      log->GiveBack(limit.span(), now, units);
      return CountLogEntries(before, log->capacity());
    }
  }
  std::unreachable();
}

void Shard::Restore(const Identity& identity, const Limit& limit, const Packed& state) {
  const std::uint16_t number = limits_.Acquire(limit);
  Slot* const slot = table_.Insert(identity);
  slot->limit = number;
  slot->set_state(state);
  totals_->keys.fetch_add(1, std::memory_order_relaxed);
  if (IsLog(limit)) CountLogEntries(0, Unpack<Log*>(state)->capacity());
}

void Shard::Erase(Slot* slot) {
  FreeLog(*slot);
  limits_.Release(slot->limit);
  table_.Erase(slot);
  totals_->keys.fetch_sub(1, std::memory_order_relaxed);
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
  const Usage usage = UsageOf(LimitOf(*slot), slot->state(), now);
  if (usage.used > 0) {
    TakeFromSketch(slot->identity(), limit, usage.now, horizon, usage.used);
  }
  Erase(slot);
}

std::size_t Shard::Sweep(TimePoint horizon, std::size_t count) {
  if (sketch_ && TimePoint{Micros{sketch_->until_us()}} <= horizon) sketch_.reset();
  std::size_t erased = 0;
  for (; count > 0; --count) {
    const auto slots = table_.slots();
    if (slots.empty()) break;
    if (hand_ >= slots.size()) {
      hand_ = 0;
      table_.ShrinkIfSparse();
      continue;
    }
    Slot& slot = slots[hand_];
    if (!slot.empty() && Recovered(LimitOf(slot), slot.state(), horizon)) {
      Erase(&slot);  // Another slot may have moved here: look again.
      ++erased;
    } else {
      ++hand_;
    }
  }
  dropped += static_cast<std::int64_t>(erased);
  return erased;
}

}  // namespace sluice::memory
