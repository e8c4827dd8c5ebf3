// SPDX-License-Identifier: Apache-2.0
#include "api/check_answer.h"

#include <span>
#include <string>

#include "api/decision_json.h"
#include "base/text.h"
#include "service/service_metrics.h"

namespace sluice::api {

using rules::Selected;
using service::RuleCheck;

namespace {

constexpr std::string_view VerdictName(Selected::Verdict verdict) {
  switch (verdict) {
    case Selected::Verdict::kCharge:
      return "charged";
    case Selected::Verdict::kUnlimited:
      return "unlimited";
    case Selected::Verdict::kBlocked:
      return "blocked";
    case Selected::Verdict::kMissingKey:
      return "missing-key";
  }
  return "charged";
}

void AppendOutcome(JsonWriter& json, const RuleCheck::Outcome& outcome, bool looked) {
  const Selected& selected = *outcome.selected;
  const bool only_looked = looked && selected.verdict == Selected::Verdict::kCharge;
  json.BeginObject().Field("rule", selected.rule->id);
  json.Field("scope", ToString(selected.rule->scope)).BytesField("key", selected.key);
  json.Field("shadow", selected.rule->shadow);
  json.Field("verdict", only_looked ? "looked" : VerdictName(selected.verdict));
  json.Field("denied", outcome.denied).Field("cost", selected.cost);
  if (outcome.error) json.Field("error", ToString(outcome.error->code));
  json.Key("bands").BeginArray();
  for (std::size_t i = 0; i < outcome.bands.size(); ++i) {
    const rules::Band& band = selected.bands[i];
    json.BeginObject().Field("label", band.label);
    json.Field("algorithm", service::UpperName(band.limit.algorithm()));
    AppendDecision(json, outcome.bands[i]);
    AppendQueued(json, band.limit, outcome.bands[i]);
    json.EndObject();
  }
  json.EndArray().EndObject();
}

// Where a check would have said whose budget it is.
std::string MissingField(const rules::Rule& rule) {
  switch (rule.scope) {
    case rules::Scope::kPerIp:
      return "context.ip";
    case rules::Scope::kPerUser:
      return "context.userId";
    case rules::Scope::kPerApiKey:
      return "context.apiKey";
    case rules::Scope::kCustom:
      if (rule.attribute.starts_with(rules::kCapturePrefix)) return "context.path";
      return text::Cat("context.attributes.", rule.attribute);
    case rules::Scope::kGlobal:
      break;
  }
  return {};
}

void AppendSkipped(JsonWriter& json, std::span<const rules::Rule* const> skipped) {
  if (skipped.empty()) return;
  json.Key("skipped").BeginArray();
  for (const rules::Rule* rule : skipped) {
    json.BeginObject().Field("rule", rule->id).Field("scope", ToString(rule->scope));
    json.Field("missing", MissingField(*rule)).EndObject();
  }
  json.EndArray();
}

}  // namespace

std::string_view MessageOf(const RuleCheck& check) {
  if (check.looked() && check.limited() && (check.decision()->allowed || check.denied_band())) {
    return LookMessage(check.decision()->allowed);
  }
  if (!check.decision()->allowed) {
    return check.denied_band() ? "Rate limit exceeded" : "Refused by a rule";
  }
  return check.outcomes().empty() ? "No rule applied" : "Request allowed";
}

void AppendCheck(JsonWriter& json, const RuleCheck& check) {
  AppendDecision(json, *check.decision());
  json.Field("ruleSet", check.rule_set().id());
  json.Field("generation", check.catalog().generation);
  json.Field("ruleApplied", !check.outcomes().empty()).Field("limited", check.limited());
  json.Field("charged", check.limited() && check.decision()->allowed && !check.looked());
  json.Field("source", SourceName(check.source()));
  if (const rules::Rule* rule = check.denied_by()) {
    json.Key("deniedBy").BeginObject().Field("rule", rule->id);
    if (check.denied_band()) json.Field("band", check.denied_band()->label);
    json.EndObject();
  }
  json.Key("rules").BeginArray();
  for (const RuleCheck::Outcome& outcome : check.outcomes()) {
    AppendOutcome(json, outcome, check.looked());
  }
  json.EndArray();
  AppendSkipped(json, check.skipped());
  json.Field("message", MessageOf(check));
}

}  // namespace sluice::api
