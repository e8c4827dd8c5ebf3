// SPDX-License-Identifier: Apache-2.0
#include "api/check_answer.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "api/decision_json.h"
#include "base/text.h"
#include "service/service_metrics.h"

namespace sluice::api {

using rules::Selected;
using service::RuleCheck;

namespace {

// A decision for the header fields: those of a look describe the current budget.
Decision InFields(Decision decision, const RuleCheck& check) {
  if (!check.looked() || !check.denied_band()) return decision;
  decision.allowed = true;
  decision.retry_after = Micros{0};
  return decision;
}

constexpr std::string_view kCharged = "charged";

// Whether nobody decided: the store failed, and the rule lets requests pass. All charges of a
// request share one source, even those that this instance decided from its own share; but a budget
// that was charged has less than all left.
bool IsUndecided(const RuleCheck::Outcome& outcome) {
  if (outcome.error) return true;
  const Decision& first = outcome.bands.front();
  return outcome.source == Source::kFailOpen && first.remaining == first.limit;
}

// The verdict on a rule that has limits for the request.
std::string_view ChargeVerdict(const RuleCheck& check, const RuleCheck::Outcome& outcome) {
  if (outcome.bands.empty()) return "not-charged";  // Refused before any limit was asked.
  if (check.looked()) return "looked";
  if (outcome.denied) return "denied";
  const bool allowed = outcome.selected->rule->shadow || check.decision()->allowed;
  if (!allowed) return "not-charged";
  if (IsUndecided(outcome)) return "undecided";
  return outcome.selected->cost == 0 ? "looked" : kCharged;
}

std::string_view VerdictName(const RuleCheck& check, const RuleCheck::Outcome& outcome) {
  switch (outcome.selected->verdict) {
    case Selected::Verdict::kCharge:
      return ChargeVerdict(check, outcome);
    case Selected::Verdict::kUnlimited:
      return "unlimited";
    case Selected::Verdict::kBlocked:
      return "blocked";
    case Selected::Verdict::kMissingKey:
      return "missing-key";
  }
  std::unreachable();
}

bool IsCharged(const RuleCheck& check) {
  return std::ranges::any_of(check.outcomes(), [&](const RuleCheck::Outcome& outcome) {
    return !outcome.selected->rule->shadow && VerdictName(check, outcome) == kCharged;
  });
}

void AppendOutcome(JsonWriter& json, const RuleCheck& check, const RuleCheck::Outcome& outcome) {
  const Selected& selected = *outcome.selected;
  json.BeginObject().Field("rule", selected.rule->id);
  json.Field("scope", ToString(selected.rule->scope)).BytesField("key", selected.key);
  json.Field("shadow", selected.rule->shadow).Field("verdict", VerdictName(check, outcome));
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

// The field of a check that would have named the budget's owner.
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

std::vector<service::Policy> PoliciesOf(const RuleCheck& check) {
  std::vector<service::Policy> policies;
  for (const RuleCheck::Outcome& outcome : check.outcomes()) {
    if (outcome.selected->rule->shadow) continue;
    for (std::size_t i = 0; i < outcome.bands.size(); ++i) {
      const rules::Band& band = outcome.selected->bands[i];
      policies.push_back(
          {.name = band.name, .limit = &band.limit, .decision = InFields(outcome.bands[i], check)});
    }
  }
  return policies;
}

void AppendFields(std::string& headers, const RuleCheck& check,
                  std::span<const service::Policy> policies, TimePoint now,
                  service::BandFields band_fields) {
  const Decision& decision = *check.decision();
  // A request refused by a rule without a limit has no numbers, and no time when it would pass.
  const bool has_numbers = check.limited() && (decision.allowed || check.denied_band());
  if (has_numbers) {
    service::AppendRateLimitFields(headers, InFields(decision, check), policies, now);
    if (band_fields == service::BandFields::kYes) service::AppendBandFields(headers, policies);
  }
  if (check.source() != Source::kStore) {
    headers += text::Cat("X-Sluice-Source: ", ToString(check.source()), "\r\n");
  }
  if (decision.delay > Micros{0}) {
    headers += text::Cat("X-Sluice-Delay-Micros: ", decision.delay.count(), "\r\n");
  }
}

void AppendCheck(JsonWriter& json, const RuleCheck& check) {
  AppendDecision(json, *check.decision());
  json.Field("ruleSet", check.rule_set().id());
  json.Field("generation", check.catalog().generation);
  json.Field("ruleApplied", !check.outcomes().empty()).Field("limited", check.limited());
  json.Field("charged", IsCharged(check));
  json.Field("source", ToString(check.source()));
  if (const rules::Rule* rule = check.denied_by()) {
    json.Key("deniedBy").BeginObject().Field("rule", rule->id);
    if (check.denied_band()) json.Field("band", check.denied_band()->label);
    json.EndObject();
  }
  json.Key("rules").BeginArray();
  for (const RuleCheck::Outcome& outcome : check.outcomes()) {
    AppendOutcome(json, check, outcome);
  }
  json.EndArray();
  AppendSkipped(json, check.skipped());
  json.Field("message", MessageOf(check));
}

}  // namespace sluice::api
