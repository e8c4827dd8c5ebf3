// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>

#include "sluice/decision.h"

namespace sluice::core {

// Combines the decisions of several limits on one request; see Request::outcome.
inline Decision Combine(std::span<const Decision> each) {
  Decision overall = each.front();
  for (const Decision& one : each.subspan(1)) {
    if (one.remaining < overall.remaining) {
      overall.remaining = one.remaining;
      overall.limit = one.limit;
      overall.held = one.held;
    }
    overall.allowed = overall.allowed && one.allowed;
    overall.retry_after = std::max(overall.retry_after, one.retry_after);
    overall.reset_after = std::max(overall.reset_after, one.reset_after);
    overall.delay = std::max(overall.delay, one.delay);
  }
  return overall;
}

}  // namespace sluice::core
