// SPDX-License-Identifier: Apache-2.0
// Decisions as replies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "resp/reply_writer.h"
#include "service/rule_check.h"
#include "sluice/decision.h"
#include "sluice/limit.h"
#include "sluice/store.h"

namespace sluice::resp {

// How the decision on one limit is answered.
enum class Dialect : std::uint8_t {
  kCell,    // limited, limit, remaining, retry after, reset after: seconds, as redis-cell.
  kCrab,    // allowed, limit, remaining, reset after, retry after: seconds, as throttlecrab.
  kFields,  // Named fields; microseconds.
};

enum class Grant : std::uint8_t {
  kDecided,
  kNever,  // What was asked for can never be granted: the decision is a look at the state.
};

// The five integers of redis-cell or throttlecrab. Waits are rounded up: a client told to come back
// too early would be denied again.
void WriteIntegers(std::string& out, const Decision& decision, Dialect dialect, Grant grant);

// `said` is what denied, if it was denied: the limit as it was given.
void WriteFields(ReplyWriter reply, const Decision& decision, Source source, const Limit& limit,
                 std::string_view said);

// `detail`: with each band's own numbers.
void WriteRules(ReplyWriter reply, const service::RuleCheck& check, bool detail);

}  // namespace sluice::resp
