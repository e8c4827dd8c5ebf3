// SPDX-License-Identifier: Apache-2.0
// Writes decisions as replies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "resp/reply_writer.h"
#include "service/hold_call.h"
#include "service/limit_hold.h"
#include "service/rule_check.h"
#include "sluice/decision.h"
#include "sluice/limit.h"
#include "sluice/store.h"

namespace sluice::resp {

// The format of the reply about one limit.
enum class Dialect : std::uint8_t {
  kCell,    // limited, limit, remaining, retry after, reset after: seconds, like redis-cell.
  kCrab,    // allowed, limit, remaining, reset after, retry after: seconds, like throttlecrab.
  kFields,  // Named fields; microseconds.
};

enum class Grant : std::uint8_t {
  kDecided,
  kNever,  // The request can never be granted: the decision is a look at the state.
};

// The five integers of redis-cell or throttlecrab. Waits are rounded up: a client told to retry too
// early would be denied again.
void WriteIntegers(std::string& out, const Decision& decision, Dialect dialect, Grant grant);

// `said` is the limit as the client gave it, shown if it denied.
void WriteFields(ReplyWriter reply, const Decision& decision, Source source, const Limit& limit,
                 std::string_view said);

// `detail`: includes each band's own numbers.
void WriteRules(ReplyWriter reply, const service::RuleCheck& check, bool detail);

// The fields of a check, and then those of the hold. None was made if it was denied.
void WriteHeld(ReplyWriter reply, const service::LimitHold& hold, std::string_view said,
               const std::optional<service::MadeHold>& made);
void WriteRulesHeld(ReplyWriter reply, const service::RuleCheck& check, bool detail,
                    const std::optional<service::MadeHold>& made);

// What a client asks about a hold that it has.
enum class HoldChange : std::uint8_t { kSettle, kRelease, kExtend };

void WriteHoldChange(ReplyWriter reply, const service::HoldCall& call, HoldChange change);

// The numbers after giving back.
void WriteGiven(ReplyWriter reply, const Decision& decision, Source source);
void WriteRulesGiven(ReplyWriter reply, const service::RuleCheck& check);

}  // namespace sluice::resp
