// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rules/rule_set.h"

namespace sluice::api {

// A band in which a key has a budget.
struct KeyBand {
  const rules::Rule* rule;
  const rules::Band* band;
  std::string key;  // As stored.
};

// Why this cannot be the key of a budget, though it may look like one: it is masked or truncated.
// Empty if it can.
std::string WhyNoKey(std::string_view written);

// All bands of a rule set under which a key can have state; those of its override where one
// applies. The key is written as in answers ("ip:192.0.2.1", "apikey#…", "global"), with the value
// behind a hash ("apikey:k"), or with the hash as in overrides ("apikey:sha256:…"). Overrides by
// pattern are found only by value.
std::vector<KeyBand> BandsOf(const rules::RuleSet& rule_set, std::string_view written);

}  // namespace sluice::api
