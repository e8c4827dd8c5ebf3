// SPDX-License-Identifier: Apache-2.0
#include "api/key_search.h"

#include <algorithm>
#include <utility>

#include "api/decision_json.h"
#include "api/key_state.h"
#include "api/rate_limit_api.h"
#include "base/text.h"
#include "core/seen.h"
#include "rules/key.h"
#include "rules/rls_key.h"

namespace sluice::api {
namespace {

void AddRules(std::vector<KeyLimit>& found, const rules::RuleSet& rule_set,
              std::string_view written) {
  for (KeyBand& band : BandsOf(rule_set, written)) {
    found.push_back({.rule_set = &rule_set,
                     .rule = band.rule,
                     .band = band.band,
                     .limit = &band.band->limit,
                     .state = band.band->name,
                     .key = std::move(band.key)});
  }
}

void AddOfAnyKey(std::vector<KeyLimit>& found, std::string_view state, const Limit& limit,
                 std::string_view written) {
  if (written.size() > kKeyBytesMax) return;
  found.push_back({.name = state,
                   .limit = &limit,
                   .state = state,
                   .key = std::string(written),
                   .any_key = true});
}

void AddDescriptor(std::vector<KeyLimit>& found, const service::Catalog& catalog,
                   std::string_view written) {
  rules::RlsMatch match = rules::FindRlsLimit(*catalog.domains, written);
  if (match.limit == nullptr || !match.limit->limit) return;
  const auto& domain = *catalog.domains->Find(rules::ReadRlsKey(written)->domain);
  found.push_back(LimitOf(domain, std::move(match)));
}

// Everything except the rules.
void AddOthers(std::vector<KeyLimit>& found, const service::Catalog& catalog,
               std::string_view written) {
  AddDescriptor(found, catalog, written);
  for (const auto& [name, limit] : catalog.limits) AddOfAnyKey(found, name, limit, written);
  for (const auto& [algorithm, limit] : catalog.defaults) {
    AddOfAnyKey(found, NamedState(algorithm), limit, written);
    AddOfAnyKey(found, AddressState(algorithm), limit, written);
  }
}

}  // namespace

std::vector<KeyLimit> LimitsOf(const rules::RuleSet& rule_set, std::string_view written) {
  std::vector<KeyLimit> found;
  AddRules(found, rule_set, written);
  return found;
}

std::vector<KeyLimit> LimitsOf(const service::Catalog& catalog, std::string_view written) {
  std::vector<KeyLimit> found;
  for (const auto& rule_set : catalog.rules->rule_sets()) {
    AddRules(found, *rule_set, written);
    if (found.size() >= kKeyLimitsMax) break;
  }
  AddOthers(found, catalog, written);
  if (found.size() > kKeyLimitsMax) found.resize(kKeyLimitsMax);
  return found;
}

KeyLimit LimitOf(const rules::RlsDomain& domain, rules::RlsMatch match) {
  const rules::RlsLimit& limit = *match.limit;
  return {.name = limit.name.empty() ? limit.path : limit.name,
          .domain = domain.name(),
          .limit = limit.limit ? &*limit.limit : nullptr,
          .state = rules::kRlsStateName,
          .key = std::move(match.key)};
}

KeyLimit FindLimit(const service::Catalog& catalog, std::string_view state, std::string_view key) {
  const StateName name = StateName::Read(state);
  std::vector<KeyLimit> candidates;
  if (const auto* rule_set = name.is_rule() ? catalog.rules->Find(name.rule_set) : nullptr) {
    candidates = LimitsOf(*rule_set, key);
  } else if (!name.is_rule()) {
    AddOthers(candidates, catalog, key);
  }
  const auto found = std::ranges::find(candidates, state, &KeyLimit::state);
  return found == candidates.end() ? KeyLimit{} : std::move(*found);
}

StateName StateName::Read(std::string_view name) {
  const auto first = name.find('/');
  const auto second = name.find('/', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return {.other = name};
  return {.rule_set = name.substr(0, first),
          .rule = name.substr(first + 1, second - first - 1),
          .band = name.substr(second + 1)};
}

std::string RefOf(std::string_view key) {
  const auto at = key.find('#');
  if (at == std::string_view::npos) return {};
  if (key.contains('|')) return std::string(key);  // A descriptor's.
  const std::string hash = text::Cat("sha256:", key.substr(at + 1));
  const bool secret = rules::IsHash(hash) && rules::IsSecretName(key.substr(0, at));
  return secret ? text::Cat(key.substr(0, at), ":", hash) : std::string(key);
}

void AppendPlace(JsonWriter& json, const KeyLimit& limit) {
  if (limit.rule_set) {
    json.Field("ruleSet", limit.rule_set->id()).Field("rule", limit.rule->id);
    json.Field("band", limit.band->label);
  } else {
    if (!limit.domain.empty()) json.Field("domain", limit.domain);
    json.Field("name", limit.name);
  }
}

bool IsUntouched(const Request& look) {
  return look.outcome && look.outcome->remaining == look.outcome->limit;
}

void AppendLook(JsonWriter& json, const Limit& limit, const Request& look) {
  json.Field("spec", limit.ToString());
  if (!look.outcome) {
    json.Field("error", ToString(look.outcome.error().code));
    return;
  }
  AppendDecision(json, core::Foresee(limit, *look.outcome, look.seen.front(), 1));
  AppendQueued(json, limit, *look.outcome);
  json.Field("untouched", IsUntouched(look)).Field("source", ToString(look.source));
}

}  // namespace sluice::api
