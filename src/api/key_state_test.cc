// SPDX-License-Identifier: Apache-2.0
#include "api/key_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/key_search.h"
#include "rules/parse.h"

namespace sluice::api {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> NamesOf(std::string_view key) {
  const auto set = rules::ParseRuleSet(R"({id: s, rules: [
      {id: a, scope: PER_IP, bands: [{label: x, limit: 1, window: 1m}, {label: y, limit: 2, window: 1h}]},
      {id: b, scope: PER_USER, onMissingKey: USE_IP, bands: [{label: z, limit: 3, window: 1m}],
       overrides: [{key: vip, unlimited: true}, {pattern: "p-*", bands: [{label: w, limit: 9, window: 1m}]}]},
      {id: c, scope: GLOBAL, bands: [{label: g, limit: 4, window: 1m}]},
      {id: d, scope: CUSTOM, attribute: tenant, bands: [{label: t, limit: 5, window: 1m}]}]})",
                                       "test");
  EXPECT_TRUE(set) << set.error().front().ToString();
  std::vector<std::string> names;
  for (const KeyBand& band : BandsOf(**set, key)) names.push_back(band.band->name);
  return names;
}

TEST(BandsOf, FindsTheBandsOfAKey) {
  EXPECT_THAT(NamesOf("ip:192.0.2.1"), ElementsAre("s/a/x", "s/a/y", "s/b/z"));
  EXPECT_THAT(NamesOf("user:alice"), ElementsAre("s/b/z"));
  EXPECT_THAT(NamesOf("user:vip"), IsEmpty());
  EXPECT_THAT(NamesOf("user:p-1"), ElementsAre("s/b/w"));
  EXPECT_THAT(NamesOf("user#" + std::string(64, 'a')), ElementsAre("s/b/z"));
  EXPECT_THAT(NamesOf("global"), ElementsAre("s/c/g"));
  EXPECT_THAT(NamesOf("tenant:acme"), ElementsAre("s/d/t"));
  EXPECT_THAT(NamesOf("elsewhere:1"), IsEmpty());
  EXPECT_THAT(NamesOf("ipx"), IsEmpty());
}

TEST(BandsOf, FindsSecretsByThemselvesAndByTheirHash) {
  const std::string hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  const auto set = rules::ParseRuleSet(R"({id: s, rules: [
      {id: k, scope: PER_API_KEY, bands: [{label: x, limit: 1, window: 1m}],
       overrides: [{key: abc, bands: [{label: w, limit: 9, window: 1m}]},
                   {pattern: "p-*", bands: [{label: v, limit: 9, window: 1m}]}]}]})",
                                       "test");
  ASSERT_TRUE(set) << set.error().front().ToString();
  const auto of = [&](std::string_view written) {
    const auto bands = BandsOf(**set, written);
    EXPECT_EQ(bands.size(), 1U) << written;
    return bands.empty() ? "" : bands[0].band->label + " " + bands[0].key;
  };
  EXPECT_EQ(of("apikey:abc"), "w apikey#" + hash);
  EXPECT_EQ(of("apikey#" + hash), "w apikey#" + hash);
  EXPECT_EQ(of("apikey:sha256:" + hash), "w apikey#" + hash);
  EXPECT_THAT(of("apikey:p-1"), ::testing::StartsWith("v apikey#"));
  EXPECT_THAT(of("apikey:other"), ::testing::StartsWith("x apikey#"));
}

TEST(WhyNoKey, TellsWhatIsCoveredOrCutOff) {
  const std::string hash(64, 'a');
  for (const std::string key :
       {"global", "ip:192.0.2.1", "user:***", "user:a...", "apikey:k-1", "apikey:***", "x|k#abc"}) {
    EXPECT_EQ(WhyNoKey(key).empty(), key != "apikey:***") << key;
  }
  EXPECT_TRUE(WhyNoKey("apikey#" + hash).empty());
  EXPECT_TRUE(WhyNoKey("apikey:sha256:" + hash).empty());
  EXPECT_FALSE(WhyNoKey("apikey#" + hash.substr(1)).empty());
  EXPECT_FALSE(WhyNoKey("user#abc").empty());
  for (const char* key : {"apikey:***9f2c", "apikey:k-1…", "apikey:k-1...", "session-token:***"}) {
    EXPECT_FALSE(WhyNoKey(key).empty()) << key;
  }
  EXPECT_THAT(WhyNoKey("apikey:***9f2c"), ::testing::Not(::testing::HasSubstr("9f2c")));
}

TEST(RefOf, NeedsNoEscapesInAUrl) {
  const std::string hash(64, 'a');
  EXPECT_EQ(RefOf("apikey#" + hash), "apikey:sha256:" + hash);
  EXPECT_EQ(RefOf("user#" + hash), "user#" + hash);
  EXPECT_EQ(RefOf("d|api_key#" + hash), "d|api_key#" + hash);
  EXPECT_EQ(RefOf("ip:192.0.2.1"), "");
}

TEST(StateName, TellsRulesFromOthers) {
  const StateName band = StateName::Read("set/rule/band");
  EXPECT_EQ(band.rule_set, "set");
  EXPECT_EQ(band.rule, "rule");
  EXPECT_EQ(band.band, "band");
  EXPECT_EQ(StateName::Read("set/rule/").band, "");
  for (const std::string_view other : {"login", "api/token_bucket", "rls/configured", ""}) {
    EXPECT_FALSE(StateName::Read(other).is_rule()) << other;
    EXPECT_EQ(StateName::Read(other).other, other);
  }
}

TEST(BandsOf, FindsLongValuesWrittenOut) {
  const auto set = rules::ParseRuleSet(
      R"({id: s, rules: [{id: u, scope: PER_USER, bands: [{limit: 1, window: 1m}]}]})", "test");
  ASSERT_TRUE(set);
  const auto bands = BandsOf(**set, "user:" + std::string(kKeyBytesMax, 'x'));
  ASSERT_EQ(bands.size(), 1U);
  EXPECT_THAT(bands[0].key, ::testing::StartsWith("user#"));
}

}  // namespace
}  // namespace sluice::api
