// SPDX-License-Identifier: Apache-2.0
#include "rules/rls_key.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace sluice::rules {
namespace {

std::shared_ptr<const RlsConfig> Domains() {
  const RlsConfig::File file{.name = "test", .text = R"(
domain: edge|1
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 5}
    descriptors:
      - {key: path, value: /login, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: api_key, rate_limit: {unit: day, requests_per_unit: 9}}
  - {key: tier, value: "g*", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 7}}
)"};
  const auto parsed = RlsConfig::Parse({&file, 1});
  EXPECT_TRUE(parsed) << parsed.error().front().ToString();
  return parsed ? *parsed : nullptr;
}

TEST(RlsKey, FindsTheLimitOfWhateverWasCounted) {
  const auto domains = Domains();
  ASSERT_NE(domains, nullptr);
  const std::vector<std::vector<RlsEntry>> counted = {
      {{"user", "a|b=c%"}},
      {{"user", "x"}, {"path", "/login"}},
      {{"api_key", "very-secret"}},
      {{"tier", "gold"}},
  };
  for (const auto& entries : counted) {
    RlsMatch expected;
    domains->Find("edge|1")->Match(entries, expected);
    ASSERT_NE(expected.limit, nullptr);
    const RlsMatch found = FindRlsLimit(*domains, expected.key);
    EXPECT_EQ(found.limit, expected.limit) << expected.key;
    EXPECT_EQ(found.key, expected.key);
  }
}

TEST(RlsKey, TakesWhatIsWrittenByHand) {
  const auto key = ReadRlsKey("edge|user=50% off|path=/login");
  ASSERT_TRUE(key);
  EXPECT_EQ(key->domain, "edge");
  ASSERT_EQ(key->entries.size(), 2U);
  EXPECT_EQ(key->entries[0].value, "50% off");
  EXPECT_FALSE(key->entries[0].hashed);
}

TEST(RlsKey, IsNoOtherKey) {
  const auto domains = Domains();
  std::string deep = "edge%7c1";
  for (std::size_t i = 0; i <= kRlsDepthMax; ++i) deep += "|user=x";
  for (const std::string& text :
       {std::string(), std::string("ip:192.0.2.1"), std::string("|"), std::string("edge%7c1|"),
        std::string("edge%7c1|user"), std::string("other|user=x"), std::string("edge%7c1|nope=x"),
        deep}) {
    EXPECT_EQ(FindRlsLimit(*domains, text).limit, nullptr) << text;
  }
}

}  // namespace
}  // namespace sluice::rules
