// SPDX-License-Identifier: Apache-2.0
#include "config/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "config/load.h"

namespace sluice::config {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Settings, EveryOneTakesItsOwnDefault) {
  Settings settings;
  for (const Setting& setting : AllSettings()) {
    const std::string value = setting.get(settings);
    EXPECT_TRUE(setting.set(settings, value)) << setting.path << ": " << value;
    EXPECT_EQ(setting.get(settings), value);
  }
}

TEST(Settings, HaveDistinctNames) {
  std::set<std::string> names;
  for (const Setting& setting : AllSettings()) {
    EXPECT_TRUE(names.emplace(setting.path).second) << setting.path;
    EXPECT_TRUE(names.emplace(setting.flag).second) << setting.flag;
    EXPECT_TRUE(names.insert(setting.Environment()).second) << setting.Environment();
    EXPECT_FALSE(setting.help.empty());
  }
  EXPECT_EQ(FindSetting("http.listen")->Environment(), "SLUICE_HTTP");
  EXPECT_EQ(FindSetting("nothing"), nullptr);
}

TEST(Settings, RefuseWhatTheyCannotBe) {
  Settings settings;
  for (const auto& [path, value] :
       {std::pair("threads", "-1"), std::pair("threads", "many"),
        std::pair("http.idleTimeout", "60"), std::pair("http.idleTimeout", "0s"),
        std::pair("rules.pollInterval", "999us"), std::pair("drainTimeout", "2d"),
        std::pair("memory.snapshotInterval", "0s"), std::pair("log.level", "loud"),
        std::pair("http.onStoreFailure", "maybe"), std::pair("client.ipv6Prefix", "129"),
        std::pair("grpc.headers", "1")}) {
    const auto done = FindSetting(path)->set(settings, value);
    ASSERT_FALSE(done) << path;
    EXPECT_THAT(done.error().message, HasSubstr("expected")) << path;
  }
}

TEST(Settings, ShowNoSecrets) {
  Settings settings;
  settings.store = "redis://:hunter2@127.0.0.1:6379";
  settings.rules.redis = "not a uri hunter2";
  settings.admin.token = "hunter2";
  settings.resp.password = "hunter2";
  const std::string yaml = ToYaml(settings);
  EXPECT_THAT(yaml, Not(HasSubstr("hunter2")));
  EXPECT_THAT(yaml, HasSubstr("redis://:***@127.0.0.1:6379"));
}

TEST(Settings, PrintAFileThatCanBeRead) {
  Settings settings;
  settings.client.trusted_proxies = {"10.0.0.0/8", "::1"};
  settings.http.idle_timeout = Micros{1'500'000};
  const auto file = Parse(ToYaml(settings), "printed");
  ASSERT_TRUE(file) << file.error().front().ToString();
  EXPECT_EQ(ToYaml(file->settings), ToYaml(settings));
}

TEST(Settings, AreAllInTheReference) {
  std::ifstream in(SLUICE_SOURCE "/docs/reference/settings.md");
  std::stringstream reference;
  reference << in.rdbuf();
  for (const Setting& setting : AllSettings()) {
    EXPECT_THAT(reference.str(), HasSubstr("`" + std::string(setting.path) + "`"));
    EXPECT_THAT(reference.str(), HasSubstr("`" + std::string(setting.flag) + "`"));
    EXPECT_THAT(reference.str(), HasSubstr("`" + setting.Environment() + "`"));
  }
}

}  // namespace
}  // namespace sluice::config
