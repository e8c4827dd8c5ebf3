// SPDX-License-Identifier: Apache-2.0
// What the documentation shows is what works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "rules/envoy.h"
#include "rules/parse.h"

namespace sluice::rules {
namespace {

std::vector<std::string> YamlBlocks(const std::string& page) {
  std::ifstream file(std::string(SLUICE_DOCS) + "/reference/" + page);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::vector<std::string> blocks;
  constexpr std::string_view kOpen = "```yaml\n";
  for (std::size_t at = 0; (at = text.find(kOpen, at)) != std::string::npos;) {
    at += kOpen.size();
    blocks.push_back(text.substr(at, text.find("```", at) - at));
  }
  return blocks;
}

TEST(Docs, RuleSetsParse) {
  const auto blocks = YamlBlocks("rules.md");
  EXPECT_GE(blocks.size(), 5U);
  for (const std::string& block : blocks) {
    const auto parsed = ParseRuleSets(block, "rules.md");
    EXPECT_TRUE(parsed) << parsed.error().front().ToString() << '\n' << block;
  }
}

TEST(Docs, RlsConfigurationsParse) {
  const auto blocks = YamlBlocks("rls-config.md");
  EXPECT_GE(blocks.size(), 3U);
  for (const std::string& block : blocks) {
    const RlsConfig::File file{.name = "rls-config.md", .text = block};
    const auto parsed = RlsConfig::Parse({&file, 1});
    EXPECT_TRUE(parsed) << parsed.error().front().ToString() << '\n' << block;
  }
}

}  // namespace
}  // namespace sluice::rules
