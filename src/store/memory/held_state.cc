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
[[gnu::always_inline]] inline typename Kernel::State StateAt(const Limit& limit,
                                                             const HeldState& state,
                                                             TimePoint now) {
  const auto known = Unpack<Kernel>(state.slot.state());
  if constexpr (kIsBucket<Kernel>) {
    return Kernel::Capped(limit, known, now, state.holds.units());
  } else {
    return known;
  }
}

// Ends a hold, and corrects what is taken on its account from `charged` to `actual` units.
void End(const Limit& limit, HeldState& state, TimePoint now, HoldRecord& hold,
         HoldRecord::Status status, std::int64_t charged, std::int64_t actual) {
  core::VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    // What a bucket has before the room that it has for more changes.
    if constexpr (kIsBucket<Kernel>) state.slot.set_state(Pack(StateAt<Kernel>(limit, state, now)));
    state.holds.End(hold, status);
    if (actual > charged) return Overdraw(limit, state, now, actual - charged);
    const core::Untaken untaken = {.now = now,
                                   .taken = At(hold.taken_us),
                                   .units = charged - actual,
                                   .held = state.holds.units()};
    if constexpr (kIsLog<Kernel>) {
      LogIn(state.slot.state())->Untake(untaken.taken, untaken.units);
    } else {
      const auto known = Unpack<Kernel>(state.slot.state());
      state.slot.set_state(Pack(Kernel::Untake(limit, known, untaken)));
    }
  });
}

}  // namespace

std::size_t Expire(const Limit& limit, HeldState& state, TimePoint now) {
  Holds& holds = state.holds;
  const std::int64_t now_us = Us(MomentOf(limit, state, now));
  while (HoldRecord* const hold = holds.FirstExpired(now_us)) {
    const bool released = hold->on_expiry == OnExpiry::kRelease;
    End(limit, state, At(hold->expires_us), *hold, HoldRecord::Status::kExpired, hold->units,
        released ? 0 : hold->units);
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
      const core::Untaken untaken = {
          .now = now, .taken = now, .units = units, .held = state.holds.units()};
      const auto known = StateAt<Kernel>(limit, state, now);
      state.slot.set_state(Pack(Kernel::Untake(limit, known, untaken)));
    } else {
      const auto next = Kernel::GiveBack(limit, Unpack<Kernel>(state.slot.state()), now, units);
      if (next) state.slot.set_state(Pack(*next));
    }
  });
}

bool Settle(const Limit& limit, HeldState& state, TimePoint now, HoldRecord& hold,
            std::int64_t actual) {
  const std::int64_t charged = hold.Charged();
  const bool late = hold.status == HoldRecord::Status::kExpired;
  End(limit, state, now, hold,
      late ? HoldRecord::Status::kSettledLate : HoldRecord::Status::kSettled, charged, actual);
  Summarize(limit, state);
  return actual > hold.units && !core::NeedsHold(limit);
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
