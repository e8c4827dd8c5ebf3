// SPDX-License-Identifier: Apache-2.0
#include "api/audit.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "rules/rule_set.h"

namespace sluice::api {
namespace {

using rules::Rule;
using rules::RuleSet;

constexpr std::size_t kRulesCompared = 1000;  // For larger rule sets, the hash must do.
constexpr std::size_t kHashDigitsShown = 16;

std::string SummaryOf(const RuleSet* rule_set) {
  if (rule_set == nullptr) return "none";
  return text::Cat("hash=", rule_set->hash().substr(0, kHashDigitsShown),
                   rule_set->enabled() ? "" : " disabled", " rules=", rule_set->rules().size());
}

// "per-ip(burst: limit=10,window=1s)"
std::string SummaryOf(const Rule& rule) {
  std::string bands;
  for (const rules::Band& band : rule.bands) {
    bands += text::Cat(bands.empty() ? "" : "; ", band.label, ": ", band.limit.ToString());
  }
  return text::Cat(" ", rule.id, rule.enabled ? "" : " disabled", rule.shadow ? " shadow" : "", "(",
                   bands, ")");
}

std::map<std::string_view, const Rule*> ById(const RuleSet* rule_set) {
  std::map<std::string_view, const Rule*> by_id;
  if (rule_set == nullptr || rule_set->rules().size() > kRulesCompared) return by_id;
  for (const Rule& rule : rule_set->rules()) by_id.emplace(rule.id, &rule);
  return by_id;
}

bool IsSame(const Rule& a, const Rule& b) {
  return RuleSet::Compile({.rules = {a}})->hash() == RuleSet::Compile({.rules = {b}})->hash();
}

// Adds the rules of one side that are missing or different on the other.
void AppendDifferences(std::string& out, const std::map<std::string_view, const Rule*>& rules,
                       const std::map<std::string_view, const Rule*>& others) {
  for (const auto& [id, rule] : rules) {
    const auto other = others.find(id);
    if (other != others.end() && IsSame(*rule, *other->second)) continue;
    // The log shows only the beginning of longer texts.
    if (out.size() > telemetry::Logger::kTextBytesMax) return;
    out += SummaryOf(*rule);
  }
}

}  // namespace

Author Author::Of(const http::Request& request, const net::Access& access) {
  Author author{.caller = "local", .address = request.peer.to_string()};
  if (access.open()) return author;
  const auto name = access.Find(net::BearerToken(request.FindHeader("Authorization")));
  author.caller = name && !name->empty() ? *name : "token";
  return author;
}

void LogChange(telemetry::Logger& logger, const Author& author, std::string_view request_id,
               const AuditedChange& change) {
  logger.Info("changed through the admin API", {{"action", change.action},
                                                {"target", change.target},
                                                {"before", change.before},
                                                {"after", change.after},
                                                {"caller", author.caller},
                                                {"address", author.address},
                                                {"request_id", request_id}});
}

void LogReset(telemetry::Logger& logger, const Author& author, std::string_view request_id,
              std::string_view target, std::span<const Request> resets) {
  const auto succeeded = [](const Request& reset) { return reset.outcome.has_value(); };
  const auto was_used = [&](const Request& reset) { return succeeded(reset) && reset.existed; };
  const bool known = std::ranges::all_of(resets, succeeded);
  const std::string before =
      text::Cat(std::ranges::count_if(resets, was_used), " of ", resets.size(), " budgets used");
  LogChange(logger, author, request_id,
            {.action = "reset",
             .target = target,
             .before = before,
             .after = known ? "all full" : "unknown"});
}

void LogChange(telemetry::Logger& logger, const Author& author, std::string_view request_id,
               std::string_view action, std::string_view id,
               const reload::Keeper::Outcome& outcome) {
  if (!logger.Enabled(telemetry::LogLevel::kInfo)) return;
  const bool known = outcome.result.has_value();
  // A refused change is not a change.
  if (!known && outcome.result.error().code != ErrorCode::kOutcomeUnknown) return;
  std::string before = SummaryOf(outcome.before.get());
  std::string after = known ? SummaryOf(outcome.after.get()) : "unknown";
  const auto rules_before = ById(outcome.before.get());
  const auto rules_after = ById(outcome.after.get());
  AppendDifferences(before, rules_before, rules_after);
  AppendDifferences(after, rules_after, rules_before);
  const std::string target = text::Cat("rule set ", id);
  LogChange(logger, author, request_id,
            {.action = action, .target = target, .before = before, .after = after});
}

}  // namespace sluice::api
