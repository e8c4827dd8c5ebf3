// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "replay/record.h"
#include "replay/timeline.h"
#include "sluice/decision.h"
#include "sluice/limit.h"

namespace sluice::replay {

// The result of a replay. Memory grows with the number of distinct keys that were denied.
class Summary {
 public:
  explicit Summary(std::vector<Limit> limits)
      : limits_(std::move(limits)), denied_by_(limits_.size()) {}

  // `each` holds the decision of every limit, in order.
  void Add(const Record& record, const Decision& overall, std::span<const Decision> each);
  void AddBadLine() { ++bad_lines_; }

  std::int64_t requests() const { return allowed_ + denied_; }
  std::int64_t bad_lines() const { return bad_lines_; }

  std::string ToText() const;
  std::string ToJson() const;  // One line.

 private:
  using KeyCount = std::pair<std::string_view, std::int64_t>;
  std::vector<KeyCount> TopDenied() const;

  struct KeyHash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  const std::vector<Limit> limits_;
  std::vector<std::int64_t> denied_by_;
  std::int64_t allowed_ = 0;
  std::int64_t denied_ = 0;
  std::int64_t bad_lines_ = 0;
  std::int64_t first_us_ = 0;
  std::int64_t last_us_ = 0;
  std::unordered_map<std::string, std::int64_t, KeyHash, std::equal_to<>> denied_keys_;
  Timeline timeline_;
};

}  // namespace sluice::replay
