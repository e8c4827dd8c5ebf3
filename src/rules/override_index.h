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

// Finds the override for a value of a rule's scope. Points into the rule. Immutable; safe to use
// from any thread.
class OverrideIndex {
 public:
  explicit OverrideIndex(const Rule& rule);

  // By the value itself, then by the smallest network that contains it, then by patterns in order;
  // null if none matches. `key` is the value's key (rules/key.h). If only the key is known, the
  // value is empty.
  const Override* Find(std::string_view value, std::string_view key) const;

 private:
  void Add(const Override& override, const Rule& rule);

  // Constant after construction.
  bool secret_;
  // By value; for a secret scope by key, so that a known hash is useless as a value.
  std::unordered_map<std::string_view, const Override*> keys_;
  std::deque<std::string> texts_;  // Of `keys_`, where they differ from the file.
  NetworkMap networks_;
  std::vector<std::pair<std::string_view, const Override*>> patterns_;
};

}  // namespace sluice::rules
