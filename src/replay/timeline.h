// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace sluice::replay {

// Allowed and denied requests over time, in at most kRowsMax rows of equal width. The width starts
// at a microsecond and grows as the times spread, so that neither the first nor the last time need
// be known in advance.
class Timeline {
 public:
  static constexpr std::int64_t kRowsMax = 24;

  struct Counts {
    std::int64_t allowed = 0;
    std::int64_t denied = 0;
  };

  void Add(std::int64_t time_us, bool allowed);

  std::int64_t width_us() const;

  // By row number; a row starts at number * width_us(). Rows without requests are absent.
  const std::map<std::int64_t, Counts>& rows() const { return rows_; }

 private:
  void Widen();

  std::size_t step_ = 0;
  std::map<std::int64_t, Counts> rows_;
};

}  // namespace sluice::replay
