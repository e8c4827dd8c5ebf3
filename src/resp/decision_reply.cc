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

constexpr std::size_t kFields = 8;

std::int64_t CeilSeconds(Micros wait) {
  return std::chrono::ceil<std::chrono::seconds>(wait).count();
}

void WriteNumbers(ReplyWriter& reply, const Decision& decision, bool limited) {
  reply.Field("allowed", decision.allowed ? 1 : 0);
  if (limited) {
    reply.Field("limit", decision.limit);
    reply.Field("remaining", decision.remaining);
  } else {
    reply.Bulk("limit");
    reply.Null();
    reply.Bulk("remaining");
    reply.Null();
  }
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

void WriteBands(ReplyWriter& reply, const service::RuleCheck& check) {
  std::size_t count = 0;
  for (const auto& outcome : check.outcomes()) count += outcome.bands.size();
  reply.Bulk("bands");
  reply.Array(count);
  for (const auto& outcome : check.outcomes()) {
    for (std::size_t i = 0; i < outcome.bands.size(); ++i) {
      const Decision& decision = outcome.bands[i];
      const Limit& limit = outcome.selected->bands[i].limit;
      reply.Map(8 + QueuedFields(limit));
      reply.Field("rule", outcome.selected->rule->id);
      reply.Field("band", outcome.selected->bands[i].label);
      reply.Field("shadow", outcome.selected->rule->shadow ? 1 : 0);
      reply.Field("allowed", decision.allowed ? 1 : 0);
      reply.Field("limit", decision.limit);
      reply.Field("remaining", decision.remaining);
      reply.Field("retry_after_us", decision.retry_after.count());
      reply.Field("reset_after_us", decision.reset_after.count());
      WriteQueued(reply, limit, decision);
    }
  }
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
  reply.Map(kFields + QueuedFields(limit));
  WriteNumbers(reply, decision, true);
  WriteDeniedBy(reply, decision.allowed ? std::nullopt : std::optional(said));
  reply.Field("source", ToString(source));
  WriteQueued(reply, limit, decision);
}

void WriteRules(ReplyWriter reply, const service::RuleCheck& check, bool detail) {
  if (!check.decision()) {
    reply.Error(check.decision().error());
    return;
  }
  std::string denied_by;
  if (check.denied_by()) denied_by = check.denied_by()->id;
  if (check.denied_band()) denied_by += text::Cat("/", check.denied_band()->label);

  reply.Map(detail ? kFields + 1 : kFields);
  WriteNumbers(reply, *check.decision(), check.limited());
  WriteDeniedBy(reply,
                denied_by.empty() ? std::nullopt : std::optional<std::string_view>(denied_by));
  reply.Field("source", ToString(check.source()));
  if (detail) WriteBands(reply, check);
}

}  // namespace sluice::resp
