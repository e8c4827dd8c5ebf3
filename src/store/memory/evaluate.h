// SPDX-License-Identifier: Apache-2.0
// From an algorithm's name to its kernel. Inline: this is the hot path.
#pragma once

#include <cstdint>
#include <utility>

#include "core/seen.h"
#include "sluice/decision.h"
#include "sluice/limit.h"
#include "sluice/time.h"
#include "store/memory/slot.h"

namespace sluice::memory {

inline bool IsLog(const Limit& limit) { return limit.algorithm() == Algorithm::kSlidingWindow; }

// A decision and the state that follows it if it is committed (not used for logs, which record it
// themselves).
struct Evaluation {
  Decision decision;
  Packed next;
};

template <typename State>
Evaluation EvaluateAs(const Limit& limit, const Slot* slot, TimePoint now, std::int64_t cost) {
  if (!slot) {
    const auto step = core::Decide(limit, static_cast<const State*>(nullptr), now, cost);
    return {step.decision, Pack(step.next)};
  }
  const State state = Unpack<State>(slot->state());
  const auto step = core::Decide(limit, &state, now, cost);
  return {step.decision, Pack(step.next)};
}

// Decides on the state in `slot`, which was written under an equal limit, or on an untouched budget
// if it is null. Changes nothing.
inline Evaluation Evaluate(const Limit& limit, const Slot* slot, TimePoint now, std::int64_t cost) {
  switch (limit.algorithm()) {
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
    case Algorithm::kGcra:
      return EvaluateAs<core::BucketState>(limit, slot, now, cost);
    case Algorithm::kFixedWindow:
      return EvaluateAs<core::WindowState>(limit, slot, now, cost);
    case Algorithm::kSlidingWindow:
      return {core::Decide(limit, slot ? Unpack<core::Log*>(slot->state()) : nullptr, now, cost),
              {}};
    case Algorithm::kSlidingWindowCounter:
      return EvaluateAs<core::CounterState>(limit, slot, now, cost);
  }
  std::unreachable();
}

template <typename State>
SeenState SeeAs(const Limit& limit, const Slot* slot, TimePoint now) {
  if (!slot) return core::See(limit, static_cast<const State*>(nullptr), now);
  const State state = Unpack<State>(slot->state());
  return core::See(limit, &state, now);
}

// Likewise, what there is to be told of the state.
inline SeenState See(const Limit& limit, const Slot* slot, TimePoint now) {
  switch (limit.algorithm()) {
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
    case Algorithm::kGcra:
      return SeeAs<core::BucketState>(limit, slot, now);
    case Algorithm::kFixedWindow:
      return SeeAs<core::WindowState>(limit, slot, now);
    case Algorithm::kSlidingWindow:
      return core::See(
          core::Look(limit, slot ? Unpack<core::Log*>(slot->state()) : nullptr, now, 0), now);
    case Algorithm::kSlidingWindowCounter:
      return SeeAs<core::CounterState>(limit, slot, now);
  }
  std::unreachable();
}

}  // namespace sluice::memory
