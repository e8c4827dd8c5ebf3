// SPDX-License-Identifier: Apache-2.0
#include "store/redis/key_pattern.h"

#include <gtest/gtest.h>

#include "store/redis/state_key.h"

namespace sluice::redis {
namespace {

using namespace std::string_literals;

bool Matches(std::string_view pattern, std::string_view key) {
  return KeyPattern("sluice", pattern).Matches(KeyPrefix("sluice", key) + "n");
}

std::string ScanPattern(std::string_view pattern) {
  return KeyPattern("sluice", pattern).ScanPattern();
}

TEST(KeyPattern, MatchesKeysAndNotWhatIsStoredForThem) {
  EXPECT_FALSE(Matches("*b", "{"));  // Stored as %7b.
  EXPECT_FALSE(Matches("*0", "foo "));
  EXPECT_FALSE(Matches("*9", "José"));
  EXPECT_FALSE(Matches("%*", "{"));
  EXPECT_TRUE(Matches("*{", "{"));
  EXPECT_TRUE(Matches("* ", "foo "));
  EXPECT_TRUE(Matches("*%*", "100%"));
  EXPECT_TRUE(Matches("a#*=", "a#b="));
  EXPECT_TRUE(Matches("a\0*"s, "a\0b"s));
}

TEST(KeyPattern, AQuestionMarkIsOneCharacter) {
  EXPECT_TRUE(Matches("?", "{"));
  EXPECT_TRUE(Matches("Jos?", "José"));
  EXPECT_FALSE(Matches("Jos??", "José"));
  EXPECT_FALSE(Matches("*??", "é"));
  EXPECT_TRUE(Matches("?*?", "é€"));
  EXPECT_FALSE(Matches("*??y*", "€yz")) << "a star does not end within a character";
  EXPECT_FALSE(Matches("?", ""));
  // Bytes that are not UTF-8 count one by one.
  EXPECT_TRUE(Matches("?", "\xff"));
  EXPECT_TRUE(Matches("??", "\xe2\x82"));
  EXPECT_FALSE(Matches("?", "\xe2\x82"));
  EXPECT_TRUE(Matches("\xff*", "\xff\xfe"));
}

TEST(KeyPattern, AStarIsAnyCharactersAndAllElseIsItself) {
  for (const char* pattern :
       {"*", "**", "a*", "*a", "*b*", "a?a", "a*b*a", "aba", "a*?a", "*aba"}) {
    EXPECT_TRUE(Matches(pattern, "aba")) << pattern;
  }
  for (const char* pattern : {"", "a", "ab", "abab", "a?", "b*", "*b", "a*b", "????", "*aba?"}) {
    EXPECT_FALSE(Matches(pattern, "aba")) << pattern;
  }
  EXPECT_TRUE(Matches("*ab", "aab")) << "the star is tried again";
  EXPECT_FALSE(Matches("[a]*", "a"));
  EXPECT_TRUE(Matches("[a]\\*", "[a]\\b"));
  EXPECT_FALSE(Matches("A*", "a"));
}

TEST(KeyPattern, TakesNoLongerForManyStars) {
  std::string pattern;
  for (int i = 0; i < 60; ++i) pattern += "*a";
  EXPECT_FALSE(Matches(pattern + "*b", std::string(128, 'a')));
  EXPECT_TRUE(Matches(pattern, std::string(128, 'a')));
}

TEST(KeyPattern, AHashMatchesItsOwnKeyAndStars) {
  const std::string key(200, 'k');
  for (const std::string& pattern : {"*"s, "***"s, key}) EXPECT_TRUE(Matches(pattern, key));
  for (const std::string& pattern : {"#*"s, "*5*"s, "k*"s, "?*"s, key + "*", key + "k"}) {
    EXPECT_FALSE(Matches(pattern, key)) << pattern;
  }
}

TEST(KeyPattern, LeavesAloneWhatIsNoState) {
  for (const char* key : {"sluice:rules", "sluice:{a", "sluice:{a}", "sluice:{a}b:n", "other:{a}:n",
                          "sluice:more:{a}:n", "sluice:{%7}:n", "sluice:{%7B}:n", "sluice:{ }:n"}) {
    EXPECT_FALSE(KeyPattern("sluice", "*").Matches(key)) << key;
  }
  EXPECT_FALSE(KeyPattern("sluice", "a").Matches("sluice:{ab}:n"));
  EXPECT_FALSE(KeyPattern("sluice", "a").Matches("sluice:{a}"));
}

TEST(KeyPattern, ScansForWhatPrecedesTheFirstWildcard) {
  EXPECT_EQ(ScanPattern("*"), "sluice:{*");
  EXPECT_EQ(ScanPattern("user:*b?"), "sluice:{user:*");
  EXPECT_EQ(ScanPattern("{?"), "sluice:{%7b*");
  EXPECT_EQ(ScanPattern("[a]\\b*"), "sluice:{\\[a]\\\\b*");
  EXPECT_EQ(ScanPattern("a["), "sluice:{a\\[}:*");
  EXPECT_EQ(ScanPattern(std::string(200, 'k')), KeyPrefix("sluice", std::string(200, 'k')) + "*");
  EXPECT_EQ(ScanPattern(std::string(200, 'k') + "*"), "sluice:{" + std::string(200, 'k') + "*");
}

}  // namespace
}  // namespace sluice::redis
