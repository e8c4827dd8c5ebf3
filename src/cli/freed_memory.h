// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <malloc.h>

#include <algorithm>
#include <cstddef>

namespace sluice::cli {

// The allocator keeps what was freed, scattered among what was not, for whoever comes next. After a
// storm of connections that is a lot, and nobody comes.
class FreedMemory {
 public:
  // To be called once in a while with how many connections are open; returns to the system what
  // those that were closed had needed, once they were many.
  void GiveBack(std::size_t open) {
    most_ = std::max(most_, open);
    if (most_ - open < kClosedMin) return;
    most_ = open;
    ::malloc_trim(0);
  }

 private:
  static constexpr std::size_t kClosedMin = 500;

  std::size_t most_ = 0;  // Connections since the last time.
};

}  // namespace sluice::cli
