// SPDX-License-Identifier: Apache-2.0
// The decision on a slot. Inline: this is the hot path.
#pragma once

#include <cstdint>

#include "core/seen.h"
#include "sluice/decision.h"
#include "sluice/limit.h"
#include "sluice/time.h"
#include "store/memory/slot.h"

namespace sluice::memory {

// A decision and the state that follows if it is committed (unused for logs, which record it
// themselves).
struct Evaluation {
  Decision decision;
  Packed next;
};

template <typename Kernel>
[[gnu::always_inline]] inline Evaluation EvaluateAs(const Limit& limit, const Slot* slot,
                                                    TimePoint now, std::int64_t cost) {
  typename Kernel::State state{};
  if constexpr (kIsLog<Kernel>) {
    if (slot) state = StateIn<Kernel>(limit, slot->state(), now, cost);
    return {Kernel::DecisionOn(limit, state, now, cost), {}};
  } else {
    if (slot) state = Unpack<Kernel>(slot->state());
    const auto step = Kernel::Decide(limit, slot ? &state : nullptr, now, cost);
    return {step.decision, Pack(step.next)};
  }
}

// Decides on the state in `slot`, which was written under an equal limit, or on an untouched budget
// if it is null. Changes nothing.
[[gnu::always_inline]] inline Evaluation Evaluate(const Limit& limit, const Slot* slot,
                                                  TimePoint now, std::int64_t cost) {
  return core::VisitKernel(limit, [&]<typename Kernel>(Kernel) __attribute__((always_inline)) {
    return EvaluateAs<Kernel>(limit, slot, now, cost);
  });
}

// Likewise, what can be reported about the state.
inline SeenState See(const Limit& limit, const Slot* slot, TimePoint now) {
  return core::VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    if (!slot) return core::See<Kernel>(limit, nullptr, now);
    const auto state = StateIn<Kernel>(limit, slot->state(), now, 0);
    return core::See<Kernel>(limit, &state, now);
  });
}

}  // namespace sluice::memory
