// SPDX-License-Identifier: Apache-2.0
#include "rules/key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/digest.h"

namespace sluice::rules {
namespace {

// Of "abc", from FIPS 180-4.
constexpr std::string_view kHashOfAbc =
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

std::string Hash(std::string_view text) {
  std::string hash;
  AppendSha256(hash, text);
  return hash;
}

std::string Key(const KeyScope& scope, std::string_view value) {
  std::string key;
  AppendKey(key, scope, value);
  return key;
}

TEST(Sha256, IsThatOfTheStandardInEveryThread) {
  EXPECT_EQ(Hash("abc"), kHashOfAbc);
  EXPECT_EQ(Hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Hash("abc"), kHashOfAbc) << "nothing is left of the one before";
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] { EXPECT_EQ(Hash("abc"), kHashOfAbc); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Key, HashesSecretsAndWhatIsTooLong) {
  EXPECT_EQ(Key({.name = "user"}, "abc"), "user:abc");
  EXPECT_EQ(Key({.name = "global"}, ""), "global");
  EXPECT_EQ(Key({.name = "apikey", .secret = true}, "abc"), "apikey#" + std::string(kHashOfAbc));
  const std::string fits(kKeyBytesMax - 5, 'x');
  EXPECT_EQ(Key({.name = "user"}, fits), "user:" + fits);
  EXPECT_EQ(Key({.name = "user"}, fits + "x"), "user#" + Hash(fits + "x"));
  EXPECT_NE(Key({.name = "user"}, "#" + Hash("abc")), Key({.name = "user"}, "abc"));
}

TEST(Key, KnowsTheNamesOfSecrets) {
  for (const std::string_view name :
       {"apikey", "api_key", "api-key", "ApiKey", "X-API-Key", "header.x-api-key", "authorization",
        "Proxy-Authorization", "cookie", "token", "access_token", "auth.token", "session_id",
        "password", "client-secret", "api_key_"}) {
    EXPECT_TRUE(IsSecretName(name)) << name;
  }
  for (const std::string_view name : {"", "ip", "user", "global", "tenant", "tokens", "key", "-",
                                      "api", "remote_address", "secretary", "path.item"}) {
    EXPECT_FALSE(IsSecretName(name)) << name;
  }
}

TEST(Key, AnOverrideNamesASecretOrItsHash) {
  const KeyScope scope{.name = "apikey", .secret = true};
  const std::string key = "apikey#" + std::string(kHashOfAbc);
  EXPECT_EQ(OverriddenKey(scope, "abc"), key);
  EXPECT_EQ(OverriddenKey(scope, "sha256:" + std::string(kHashOfAbc)), key);
  EXPECT_EQ(OverriddenKey(scope, "sha256:BA7816BF" + std::string(kHashOfAbc.substr(8))), key);
  EXPECT_EQ(OverriddenKey(scope, "sha256:ba7816"), "apikey#" + Hash("sha256:ba7816"));
}

TEST(Key, IsFoundAsPeopleWriteIt) {
  EXPECT_EQ(StoredKey("apikey:abc"), "apikey#" + std::string(kHashOfAbc));
  EXPECT_EQ(StoredKey("apikey#" + std::string(kHashOfAbc)), "apikey#" + std::string(kHashOfAbc));
  EXPECT_EQ(StoredKey("user:abc"), "user:abc");
  EXPECT_EQ(StoredKey("global"), "global");
}

}  // namespace
}  // namespace sluice::rules
