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

// Finds rules that paths do not distinguish, having none or the same one, by the attributes that
// they require. Each is found by one condition that must hold for it, the one that the fewest
// others share: an attribute's value, the beginning of its value, or its presence. So time depends
// on the attributes of a request and the rules that they lead to. Points into the rules. Immutable;
// safe to use from any thread.
class AttributeIndex {
 public:
  using Target = PathTrie::Target;
  struct Source {
    const Rule* rule;
    Target target;
  };

  // Whether the rule has a condition that it can be found by.
  static bool CanFind(const Rule& rule);

  explicit AttributeIndex(std::span<const Source> sources);

  // Appends the targets of all rules whose attribute conditions hold, in any order. May append
  // others, and some more than once.
  void Match(std::span<const Attribute> attributes, std::vector<Target>& targets) const;

 private:
  using ByText = std::unordered_map<std::string_view, std::vector<Target>>;

  struct Values {
    ByText exact;
    ByText beginnings;
    std::vector<std::size_t> beginning_sizes;  // Ascending, each once.
  };

  // Constant after construction.
  std::unordered_map<std::string_view, Values> names_;
  std::vector<Target> others_;  // Rules that cannot be found by attributes.
};

}  // namespace sluice::rules
