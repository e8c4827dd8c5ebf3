// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rules/context.h"
#include "rules/path_trie.h"
#include "rules/rule.h"

namespace sluice::rules {

// Rules that their paths do not tell apart, by the attributes that they ask for: those without a
// path, or with the same one. Each is found by one condition that must hold for it, the one that
// the fewest others share: an attribute's value, how its value begins, or that it is there. So time
// goes with the attributes of a request and the rules that one of them leads to. Points into the
// rules. Immutable; safe to use from any thread.
class AttributeIndex {
 public:
  using Target = PathTrie::Target;
  struct Source {
    const Rule* rule;
    Target target;
  };

  // Whether there is a condition that the rule can be found by.
  static bool CanFind(const Rule& rule);

  explicit AttributeIndex(std::span<const Source> sources);

  // Appends the targets of all rules whose conditions on attributes hold, in any order. There may
  // be others among them, and one may come more than once.
  void Match(std::span<const Attribute> attributes, std::vector<Target>& targets) const;

 private:
  using ByText = std::unordered_map<std::string_view, std::vector<Target>>;

  struct Values {
    ByText whole;
    ByText beginnings;
    std::vector<std::size_t> beginning_sizes;  // Ascending, each once.
  };

  // Constant after construction.
  std::unordered_map<std::string_view, Values> names_;
  std::vector<Target> others_;  // Of rules that cannot be found.
};

}  // namespace sluice::rules
