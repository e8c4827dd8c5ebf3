// SPDX-License-Identifier: Apache-2.0
// Any text is rule sets or a list of problems with positions. What is accepted survives the round
// trip through JSON, and selects rules for any request without breaking its promises. The first
// line is the path of a request; the rest is the file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/glob.h"
#include "rules/parse.h"
#include "rules/path.h"
#include "rules/rule_set.h"

namespace {

using sluice::rules::Attribute;
using sluice::rules::RuleSet;
using sluice::rules::Selected;
using sluice::rules::Selection;

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

void CheckRoundTrip(const RuleSet& rules) {
  const std::string json = rules.ToJson();
  const auto again = sluice::rules::ParseRuleSet(json, "json");
  Expect(again && (*again)->ToJson() == json && (*again)->hash() == rules.hash());
}

// Contains nothing that a server could change, such as by decoding.
bool IsPlain(std::string_view path) {
  return path.starts_with('/') && !path.starts_with("//") &&
         path.find_first_not_of(
             "/-_~abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") ==
             std::string_view::npos;
}

void CheckReadings(std::string_view path) {
  sluice::rules::PathReadings readings;
  const auto read = readings.Read(path);
  if (!read) {
    return Expect(!read.error().message.empty() &&
                  !(IsPlain(path) && path.size() <= sluice::rules::kPathBytesMax));
  }
  Expect(readings.size() >= 1 && readings.size() <= sluice::rules::kPathVariantsMax);
  if (IsPlain(path)) Expect(readings.size() == 1);
  for (std::size_t i = 0; i < readings.size(); ++i) {
    std::size_t bytes = 0;
    for (const std::string_view segment : readings[i]) {
      Expect(!segment.empty());
      bytes += segment.size();
    }
    Expect(bytes <= path.size());
  }
}

// According to its header.
bool PlainGlob(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] != '*') {
    return !text.empty() && pattern[0] == text[0] && PlainGlob(pattern.substr(1), text.substr(1));
  }
  return PlainGlob(pattern.substr(1), text) ||
         (!text.empty() && PlainGlob(pattern, text.substr(1)));
}

void CheckGlob(std::string_view text) {
  const std::string_view pattern = text.substr(0, text.find(' ')).substr(0, 8);
  const std::string_view rest = text.substr(text.size() - std::min<std::size_t>(text.size(), 16));
  Expect(sluice::GlobMatch(pattern, rest) == PlainGlob(pattern, rest));
}

void CheckSelection(const RuleSet& rules, std::string_view path) {
  const Attribute attributes[] = {
      {"tenant", path}, {"tokens", "3"}, {"plan", "free"}, {"token", path}};
  Selection selection;
  const auto done = rules.Select({.ip = "192.0.2.1",
                                  .user_id = path,
                                  .api_key = path,
                                  .method = "GET",
                                  .path = path,
                                  .attributes = attributes},
                                 2, selection);
  if (!done) return Expect(!done.error().message.empty() && selection.rules().empty());
  const Selected* last = nullptr;
  std::size_t charges = 0;
  for (const Selected& selected : selection.rules()) {
    Expect(last == nullptr || last->rule <= selected.rule);
    Expect(last == nullptr || last->rule != selected.rule || last->key != selected.key);
    last = &selected;
    Expect(selected.rule->enabled && rules.enabled());
    Expect(selected.key.size() <= sluice::kKeyBytesMax && selected.cost >= 0);
    if (selected.rule->scope == sluice::rules::Scope::kPerApiKey && !path.empty()) {
      constexpr std::string_view kPrefix = "apikey#";
      Expect(selected.key.starts_with(kPrefix) && selected.key.size() == kPrefix.size() + 64);
    }
    const bool charged = selected.verdict == Selected::Verdict::kCharge;
    Expect(charged == !selected.bands.empty() && (!charged || !selected.key.empty()));
    for (const auto& band : selected.bands) Expect(band.name.size() <= sluice::kNameBytesMax);
    charges += selected.bands.size();
  }
  Expect(charges <= sluice::kChargesMax);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view path = text.substr(0, text.find('\n'));
  const std::string_view yaml = text.substr(path.size());
  CheckReadings(path);
  CheckGlob(path);
  const auto parsed = sluice::rules::ParseRuleSets(yaml, "fuzz");
  if (!parsed) {
    Expect(!parsed.error().empty());
    for (const auto& problem : parsed.error())
      Expect(!problem.message.empty() && problem.line >= 0);
    return 0;
  }
  for (const auto& rules : *parsed) {
    CheckRoundTrip(*rules);
    CheckSelection(*rules, path);
  }
  return 0;
}
