// SPDX-License-Identifier: Apache-2.0
#include "config/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> Texts(const Problems& problems) {
  std::vector<std::string> texts;
  for (const Problem& problem : problems) texts.push_back(problem.ToString());
  return texts;
}

TEST(ConfigFile, ReadsSettingsLimitsAndDefaults) {
  const auto file = Parse(
      "store: redis://h:1\n"
      "http:\n"
      "  listen: 0.0.0.0:80\n"
      "client:\n"
      "  trustedProxies: [10.0.0.0/8, '::1']\n"
      "limits:\n"
      "  a: limit=5,window=1m\n"
      "  b: {algorithm: TOKEN_BUCKET, capacity: 3, refill: 1, period: 1s}\n"
      "defaults:\n"
      "  fixed_window: {limit: 7, window: 1h}\n"
      "ruleSets: []\n",
      "f");
  ASSERT_TRUE(file) << file.error().front().ToString();
  EXPECT_EQ(file->settings.store, "redis://h:1");
  EXPECT_EQ(file->settings.http.listen, "0.0.0.0:80");
  EXPECT_THAT(file->settings.client.trusted_proxies, ElementsAre("10.0.0.0/8", "::1"));
  EXPECT_EQ(file->limits.at("a"), *Limit::Parse("limit=5,window=1m"));
  EXPECT_EQ(file->limits.at("b").amount(), 3);
  EXPECT_EQ(file->defaults.at(Algorithm::kFixedWindow).amount(), 7);
  EXPECT_EQ(file->defaults.at(Algorithm::kTokenBucket).amount(), 100) << "the others stay";
  EXPECT_TRUE(file->has_rule_sets);
}

TEST(ConfigFile, MayBeEmpty) {
  EXPECT_TRUE(Parse("", "f"));
  EXPECT_TRUE(Parse("http:\n", "f"));
}

TEST(ConfigFile, ReportsAllThatIsWrongWithItsPlace) {
  const auto file = Parse(
      "http:\n"
      "  listne: x\n"
      "  idleTimeout: 60\n"
      "limits:\n"
      "  a: nonsense\n"
      "stor: memory\n"
      "threads: [[1]]\n"
      "threads: 2\n",
      "f");
  ASSERT_FALSE(file);
  EXPECT_THAT(Texts(file.error()),
              ElementsAre(HasSubstr("f:2:3: there is no setting \"http.listne\""),
                          HasSubstr("f:3:16: http.idleTimeout: \"60\""),
                          HasSubstr("f:5:6: limits.a:"), HasSubstr("f:6:1: there is no setting"),
                          HasSubstr("f:7:11: threads: expected a list"),
                          HasSubstr("f:8:1: \"threads\" is given twice")));
}

TEST(ConfigFile, KeepsASecretThatIsWrong) {
  const auto file = Parse("admin:\n  token: {hunter2: x}\n", "f");
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().front().ToString(), Not(HasSubstr("hunter2")));
}

TEST(Overrides, FlagsWinOverTheEnvironmentAndThatOverTheFile) {
  auto file = Parse("threads: 1\nstore: redis://file:1\nhttp: {listen: 'a:1'}\n", "f");
  ASSERT_TRUE(file);
  const auto environment = [](const std::string& name) -> std::optional<std::string> {
    if (name == "SLUICE_THREADS") return "2";
    if (name == "SLUICE_HTTP") return "b:2";
    return std::nullopt;
  };
  EXPECT_TRUE(Override(file->settings, environment, {{"http.listen", "c:3"}}).empty());
  EXPECT_EQ(file->settings.store, "redis://file:1");
  EXPECT_EQ(file->settings.threads, 2);
  EXPECT_EQ(file->settings.http.listen, "c:3");
  const auto wrong =
      Override(file->settings, [](const std::string&) { return std::nullopt; }, {{"threads", "x"}});
  EXPECT_THAT(Texts(wrong), ElementsAre(HasSubstr("--threads: \"x\": expected a whole number")));
}

TEST(Validate, FindsWhatDoesNotFitTogether) {
  Settings settings;
  EXPECT_TRUE(Validate(settings).empty());
  settings.http.listen = "nowhere";
  settings.http.tls_key = "key.pem";
  settings.client.trusted_proxies = {"10.0.0.1/8"};
  settings.store = "redis://:hunter2@";
  settings.admin.token = "a";
  settings.admin.token_file = "b";
  const auto texts = Texts(Validate(settings));
  EXPECT_EQ(texts.size(), 5U);
  for (const std::string& text : texts) EXPECT_THAT(text, Not(HasSubstr("hunter2")));
  settings = Settings{};
  settings.rules.redis = "store";
  EXPECT_EQ(Validate(settings).size(), 1U) << "the store is memory";
}

TEST(ReadFile, SaysWhatIsWrong) {
  EXPECT_EQ(ReadFile("/nonexistent/file").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ReadFile("/dev/zero", 1000).error().code, ErrorCode::kInvalidInput);
}

}  // namespace
}  // namespace sluice::config
