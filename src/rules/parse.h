// SPDX-License-Identifier: Apache-2.0
// Reads rule sets from YAML, and so from JSON. Reports all problems, not only the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <string_view>

#include "base/problem.h"
#include "rules/rule_book.h"
#include "rules/rule_set.h"

namespace sluice::rules {

// How to treat keys beside `ruleSets`.
enum class OtherKeys : std::uint8_t {
  kForbid,  // They are problems.
  kIgnore,  // Others read them; a file without `ruleSets` has none.
};

// A document with the key `ruleSets`. An empty document has no rule sets. `file` is for messages.
std::expected<RuleSets, Problems> ParseRuleSets(std::string_view yaml, std::string_view file,
                                                OtherKeys other_keys = OtherKeys::kForbid);

// A document that is one rule set.
std::expected<std::shared_ptr<const RuleSet>, Problems> ParseRuleSet(std::string_view yaml,
                                                                     std::string_view file);

}  // namespace sluice::rules
