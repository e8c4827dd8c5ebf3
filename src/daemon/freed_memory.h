// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>

namespace sluice::daemon {

// The allocator keeps what was freed, scattered among what was not, for whoever comes next. After a
// storm of connections, a reload or a purge that is a lot, and often nobody comes.
class FreedMemory {
 public:
  // From here on, large pieces go back to the system as soon as they are freed.
  FreedMemory();

  // To be called about once a second. Returns to the system what has been free for some seconds,
  // whoever has freed it, once it is worth the trouble.
  void GiveBack();

 private:
  using Steady = std::chrono::steady_clock;

  Steady::time_point next_look_{};
  std::size_t resident_min_;  // Ever seen.
  std::size_t returned_ = 0;  // Free bytes that the system has, at most.
  std::size_t free_ = 0;      // At the last look.
};

}  // namespace sluice::daemon
