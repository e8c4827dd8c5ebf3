// SPDX-License-Identifier: Apache-2.0
// A state with holds. Its slot in the table only refers to it, so that states without holds are as
// small and as fast as if there were none.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sluice/limit.h"
#include "sluice/time.h"
#include "store/memory/evaluate.h"
#include "store/memory/holds.h"
#include "store/memory/slot.h"
#include "store/memory/zeroed.h"

namespace sluice::memory {

struct alignas(kLineBytes) HeldState {
  Slot slot;  // As the table would have it without holds.
  Holds holds;

  // A hint for the processor: what it is about, and its first hold.
  void Prefetch() const {
    __builtin_prefetch(this, 1);
    __builtin_prefetch(reinterpret_cast<const char*>(this) + kLineBytes, 1);
  }
};

// The functions below require that `limit` is that of the slot, and those with a `now` that Expire
// was called for it if it is due.

// The moment of a decision at `now`, which is not before the newest time in the state.
inline TimePoint MomentOf(const Limit& limit, const HeldState& state, TimePoint now) {
  return core::VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    const auto known = StateIn<Kernel>(limit, state.slot.state(), now, 0);
    return std::max(now, TimePoint{Kernel::NewestTick(limit, known) * limit.tick()});
  });
}

// Whether any hold may have expired by `now`, or any id's time be over.
inline bool IsDue(const Limit& limit, const HeldState& state, TimePoint now) {
  return state.holds.IsDue(core::Us(MomentOf(limit, state, now)));
}

// Lets every hold that has expired by `now` expire at its own moment, one after the other, and
// forgets ids whose time is over. Returns how many ids.
std::size_t Expire(const Limit& limit, HeldState& state, TimePoint now);

// Like Evaluate of a slot.
Evaluation Evaluate(const Limit& limit, const HeldState& state, TimePoint now, std::int64_t cost);

SeenState See(const Limit& limit, const HeldState& state, TimePoint now);

// Gives back up to `units`, without saying which. What is on hold stays on hold.
void GiveBack(const Limit& limit, HeldState& state, TimePoint now, std::int64_t units);

// Ends a hold that was not settled yet: `actual` units were used. Returns whether more was taken
// than was on hold.
bool Settle(const Limit& limit, HeldState& state, TimePoint now, HoldRecord& hold,
            std::int64_t actual);

// Takes units even if they are not there.
void Overdraw(const Limit& limit, HeldState& state, TimePoint now, std::int64_t units);

// Writes what the state says about its holds; after every change of a concurrency limit's holds.
void Summarize(const Limit& limit, HeldState& state);

}  // namespace sluice::memory
