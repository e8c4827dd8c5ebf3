// SPDX-License-Identifier: Apache-2.0
// The kernel of FIXED_WINDOW: one count per epoch-aligned window. A burst at the end of one window
// and another at the start of the next both pass; that is a property of this algorithm.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/instant.h"
#include "sluice/decision.h"
#include "sluice/limit.h"

namespace sluice::core {

struct WindowState {
  std::int64_t start;  // In ticks; a multiple of the window.
  std::int64_t count;  // Above limit.amount() after that was lowered below what was used.

  friend bool operator==(const WindowState&, const WindowState&) = default;
};

struct WindowStep {
  Decision decision;
  WindowState next;  // To be stored if and only if the decision is allowed and the cost above zero.
};

// `state` is null for an untouched budget; 0 <= cost <= limit.amount().
inline WindowStep Decide(const Limit& limit, const WindowState* state, TimePoint now,
                         std::int64_t cost) {
  const Instant instant(limit, now, state ? state->start : 0);
  const std::int64_t elapsed = instant.ticks() % limit.unit();
  const std::int64_t start = instant.ticks() - elapsed;
  const std::int64_t before = state && state->start == start ? state->count : 0;
  const bool allowed = cost <= limit.amount() - before || cost == 0;

  WindowStep step;
  step.next = {.start = start, .count = allowed ? before + cost : before};
  step.decision.allowed = allowed;
  step.decision.limit = limit.amount();
  step.decision.remaining = std::max<std::int64_t>(0, limit.amount() - step.next.count);
  step.decision.reset_after = instant.Until(limit.unit() - elapsed);
  if (!allowed) step.decision.retry_after = step.decision.reset_after;
  return step;
}

// The state once up to `units` of what was taken in the current window are back; none if nothing
// was.
inline std::optional<WindowState> GiveBack(const Limit& limit, const WindowState& state,
                                           TimePoint now, std::int64_t units) {
  WindowState next = Decide(limit, &state, now, 0).next;
  const std::int64_t given = std::min(units, next.count);
  if (given == 0) return std::nullopt;
  next.count -= given;
  return next;
}

// Whether the state equals an untouched budget by now, so that it may be dropped.
inline bool Recovered(const Limit& limit, const WindowState& state, TimePoint now) {
  // One that all was given back to may be from after `now`, if the clock was set back since.
  const std::int64_t ticks = Instant(limit, now, 0).ticks();
  return ticks >= state.start + (state.count > 0 ? limit.unit() : 0);
}

}  // namespace sluice::core
