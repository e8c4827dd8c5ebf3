// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "sluice/time.h"

namespace sluice {

// The answer to "may this request pass?". All numbers describe the budget after the decision;
// a denial consumes nothing.
struct Decision {
  bool allowed = false;
  std::int64_t limit = 0;      // The most the budget ever holds.
  std::int64_t remaining = 0;  // Whole units left.

  // Zero when allowed. Otherwise the smallest wait after which the same request would be allowed,
  // if nothing else happens: it is denied one tick earlier and admitted exactly then.
  Micros retry_after{0};

  // The smallest wait after which the budget is full again (fixed window: until the window ends).
  Micros reset_after{0};

  // Leaky bucket only: how long the caller should wait before it goes on, so that requests leave at
  // a constant rate. Zero in every denial.
  Micros delay{0};

  // Units of this budget that are on hold; see Action::kHold. Above zero, the waits are estimates:
  // they are those of a budget from which these units were spent.
  std::int64_t held = 0;

  friend bool operator==(const Decision&, const Decision&) = default;
};

}  // namespace sluice
