// SPDX-License-Identifier: Apache-2.0
// The words of SLUICE.CHECK and the commands like it: what comes after a limit and its key, or
// after a rule set.
#pragma once

#include <cstdint>
#include <vector>

#include "resp/arguments.h"
#include "rules/context.h"
#include "service/hold_ticket.h"

namespace sluice::resp {

// What a command does with the budgets that it names.
enum class Taking : std::uint8_t { kTake, kPeek, kReset, kHold, kGive };

// Views into the arguments.
struct CheckWords {
  std::int64_t cost = 1;
  service::HoldWish wish;
  rules::Context context;
  bool detail = false;

  // Everything after LIMIT; `arguments` are all of the command.
  Expected<void> ReadLimit(Arguments arguments, Taking taking);

  // Everything after RULESET and its id. The context points to `attributes`.
  Expected<void> ReadRules(Arguments arguments, Taking taking,
                           std::vector<rules::Attribute>& attributes);

 private:
  Expected<bool> Read(Options& options, Taking taking);
};

// "30s", from kHoldTtlMin to kHoldTtlMax.
Expected<Micros> ReadTtl(std::string_view text);

}  // namespace sluice::resp
