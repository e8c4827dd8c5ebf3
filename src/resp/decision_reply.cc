// SPDX-License-Identifier: Apache-2.0
#include "resp/decision_reply.h"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "base/text.h"
#include "core/algorithms.h"

namespace sluice::resp {
namespace {

constexpr std::size_t kFields = 8;      // Of every check.
constexpr std::size_t kHoldFields = 4;  // Of every hold, beside those.

std::int64_t CeilSeconds(Micros wait) {
  return std::chrono::ceil<std::chrono::seconds>(wait).count();
}

void WriteOrNull(ReplyWriter& reply, std::string_view name, std::optional<std::int64_t> value) {
  reply.Bulk(name);
  value ? reply.Integer(*value) : reply.Null();
}

void WriteBudget(ReplyWriter& reply, const Decision& decision, bool limited) {
  WriteOrNull(reply, "limit", limited ? std::optional(decision.limit) : std::nullopt);
  WriteOrNull(reply, "remaining", limited ? std::optional(decision.remaining) : std::nullopt);
}

void WriteNumbers(ReplyWriter& reply, const Decision& decision, bool limited) {
  reply.Field("allowed", decision.allowed ? 1 : 0);
  WriteBudget(reply, decision, limited);
  reply.Field("retry_after_us", decision.retry_after.count());
  reply.Field("reset_after_us", decision.reset_after.count());
  reply.Field("delay_us", decision.delay.count());
}

void WriteDeniedBy(ReplyWriter& reply, std::optional<std::string_view> denied_by) {
  reply.Bulk("denied_by");
  denied_by ? reply.Bulk(*denied_by) : reply.Null();
}

// A queue has one more field: how much it holds.
std::size_t QueuedFields(const Limit& limit) {
  return core::RowOf(limit.algorithm()).queues ? 1 : 0;
}
void WriteQueued(ReplyWriter& reply, const Limit& limit, const Decision& decision) {
  if (QueuedFields(limit) > 0) reply.Field("queued", decision.limit - decision.remaining);
}

// So has a budget with holds.
std::size_t HeldFields(const Decision& decision) { return decision.held > 0 ? 1 : 0; }
void WriteOwnHeld(ReplyWriter& reply, const Decision& decision) {
  if (HeldFields(decision) > 0) reply.Field("held", decision.held);
}

void WriteHold(ReplyWriter& reply, const Decision& decision,
               const std::optional<service::MadeHold>& made) {
  reply.Bulk("id");
  made ? reply.Bulk(made->id) : reply.Null();
  const bool holds = made && made->holds;
  reply.Field("holds", holds ? 1 : 0);
  WriteOrNull(reply, "expires_at_us",
              holds ? std::optional(made->expires.time_since_epoch().count()) : std::nullopt);
  reply.Field("held", decision.held);
}

// What remains after a correction.
constexpr std::size_t kAfterwardsFields = 5;
void WriteAfterwards(ReplyWriter& reply, const Decision& decision, bool limited, Source source) {
  WriteBudget(reply, decision, limited);
  reply.Field("held", decision.held);
  reply.Field("reset_after_us", decision.reset_after.count());
  reply.Field("source", ToString(source));
}

void WriteBands(ReplyWriter& reply, const service::RuleCheck& check) {
  std::size_t count = 0;
  for (const auto& outcome : check.outcomes()) count += outcome.bands.size();
  reply.Bulk("bands");
  reply.Array(count);
  for (const auto& outcome : check.outcomes()) {
    for (std::size_t i = 0; i < outcome.bands.size(); ++i) {
      const Decision& decision = outcome.bands[i];
      const Limit& limit = outcome.selected->bands[i].limit;
      reply.Map(8 + QueuedFields(limit) + HeldFields(decision));
      reply.Field("rule", outcome.selected->rule->id);
      reply.Field("band", outcome.selected->bands[i].label);
      reply.Field("shadow", outcome.selected->rule->shadow ? 1 : 0);
      reply.Field("allowed", decision.allowed ? 1 : 0);
      reply.Field("limit", decision.limit);
      reply.Field("remaining", decision.remaining);
      reply.Field("retry_after_us", decision.retry_after.count());
      reply.Field("reset_after_us", decision.reset_after.count());
      WriteQueued(reply, limit, decision);
      WriteOwnHeld(reply, decision);
    }
  }
}

// The fields of every check of a limit.
void WriteCheck(ReplyWriter& reply, const Decision& decision, Source source, const Limit& limit,
                std::string_view said) {
  WriteNumbers(reply, decision, true);
  WriteDeniedBy(reply, decision.allowed ? std::nullopt : std::optional(said));
  reply.Field("source", ToString(source));
  WriteQueued(reply, limit, decision);
}

// Of a check of rules.
void WriteRulesCheck(ReplyWriter& reply, const service::RuleCheck& check, bool detail) {
  std::string denied_by;
  if (check.denied_by()) denied_by = check.denied_by()->id;
  if (check.denied_band()) denied_by += text::Cat("/", check.denied_band()->label);
  WriteNumbers(reply, *check.decision(), check.limited());
  WriteDeniedBy(reply,
                denied_by.empty() ? std::nullopt : std::optional<std::string_view>(denied_by));
  reply.Field("source", ToString(check.source()));
  if (detail) WriteBands(reply, check);
}

}  // namespace

void ReplyWriter::Error(const sluice::Error& error) {
  switch (error.code) {
    case ErrorCode::kCostExceedsLimit:
    case ErrorCode::kStoreFull:
    case ErrorCode::kIo:
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutcomeUnknown:
    case ErrorCode::kAccessDenied:
    case ErrorCode::kStoreError:
    case ErrorCode::kForeignState:
    case ErrorCode::kHoldLost:
    case ErrorCode::kHoldConflict:
    case ErrorCode::kNeedsHold:
    case ErrorCode::kTooManyHolds:
      Error(text::Cat(ToString(error.code), " ", error.message));
      return;
    default:
      Error(text::Cat("ERR ", error.message));
  }
}

void WriteIntegers(std::string& out, const Decision& decision, Dialect dialect, Grant grant) {
  const bool cell = dialect == Dialect::kCell;
  const bool allowed = decision.allowed && grant == Grant::kDecided;
  const std::int64_t no_wait = cell || grant == Grant::kNever ? -1 : 0;
  const std::int64_t retry = decision.allowed ? no_wait : CeilSeconds(decision.retry_after);
  const std::int64_t reset = CeilSeconds(decision.reset_after);
  const std::array<std::int64_t, 5> numbers = {cell == allowed ? 0 : 1, decision.limit,
                                               decision.remaining, cell ? retry : reset,
                                               cell ? reset : retry};

  std::array<char, 128> buffer;  // Enough for five 64-bit numbers.
  char* end = buffer.data();
  for (const char c : std::string_view("*5\r\n")) *end++ = c;
  for (const std::int64_t number : numbers) {
    *end++ = ':';
    end = std::to_chars(end, buffer.data() + buffer.size(), number).ptr;
    *end++ = '\r';
    *end++ = '\n';
  }
  out.append(buffer.data(), end);
}

void WriteFields(ReplyWriter reply, const Decision& decision, Source source, const Limit& limit,
                 std::string_view said) {
  reply.Map(kFields + QueuedFields(limit) + HeldFields(decision));
  WriteCheck(reply, decision, source, limit, said);
  WriteOwnHeld(reply, decision);
}

void WriteRules(ReplyWriter reply, const service::RuleCheck& check, bool detail) {
  if (!check.decision()) return reply.Error(check.decision().error());
  reply.Map(kFields + (detail ? 1 : 0) + HeldFields(*check.decision()));
  WriteRulesCheck(reply, check, detail);
  WriteOwnHeld(reply, *check.decision());
}

void WriteHeld(ReplyWriter reply, const service::LimitHold& hold, std::string_view said,
               const std::optional<service::MadeHold>& made) {
  const Limit& limit = hold.part().limit;
  reply.Map(kFields + QueuedFields(limit) + kHoldFields);
  WriteCheck(reply, *hold.decision(), hold.source(), limit, said);
  WriteHold(reply, *hold.decision(), made);
}

void WriteRulesHeld(ReplyWriter reply, const service::RuleCheck& check, bool detail,
                    const std::optional<service::MadeHold>& made) {
  if (!check.decision()) return reply.Error(check.decision().error());
  reply.Map(kFields + (detail ? 1 : 0) + kHoldFields);
  WriteRulesCheck(reply, check, detail);
  WriteHold(reply, *check.decision(), made);
}

void WriteHoldChange(ReplyWriter reply, const service::HoldCall& call, HoldChange change) {
  if (!call.decision()) return reply.Error(call.decision().error());
  const auto outcomes = call.outcomes();
  const bool extends = change == HoldChange::kExtend;
  reply.Map((extends ? 1 : 2) + kAfterwardsFields + 1);
  if (extends) {
    reply.Field("expires_at_us", call.terms().expires.time_since_epoch().count());
  } else {
    reply.Field("late", call.terms().late ? 1 : 0);
    reply.Field("overdrawn", call.terms().overdrawn ? 1 : 0);
  }
  WriteAfterwards(reply, *call.decision(), !outcomes.empty(), call.source());
  reply.Bulk("limits");
  reply.Array(outcomes.size());
  for (const service::HoldCall::Outcome& outcome : outcomes) {
    const bool costs = change == HoldChange::kSettle && !core::NeedsHold(outcome.limit);
    reply.Map(7);
    reply.Field("name", outcome.part.name.empty() ? outcome.limit.ToString() : outcome.part.name);
    reply.Field("key", outcome.part.key);
    WriteOrNull(reply, "cost", costs ? std::optional(outcome.actual) : std::nullopt);
    WriteBudget(reply, outcome.decision, true);
    reply.Field("held", outcome.decision.held);
    reply.Field("reset_after_us", outcome.decision.reset_after.count());
  }
}

void WriteGiven(ReplyWriter reply, const Decision& decision, Source source) {
  reply.Map(kAfterwardsFields);
  WriteAfterwards(reply, decision, true, source);
}

void WriteRulesGiven(ReplyWriter reply, const service::RuleCheck& check) {
  if (!check.decision()) return reply.Error(check.decision().error());
  reply.Map(kAfterwardsFields);
  // A rule that refuses without a limit has no numbers.
  WriteAfterwards(reply, *check.decision(), check.limited() && check.decision()->allowed,
                  check.source());
}

}  // namespace sluice::resp
