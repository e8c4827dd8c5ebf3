// SPDX-License-Identifier: Apache-2.0
#include "api/key_state.h"

#include <algorithm>
#include <span>
#include <string>

#include "rules/glob.h"

namespace sluice::api {
namespace {

using rules::Override;
using rules::Scope;

// The part of a key before ':' or '#'.
std::string_view ScopeName(const rules::Rule& rule) {
  switch (rule.scope) {
    case Scope::kGlobal:
      return "global";
    case Scope::kPerIp:
      return "ip";
    case Scope::kPerUser:
      return "user";
    case Scope::kPerApiKey:
      return "apikey";
    case Scope::kCustom:
      return rule.attribute;
  }
  return {};
}

std::span<const rules::Band> BandsFor(const rules::Rule& rule, std::string_view value) {
  const auto bands_of = [](const Override& found) {
    return found.effect == Override::Effect::kBands ? std::span(found.bands)
                                                    : std::span<const rules::Band>();
  };
  for (const Override& candidate : rule.overrides) {
    if (std::ranges::find(candidate.keys, value) != candidate.keys.end()) {
      return bands_of(candidate);
    }
  }
  for (const Override& candidate : rule.overrides) {
    if (std::ranges::any_of(candidate.patterns, [&](const std::string& pattern) {
          return rules::GlobMatch(pattern, value);
        })) {
      return bands_of(candidate);
    }
  }
  return rule.bands;
}

}  // namespace

std::vector<KeyBand> BandsOf(const rules::RuleSet& rule_set, std::string_view key) {
  std::vector<KeyBand> found;
  for (const rules::Rule& rule : rule_set.rules()) {
    const std::string_view scope = ScopeName(rule);
    const bool uses_ip = rule.on_missing_key == rules::OnMissingKey::kUseIp;
    for (const std::string_view name : {scope, uses_ip ? std::string_view("ip") : scope}) {
      if (!key.starts_with(name)) continue;
      const std::string_view rest = key.substr(name.size());
      const bool whole = rule.scope == Scope::kGlobal && rest.empty();
      if (!whole && !rest.starts_with(':') && !rest.starts_with('#')) continue;
      const auto bands =
          rest.starts_with(':') ? BandsFor(rule, rest.substr(1)) : std::span(rule.bands);
      for (const rules::Band& band : bands) found.push_back({&rule, &band});
      break;
    }
  }
  return found;
}

}  // namespace sluice::api
