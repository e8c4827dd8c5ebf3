// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>
#include <string_view>

#include "base/duration.h"
#include "base/text.h"
#include "rules/rule_set.h"

namespace sluice::rules {
namespace {

namespace json = boost::json;

std::string ToUpper(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return upper;
}

// From the textual form, so that only one place knows the names of the fields.
json::object ToJson(const Band& band) {
  json::object object{{"label", band.label}};
  const std::string limit = band.limit.ToString();
  for (std::string_view rest = limit; !rest.empty();) {
    const std::string_view pair = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    const auto equals = pair.find('=');
    const std::string_view name = pair.substr(0, equals);
    const std::string_view value = pair.substr(equals + 1);
    if (const auto number = text::ParseInteger(value)) {
      object[name] = *number;
    } else {
      object[name] = name == "algorithm" ? ToUpper(value) : std::string(value);
    }
  }
  return object;
}

json::array ToJson(const std::vector<Band>& bands) {
  json::array array;
  for (const Band& band : bands) array.push_back(ToJson(band));
  return array;
}

json::array ToJson(const std::vector<std::string>& texts) {
  return json::array(texts.begin(), texts.end());
}

json::value ToJson(const Cost& cost) {
  if (cost.attribute.empty()) return cost.units;
  json::object object{{"attribute", cost.attribute}, {"default", cost.units}};
  if (cost.max) object["max"] = *cost.max;
  return object;
}

json::object ToJson(const HoldDefaults& hold) {
  json::object object;
  if (hold.ttl) object["ttl"] = text::FormatDuration(*hold.ttl);
  if (hold.on_expiry) object["onExpiry"] = ToString(*hold.on_expiry);
  return object;
}

json::object ToJson(const Match& match) {
  json::object object;
  if (!match.methods.empty()) object["methods"] = ToJson(match.methods);
  if (!match.paths.empty()) {
    json::array& paths = object["paths"].emplace_array();
    for (const PathPattern& path : match.paths) paths.emplace_back(path.text);
  }
  if (!match.attributes.empty()) {
    json::object& attributes = object["attributes"].emplace_object();
    for (const AttributeCondition& condition : match.attributes) {
      if (condition.values.empty()) {
        attributes[condition.name] = json::object{{"present", condition.present}};
      } else {
        attributes[condition.name] = ToJson(condition.values);
      }
    }
  }
  return object;
}

json::object ToJson(const Override& override) {
  json::object object;
  if (!override.keys.empty()) object["key"] = ToJson(override.keys);
  if (!override.patterns.empty()) object["pattern"] = ToJson(override.patterns);
  switch (override.effect) {
    case Override::Effect::kBands:
      object["bands"] = ToJson(override.bands);
      break;
    case Override::Effect::kUnlimited:
      object["unlimited"] = true;
      break;
    case Override::Effect::kBlocked:
      object["blocked"] = true;
      break;
  }
  return object;
}

json::object ToJson(const Rule& rule) {
  json::object object{{"id", rule.id}};
  if (!rule.description.empty()) object["description"] = rule.description;
  object["enabled"] = rule.enabled;
  object["shadow"] = rule.shadow;
  object["scope"] = ToString(rule.scope);
  if (rule.scope == Scope::kCustom) object["attribute"] = rule.attribute;
  object["onMissingKey"] = ToString(rule.on_missing_key);
  object["onStoreFailure"] = ToString(rule.on_store_failure);
  if (rule.on_overload) object["onOverload"] = ToString(*rule.on_overload);
  object["cost"] = ToJson(rule.cost);
  if (auto hold = ToJson(rule.hold); !hold.empty()) object["hold"] = std::move(hold);
  if (auto match = ToJson(rule.match); !match.empty()) object["match"] = std::move(match);
  object["bands"] = ToJson(rule.bands);
  if (!rule.overrides.empty()) {
    json::array& overrides = object["overrides"].emplace_array();
    for (const Override& override : rule.overrides) overrides.push_back(ToJson(override));
  }
  return object;
}

}  // namespace

std::string RuleSet::ToJson() const {
  json::object object{{"id", spec_.id}};
  if (!spec_.description.empty()) object["description"] = spec_.description;
  object["enabled"] = spec_.enabled;
  json::array& list = object["rules"].emplace_array();
  for (const Rule& rule : spec_.rules) list.push_back(rules::ToJson(rule));
  return json::serialize(object);
}

}  // namespace sluice::rules
