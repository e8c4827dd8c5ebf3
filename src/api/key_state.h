// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rules/rule_set.h"

namespace sluice::api {

// A band whose budget a key has.
struct KeyBand {
  const rules::Rule* rule;
  const rules::Band* band;
  std::string key;  // As it is stored.
};

// Why this cannot be the key of a budget, though it may look like one: it is covered or cut off.
// Empty if it can.
std::string WhyNoKey(std::string_view written);

// All bands of a rule set under which a key can have state; those of its override where one
// applies. It is written as answers show it ("ip:192.0.2.1", "apikey#…", "global"), with the value
// that a hash stands for ("apikey:k"), or with the hash as overrides have it ("apikey:sha256:…").
// Overrides by pattern are found by their value only.
std::vector<KeyBand> BandsOf(const rules::RuleSet& rule_set, std::string_view written);

}  // namespace sluice::api
