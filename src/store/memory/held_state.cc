// SPDX-License-Identifier: Apache-2.0
#include "store/memory/held_state.h"

#include <algorithm>

namespace sluice::memory {
namespace {

using core::Concurrency;
using core::Log;
using core::Us;

TimePoint At(std::int64_t at_us) { return TimePoint{Micros{at_us}}; }

template <typename Kernel>
inline constexpr bool kIsBucket = std::is_same_v<Kernel, core::Bucket>;
template <typename Kernel>
inline constexpr bool kIsConcurrency = std::is_same_v<Kernel, Concurrency>;

// The state that the kernel decides on at `now`: a bucket is full when it holds all that is not on
// hold.
template <typename Kernel>
typename Kernel::State StateAt(const Limit& limit, const HeldState& state, TimePoint now) {
  const auto known = Unpack<Kernel>(state.slot.state());
  if constexpr (kIsBucket<Kernel>) {
    return Kernel::Capped(limit, known, now, state.holds.units());
  } else {
    return known;
  }
}

// Gives back `units` that were taken at `taken`, at `now`; `held` will be on hold then.
void Untake(const Limit& limit, HeldState& state, const core::Untaken& untaken) {
  core::VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    if constexpr (kIsLog<Kernel>) {
      LogIn(state.slot.state())->Untake(untaken.taken, untaken.units);
    } else {
      const auto now = StateAt<Kernel>(limit, state, untaken.now);
      state.slot.set_state(Pack(Kernel::Untake(limit, now, untaken)));
    }
  });
}

// Stores what a bucket has at `now`, before the room that it has for more changes.
void Advance(const Limit& limit, HeldState& state, TimePoint now) {
  core::VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    if constexpr (kIsBucket<Kernel>) {
      state.slot.set_state(Pack(StateAt<Kernel>(limit, state, now)));
    }
  });
}

// Corrects what is taken on a hold's account from `charged` to `actual` units.
void Correct(const Limit& limit, HeldState& state, TimePoint now, const HoldRecord& record,
             std::int64_t charged, std::int64_t actual) {
  if (actual > charged) return Overdraw(limit, state, now, actual - charged);
  Untake(limit, state,
         {.now = now,
          .taken = At(record.taken_us),
          .units = charged - actual,
          .held = state.holds.units()});
}

}  // namespace

TimePoint MomentOf(const Limit& limit, const HeldState& state, TimePoint now) {
  return core::VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    const auto known = StateIn<Kernel>(limit, state.slot.state(), now, 0);
    return std::max(now, TimePoint{Kernel::NewestTick(limit, known) * limit.tick()});
  });
}

std::size_t Expire(const Limit& limit, HeldState& state, TimePoint now) {
  Holds& holds = state.holds;
  const std::int64_t now_us = Us(MomentOf(limit, state, now));
  while (Holds::Entry* const hold = holds.FirstExpired(now_us)) {
    const HoldRecord& record = hold->record;
    const TimePoint expires = At(record.expires_us);
    Advance(limit, state, expires);
    holds.End(*hold, HoldRecord::Status::kExpired);
    Correct(limit, state, expires, record, record.units, record.Charged());
  }
  const std::size_t forgotten = holds.Forget(now_us);
  Summarize(limit, state);
  return forgotten;
}

Evaluation Evaluate(const Limit& limit, const HeldState& state, TimePoint now, std::int64_t cost) {
  return core::VisitKernel(limit, [&]<typename Kernel>(Kernel) -> Evaluation {
    Evaluation evaluation;
    if constexpr (kIsLog<Kernel>) {
      evaluation = EvaluateAs<Kernel>(limit, &state.slot, now, cost);
    } else {
      const auto known = StateAt<Kernel>(limit, state, now);
      const auto step = Kernel::Decide(limit, &known, now, cost);
      evaluation = {step.decision, Pack(step.next)};
    }
    if constexpr (kIsConcurrency<Kernel>) {
      if (!evaluation.decision.allowed) {
        evaluation.decision.retry_after =
            Micros{state.holds.ExpiredDownTo(limit.amount() - cost) - Us(now)};
      }
    }
    evaluation.decision.held = state.holds.units();
    return evaluation;
  });
}

SeenState See(const Limit& limit, const HeldState& state, TimePoint now) {
  return core::VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    if constexpr (kIsLog<Kernel>) {
      return See(limit, &state.slot, now);
    } else {
      const auto known = StateAt<Kernel>(limit, state, now);
      return core::See<Kernel>(limit, &known, now);
    }
  });
}

void GiveBack(const Limit& limit, HeldState& state, TimePoint now, std::int64_t units) {
  core::VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    if constexpr (kIsLog<Kernel>) {
      LogIn(state.slot.state())->GiveBack(limit.span(), now, units);
    } else if constexpr (kIsBucket<Kernel>) {
      Untake(limit, state, {.now = now, .taken = now, .units = units, .held = state.holds.units()});
    } else {
      const auto next = Kernel::GiveBack(limit, Unpack<Kernel>(state.slot.state()), now, units);
      if (next) state.slot.set_state(Pack(*next));
    }
  });
}

bool Settle(const Limit& limit, HeldState& state, TimePoint now, Holds::Entry& hold,
            std::int64_t actual) {
  HoldRecord& record = hold.record;
  const std::int64_t charged = record.Charged();
  const bool late = record.status == HoldRecord::Status::kExpired;
  Advance(limit, state, now);
  state.holds.End(hold, late ? HoldRecord::Status::kSettledLate : HoldRecord::Status::kSettled);
  Correct(limit, state, now, record, charged, actual);
  Summarize(limit, state);
  return actual > record.units && !core::NeedsHold(limit);
}

void Overdraw(const Limit& limit, HeldState& state, TimePoint now, std::int64_t units) {
  core::VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    if constexpr (kIsLog<Kernel>) {
      Log& log = *LogIn(state.slot.state());
      const std::int64_t used = Kernel::Look(limit, log, now, 0).used;
      const std::int64_t bearable = std::min(units, core::kExactMax - used);
      if (bearable > 0) log.Add(limit.span(), now, bearable);
    } else {
      const auto known = StateAt<Kernel>(limit, state, now);
      state.slot.set_state(Pack(Kernel::Overdraw(limit, known, now, units)));
    }
  });
}

void Summarize(const Limit& limit, HeldState& state) {
  if (core::KernelOf(limit) != core::KernelKind::kConcurrency) return;
  state.slot.set_state(
      Pack(Concurrency::State{.held = state.holds.units(), .until = state.holds.LastExpiry()}));
}

}  // namespace sluice::memory
