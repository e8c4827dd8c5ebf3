// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "simulate/bug.h"

namespace sluice::simulate {

// The result of a history.
struct Summary {
  std::int64_t simulated_us = 0;
  std::int64_t requests = 0;
  std::array<std::int64_t, 6> answers{};  // By source; the last: errors.
  std::int64_t calls = 0;                 // Of the script.
  std::int64_t faults = 0;
  std::int64_t holds = 0;  // Granted.
  std::int64_t settles = 0;
  std::int64_t late_settles = 0;
};

// Runs one history: instances, clients, limits and faults are drawn from the seed. The same seed
// gives the same history. Throws Failure at the first wrong answer. With `traces`, prints what
// happens.
Summary RunHistory(std::uint64_t seed, const Bug& bug, bool traces);

}  // namespace sluice::simulate
