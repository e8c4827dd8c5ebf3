// SPDX-License-Identifier: Apache-2.0
#include "rules/rule_book.h"

#include <utility>

#include "base/text.h"

namespace sluice::rules {

RuleBook::RuleBook(RuleSets rule_sets, std::uint64_t generation)
    : rule_sets_(std::move(rule_sets)), generation_(generation) {}

std::expected<std::shared_ptr<const RuleBook>, Problems> RuleBook::Build(RuleSets rule_sets,
                                                                         std::uint64_t generation) {
  Problems problems;
  if (rule_sets.size() > kRuleSetsMax) {
    problems.push_back(
        {.file = "rules",
         .message = text::Cat(rule_sets.size(), " rule sets; expected at most ", kRuleSetsMax)});
    return std::unexpected(std::move(problems));
  }
  std::shared_ptr<RuleBook> book(new RuleBook(std::move(rule_sets), generation));
  for (const auto& rule_set : book->rule_sets_) {
    const auto [other, is_new] = book->by_id_.emplace(rule_set->id(), rule_set.get());
    if (is_new) continue;
    const RuleSetSpec& here = rule_set->spec();
    const RuleSetSpec& there = other->second->spec();
    problems.push_back(
        {.file = here.file,
         .line = here.line,
         .column = 1,
         .message = text::Cat("rule set ", text::Quote(here.id), " is already defined at ",
                              there.file, ":", there.line, "; expected a unique id")});
  }
  if (!problems.empty()) return std::unexpected(std::move(problems));
  return book;
}

const RuleSet* RuleBook::Find(std::string_view id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

}  // namespace sluice::rules
