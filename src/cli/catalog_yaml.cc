// SPDX-License-Identifier: Apache-2.0
#include "cli/catalog_yaml.h"

#include <boost/json.hpp>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "base/yaml.h"
#include "rules/rule_set.h"
#include "service/service_metrics.h"

namespace sluice::cli {
namespace {

namespace json = boost::json;

bool IsLeaf(const json::value& value) {
  return (!value.is_object() && !value.is_array()) ||
         (value.is_object() && value.get_object().empty()) ||
         (value.is_array() && value.get_array().empty());
}

std::string Leaf(const json::value& value) {
  if (!value.is_string()) return json::serialize(value);
  const json::string& text = value.get_string();
  return YamlScalar({text.data(), text.size()});
}

std::string Block(const json::value& value, std::size_t indent) {
  const std::string blanks(indent, ' ');
  if (IsLeaf(value)) return text::Cat(blanks, Leaf(value), "\n");
  std::string out;
  if (value.is_array()) {
    for (const json::value& item : value.get_array()) {
      std::string block = Block(item, indent + 2);
      block[indent] = '-';
      out += block;
    }
    return out;
  }
  for (const auto& [key, member] : value.get_object()) {
    out += text::Cat(blanks, YamlScalar(key), ":");
    out += IsLeaf(member) ? Block(member, 1) : "\n" + Block(member, indent + 2);
  }
  return out;
}

// Without the algorithm, which is the name here.
std::string FieldsOf(const Limit& limit) {
  const std::string text = limit.ToString();
  return text.substr(text.find(',') + 1);
}

// Keys of other scopes are names; an API key admits anyone who knows it.
rules::RuleSetSpec Redacted(rules::RuleSetSpec spec) {
  for (rules::Rule& rule : spec.rules) {
    if (rule.scope != rules::Scope::kPerApiKey) continue;
    std::size_t number = 0;
    for (rules::Override& override : rule.overrides) {
      for (std::string& key : override.keys) key = text::Cat("***", ++number);
    }
  }
  return spec;
}

}  // namespace

std::string ToYaml(const service::Catalog& catalog) {
  std::string out = catalog.limits.empty() ? "\nlimits: {}\n" : "\nlimits:\n";
  for (const auto& [name, limit] : catalog.limits) {
    out += text::Cat("  ", YamlScalar(name), ": ", YamlScalar(limit.ToString()), "\n");
  }
  out += "\ndefaults:\n";
  for (const auto& [algorithm, limit] : catalog.defaults) {
    out += text::Cat("  ", service::UpperName(algorithm), ": ", YamlScalar(FieldsOf(limit)), "\n");
  }
  json::array rule_sets;
  for (const auto& rule_set : catalog.rules->rule_sets()) {
    const auto shown = rules::RuleSet::Compile(Redacted(rule_set->spec()));
    rule_sets.push_back(json::parse(shown->ToJson()));
  }
  return out + "\n" + Block(json::object{{"ruleSets", std::move(rule_sets)}}, 0);
}

}  // namespace sluice::cli
