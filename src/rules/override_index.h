// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rules/network_map.h"
#include "rules/rule.h"

namespace sluice::rules {

// Which of a rule's overrides a value of its scope gets. Points into the rule. Immutable; safe to
// use from any thread.
class OverrideIndex {
 public:
  explicit OverrideIndex(const Rule& rule);

  // By the value itself, then by the smallest network that holds it, then by patterns in order;
  // null if none matches. `key` is the value's key (rules/key.h). A value that is known by its key
  // alone is empty.
  const Override* Find(std::string_view value, std::string_view key) const;

 private:
  void Add(const Override& override, const Rule& rule);

  // Constant after construction.
  bool secret_;
  // By value; of a secret scope by key, so that a hash that was seen is of no use as a value.
  std::unordered_map<std::string_view, const Override*> keys_;
  std::deque<std::string> texts_;  // Of `keys_`, where they are not as written.
  NetworkMap networks_;
  std::vector<std::pair<std::string_view, const Override*>> patterns_;
};

}  // namespace sluice::rules
