// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "rules/rule_set.h"

namespace sluice::api {

// A band whose budget a key has.
struct KeyBand {
  const rules::Rule* rule;
  const rules::Band* band;
};

// All bands of a rule set under which a key, as answers show it ("ip:192.0.2.1", "global"), can
// have state; those of its override where one applies. A key that was shown as a hash ("ip#…") has
// the bands of its scope.
std::vector<KeyBand> BandsOf(const rules::RuleSet& rule_set, std::string_view key);

}  // namespace sluice::api
