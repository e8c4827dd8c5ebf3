// SPDX-License-Identifier: Apache-2.0
#include "rules/attribute_index.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace sluice::rules {
namespace {

// What a request's attribute must be.
struct Need {
  std::string_view name;
  std::string_view text;
  bool exact;  // Otherwise it need only begin with the text.

  friend bool operator==(const Need&, const Need&) = default;
};

struct HashNeed {
  std::size_t operator()(const Need& need) const {
    const std::hash<std::string_view> hash;
    return hash(need.name) * 31 + hash(need.text) * 2 + (need.exact ? 1 : 0);
  }
};

using Counts = std::unordered_map<Need, std::size_t, HashNeed>;

// Names in paths have a value only once the path has matched.
bool IsOfRequest(std::string_view name) { return !name.starts_with(kCapturePrefix); }

// Any value will do: each begins with the empty text.
Need Presence(std::string_view name) { return {.name = name, .text = {}, .exact = false}; }

Need NeedOf(std::string_view name, std::string_view pattern) {
  const auto star = pattern.find('*');
  return {.name = name, .text = pattern.substr(0, star), .exact = star == std::string_view::npos};
}

// For each condition that must hold, visits the needs of which one must be met.
template <typename Visit>
void ForEachCondition(const Rule& rule, Visit visit) {
  std::vector<Need> needs;
  for (const AttributeCondition& condition : rule.match.attributes) {
    if (!IsOfRequest(condition.name)) continue;
    needs.clear();
    for (const std::string& value : condition.values) {
      needs.push_back(NeedOf(condition.name, value));
    }
    if (needs.empty() && condition.present) needs.push_back(Presence(condition.name));
    if (!needs.empty()) visit(std::span<const Need>(needs));
  }
  // Without a value for its scope, the rule does not apply.
  if (rule.scope == Scope::kCustom && rule.on_missing_key == OnMissingKey::kSkip &&
      IsOfRequest(rule.attribute)) {
    const Need need = Presence(rule.attribute);
    visit(std::span(&need, 1));
  }
}

// The needs of the condition that distinguishes the rule best; none if it has no condition. A
// request meets one need at a time, so what counts is the need that most rules share.
std::vector<Need> BestNeeds(const Rule& rule, const Counts& counts) {
  std::vector<Need> best;
  std::size_t shared_by_best = std::numeric_limits<std::size_t>::max();
  ForEachCondition(rule, [&](std::span<const Need> needs) {
    std::size_t shared_by = 0;
    for (const Need& need : needs) shared_by = std::max(shared_by, counts.at(need));
    if (shared_by >= shared_by_best) return;
    shared_by_best = shared_by;
    best.assign(needs.begin(), needs.end());
  });
  return best;
}

}  // namespace

bool AttributeIndex::CanFind(const Rule& rule) {
  bool can = false;
  ForEachCondition(rule, [&](std::span<const Need>) { can = true; });
  return can;
}

AttributeIndex::AttributeIndex(std::span<const Source> sources) {
  Counts counts;
  for (const Source& source : sources) {
    ForEachCondition(*source.rule, [&](std::span<const Need> needs) {
      for (const Need& need : needs) ++counts[need];
    });
  }
  for (const Source& source : sources) {
    const std::vector<Need> needs = BestNeeds(*source.rule, counts);
    if (needs.empty()) others_.push_back(source.target);
    for (const Need& need : needs) {
      Values& values = names_[need.name];
      (need.exact ? values.exact : values.beginnings)[need.text].push_back(source.target);
    }
  }
  for (auto& [name, values] : names_) {
    auto& sizes = values.beginning_sizes;
    for (const auto& [text, targets] : values.beginnings) sizes.push_back(text.size());
    std::ranges::sort(sizes);
    const auto repeated = std::ranges::unique(sizes);
    sizes.erase(repeated.begin(), repeated.end());
  }
}

void AttributeIndex::Match(std::span<const Attribute> attributes,
                           std::vector<Target>& targets) const {
  const auto append = [&](const ByText& by_text, std::string_view text) {
    const auto found = by_text.find(text);
    if (found == by_text.end()) return;
    targets.insert(targets.end(), found->second.begin(), found->second.end());
  };
  targets.insert(targets.end(), others_.begin(), others_.end());
  for (const Attribute& attribute : attributes) {
    if (attribute.value.empty()) continue;  // Counts as missing.
    const auto values = names_.find(attribute.name);
    if (values == names_.end()) continue;
    append(values->second.exact, attribute.value);
    for (const std::size_t size : values->second.beginning_sizes) {
      if (size > attribute.value.size()) break;
      append(values->second.beginnings, attribute.value.substr(0, size));
    }
  }
}

}  // namespace sluice::rules
