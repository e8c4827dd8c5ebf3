// SPDX-License-Identifier: Apache-2.0
// For conditions that become true a moment later than the test can see.
#pragma once

#include <chrono>
#include <thread>

namespace sluice::testing_support {

// Waits until it holds; gives up after longer than anything takes on a busy machine.
template <typename Condition>
bool Eventually(Condition condition) {
  using Steady = std::chrono::steady_clock;
  for (const auto end = Steady::now() + std::chrono::minutes(1); Steady::now() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

}  // namespace sluice::testing_support
