// SPDX-License-Identifier: Apache-2.0
#include "store/redis/state_key.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice::redis {
namespace {

using namespace std::string_literals;

std::string KeyOf(std::string_view key, std::string_view name = "n") {
  static const Limit limit = *Limit::Parse("limit=5,window=1m");
  return StateKey("sluice", {.key = key, .limit = &limit, .name = name});
}

TEST(StateKey, IsReadable) {
  EXPECT_EQ(KeyOf("user:123", "burst"), "sluice:{user:123}:burst");
  EXPECT_EQ(KeyOf("user:123", ""), "sluice:{user:123}:=swc,5,0,60000000");
}

TEST(StateKey, LeavesNoRoomForBracesOfAClient) {
  EXPECT_EQ(KeyOf("a}b{c"), "sluice:{a%7db%7bc}:n");
  EXPECT_EQ(KeyOf("{x}"), "sluice:{%7bx%7d}:n");
}

TEST(StateKey, IsDifferentForDifferentKeysAndNames) {
  const std::vector<std::string> texts = {"a",
                                          "b",
                                          "a:b",
                                          "a}:b",
                                          "{a}",
                                          "%7b",
                                          "{",
                                          "a b",
                                          "a\0b"s,
                                          "a\n",
                                          "\xc3\xa9",
                                          "\xff",
                                          "#",
                                          "=",
                                          "=x",
                                          "#" + std::string(64, 'a'),
                                          std::string(129, 'x'),
                                          std::string(130, 'x'),
                                          std::string(1024, 'x'),
                                          std::string(1023, 'x') + "y",
                                          std::string(100, '\0')};
  std::set<std::string> keys;
  for (const std::string& key : texts) {
    for (const std::string& name : texts) {
      if (name.size() <= kNameBytesMax) keys.insert(KeyOf(key, name));
    }
    keys.insert(KeyOf(key, ""));
  }
  const auto names = static_cast<std::size_t>(
      std::ranges::count_if(texts, [](const auto& text) { return text.size() <= kNameBytesMax; }));
  EXPECT_EQ(keys.size(), texts.size() * (names + 1));
  for (const std::string& key : keys) EXPECT_LT(key.size(), 300u);
}

TEST(StateKey, CanBeReadBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(Unescape(Escape(all)), all);
  EXPECT_EQ(Unescape(""), "");
  EXPECT_EQ(Unescape("a%7bb"), "a{b");
  for (const char* text : {"%", "%7", "a%7", "%7B", "%zz", "%41", "{", "a b", "\xff"}) {
    EXPECT_EQ(Unescape(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace sluice::redis
