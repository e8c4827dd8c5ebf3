// SPDX-License-Identifier: Apache-2.0
#include "config/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/temporary_folder.h"

namespace sluice::config {
namespace {

using ::testing::AllOf;
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
      "  trustedHeaders: [X-Forwarded-For, X-User-Id]\n"
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
  EXPECT_THAT(file->settings.client.trusted_headers, ElementsAre("X-Forwarded-For", "X-User-Id"));
  EXPECT_EQ(file->limits.at("a"), *Limit::Parse("limit=5,window=1m"));
  EXPECT_EQ(file->limits.at("b").amount(), 3);
  EXPECT_EQ(file->defaults.at(Algorithm::kFixedWindow).amount(), 7);
  EXPECT_EQ(file->defaults.at(Algorithm::kTokenBucket).amount(), 100) << "the others stay";
  EXPECT_TRUE(file->has_rule_sets);
}

TEST(ConfigFile, NamesOfLimitsAreNotThoseOfOtherStates) {
  for (const char* name : {"rls/configured", "resp/throttle", "shop/rule/band", "a=b", "\"\""}) {
    EXPECT_FALSE(Parse(std::string("limits: {") + name + ": 'limit=5,window=1m'}", "f")) << name;
  }
}

TEST(ConfigFile, MayHoldNothingIfThatIsSaid) {
  EXPECT_TRUE(Parse("{}", "f"));
  EXPECT_TRUE(Parse("http:\n", "f"));
  EXPECT_TRUE(Parse("# threads: 2\n", "f")) << "what a file of defaults looks like";
  for (const char* text : {"", " \n\r\n"}) {
    EXPECT_THAT(Texts(Parse(text, "f").error()), ElementsAre(HasSubstr("the file is empty")));
  }
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
                          HasSubstr("f:7:10: threads: expected one value: N"),
                          HasSubstr("f:8:1: key \"threads\" is given twice")));
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
  EXPECT_TRUE(Override(*file, environment, {{"http.listen", "c:3"}}).empty());
  EXPECT_EQ(file->settings.store, "redis://file:1");
  EXPECT_EQ(file->settings.threads, 2);
  EXPECT_EQ(file->settings.http.listen, "c:3");
  const auto wrong =
      Override(*file, [](const std::string&) { return std::nullopt; }, {{"threads", "x"}});
  EXPECT_THAT(Texts(wrong), ElementsAre(HasSubstr("--threads: \"x\": expected a whole number")));
}

TEST(Validate, FindsWhatDoesNotFitTogether) {
  File file;
  EXPECT_TRUE(Validate(file).empty());
  file.settings.http.listen = "nowhere";
  file.settings.http.tls_key = "key.pem";
  file.settings.client.trusted_proxies = {"10.0.0.1/8"};
  file.settings.client.trusted_headers = {"X-Client-IP"};
  file.settings.store = "redis://:hunter2@";
  file.settings.admin.token = "a";
  file.settings.admin.token_file = "b";
  file.settings.guard.open_min = file.settings.guard.open_max + Micros{1};
  const auto texts = Texts(Validate(file));
  EXPECT_EQ(texts.size(), 7U);
  for (const std::string& text : texts) EXPECT_THAT(text, Not(HasSubstr("hunter2")));
}

TEST(Validate, RefusesWhatServingWould) {
  File file;
  file.settings.client.trusted_proxies.assign(1025, "10.0.0.0/8");
  EXPECT_THAT(Texts(Validate(file)),
              ElementsAre(HasSubstr("1025 networks; expected at most 1024")));
}

TEST(Validate, ATokenIsWhatAHeaderCanCarry) {
  File file;
  for (const char* token : {" secret", "secret ", "sec ret",
                            "s\xc3\xa9"
                            "cret",
                            "sec\nret"}) {
    file.settings.admin.token = token;
    EXPECT_THAT(Texts(Validate(file)),
                ElementsAre(AllOf(HasSubstr("admin.token: expected visible ASCII"),
                                  Not(HasSubstr("cret")))));
  }
  const testing_support::TemporaryFolder folder;
  file.settings.admin.token_file = folder.path() / "token";
  std::ofstream(file.settings.admin.token_file) << "secret \r\n";
  EXPECT_TRUE(ReadTokens(file.settings.admin.token_file)->Find("secret"));
}

TEST(ReadTokens, NamesTheFileAndTheLine) {
  const testing_support::TemporaryFolder folder;
  const std::string path = folder.path() / "tokens";
  EXPECT_EQ(ReadTokens(path).error().code, ErrorCode::kNotFound);
  std::ofstream(path) << "# None yet.\n";
  EXPECT_EQ(ReadTokens(path).error().message, path + ": there is no token; expected at least one");
  std::ofstream(path) << "name secret\nname sec ret\n";
  EXPECT_THAT(ReadTokens(path).error().message, HasSubstr(path + ": line 2: expected a token"));
  std::ofstream(path) << "name secret\nother";
  EXPECT_EQ(ReadTokens(path)->size(), 2U);
}

TEST(Validate, AClientCaNeedsACertificate) {
  for (const std::string section : {"http", "resp", "grpc"}) {
    File file;
    const std::string path = section + ".tlsClientCa";
    ASSERT_TRUE(FindSetting(path)->set(file.settings, "ca.pem"));
    EXPECT_THAT(Texts(Validate(file)),
                ElementsAre(HasSubstr(path + ": expected " + section + ".tlsCertificate, too")));
  }
}

TEST(Validate, SomethingMustListen) {
  File file;
  file.settings.http.listen = "";
  file.settings.admin.listen = "";
  EXPECT_THAT(Texts(Validate(file)), ElementsAre(HasSubstr("http.listen: nothing would listen")));
  file.settings.resp.listen = "127.0.0.1:1";
  EXPECT_TRUE(Validate(file).empty());
}

TEST(Validate, TheStoreMustNotGiveUpBeforeTheDeadline) {
  File file;
  file.settings.store = "redis://a";
  file.settings.guard.deadline = Micros{500'000};
  EXPECT_TRUE(Validate(file).empty());
  file.settings.guard.deadline = Micros{500'001};
  EXPECT_THAT(Texts(Validate(file)), ElementsAre(HasSubstr("gives up after 500 ms")));
  file.settings.store = "redis://a?timeout=2s";
  EXPECT_TRUE(Validate(file).empty());
}

TEST(Validate, TheStoreMustHaveRoomForAllThatAreInFlight) {
  File file;
  file.settings.store = "redis://a?waiting=4096";
  EXPECT_TRUE(Validate(file).empty());
  file.settings.store = "redis://a?waiting=4095";
  EXPECT_THAT(Texts(Validate(file)), ElementsAre(HasSubstr("lets 4095 requests wait")));
  file.settings.guard.in_flight_max = 4095;
  EXPECT_TRUE(Validate(file).empty());
}

TEST(Validate, KnowsWhatTheWordsForStoresMean) {
  File file;
  file.settings.rules.redis = "store";
  EXPECT_EQ(Validate(file).size(), 1U) << "the store is memory";
  file.settings.store = "redis://a";
  EXPECT_TRUE(Validate(file).empty());
  file.settings.rules.redis = "memory";
  file.settings.store = "store";
  EXPECT_EQ(Validate(file).size(), 2U) << "neither is a Redis";
}

TEST(Validate, AdminNeedsATokenBeyondThisMachine) {
  File file;
  for (const char* local : {"", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"}) {
    file.settings.admin.listen = local;
    EXPECT_TRUE(Validate(file).empty()) << local;
  }
  for (const char* open : {":1", "0.0.0.0:1", "[::]:1", "192.0.2.1:1", "host:1"}) {
    file.settings.admin.listen = open;
    EXPECT_EQ(Validate(file).size(), 1U) << open;
  }
  file.settings.admin.token = "t";
  EXPECT_TRUE(Validate(file).empty());
}

TEST(Validate, SaysWhereASettingWasGiven) {
  auto file = Parse("http:\n  listen: x\nstore: y\n", "f");
  ASSERT_TRUE(file);
  const auto nothing = [](const std::string& name) -> std::optional<std::string> {
    if (name == "SLUICE_ADMIN") return "z";
    return std::nullopt;
  };
  ASSERT_TRUE(Override(*file, nothing, {{"store", "w"}}).empty());
  EXPECT_THAT(Texts(Validate(*file)), ElementsAre(HasSubstr("f:2:11: http.listen: "),
                                                  HasSubstr("SLUICE_ADMIN: admin.listen: "),
                                                  HasSubstr("--store: store: ")));
}

TEST(ReadFile, SaysWhatIsWrong) {
  EXPECT_EQ(ReadFile("/nonexistent/file").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ReadFile("/dev/zero", FileKind::kAny, 1000).error().code, ErrorCode::kInvalidInput);
  for (const char* path : {"/dev/zero", "/dev/null", "/"}) {
    EXPECT_EQ(ReadFile(path).error().message, std::string(path) + ": expected a regular file");
  }
}

}  // namespace
}  // namespace sluice::config
