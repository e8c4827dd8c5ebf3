// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>

namespace sluice::daemon {

// The allocator keeps freed memory for later use, scattered among memory in use. After a storm of
// connections, a reload or a purge that is a lot, and often nobody needs it.
class FreedMemory {
 public:
  // From here on, large pieces go back to the system as soon as they are freed.
  FreedMemory();

  // Call about once a second. Returns to the system what has been free for some seconds, whoever
  // has freed it, once there is enough of it.
  void GiveBack();

 private:
  using Steady = std::chrono::steady_clock;

  Steady::time_point next_look_{};
  std::size_t resident_min_;  // The lowest ever seen.
  std::size_t returned_ = 0;  // Free bytes already returned, at most.
  std::size_t free_ = 0;      // At the last check.
};

}  // namespace sluice::daemon
