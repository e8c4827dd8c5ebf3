// SPDX-License-Identifier: Apache-2.0
// A state with holds. Its slot in the table only refers to it, so that states without holds are as
// small and as fast as if there were none.
#pragma once

#include <cstdint>

#include "sluice/limit.h"
#include "sluice/time.h"
#include "store/memory/evaluate.h"
#include "store/memory/holds.h"
#include "store/memory/slot.h"

namespace sluice::memory {

// The functions below require that `limit` is that of the slot, and those with a `now` that Expire
// was called for it.
struct HeldState {
  Slot slot;  // As the table would have it without holds.
  Holds holds;
};

// The moment of a decision at `now`, which is not before the newest time in the state.
TimePoint MomentOf(const Limit& limit, const HeldState& state, TimePoint now);

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
bool Settle(const Limit& limit, HeldState& state, TimePoint now, Holds::Entry& hold,
            std::int64_t actual);

// Takes units even if they are not there.
void Overdraw(const Limit& limit, HeldState& state, TimePoint now, std::int64_t units);

// Writes what the state says about its holds; after every change of a concurrency limit's holds.
void Summarize(const Limit& limit, HeldState& state);

}  // namespace sluice::memory
