// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/problem.h"
#include "rules/rule_set.h"

namespace sluice::rules {

inline constexpr std::size_t kRuleSetsMax = 10'000;

using RuleSets = std::vector<std::shared_ptr<const RuleSet>>;

// All rule sets at one moment. Immutable; safe to use from any thread.
class RuleBook {
 public:
  // Problems: two rule sets with one id, each reported with its file and line; too many of them.
  static std::expected<std::shared_ptr<const RuleBook>, Problems> Build(RuleSets rule_sets,
                                                                        std::uint64_t generation);
  RuleBook(const RuleBook&) = delete;
  RuleBook& operator=(const RuleBook&) = delete;

  // Null if there is none.
  const RuleSet* Find(std::string_view id) const;

  std::span<const std::shared_ptr<const RuleSet>> rule_sets() const { return rule_sets_; }
  std::uint64_t generation() const { return generation_; }

 private:
  RuleBook(RuleSets rule_sets, std::uint64_t generation);

  // Constant after construction.
  RuleSets rule_sets_;
  std::unordered_map<std::string_view, const RuleSet*> by_id_;
  std::uint64_t generation_;
};

}  // namespace sluice::rules
