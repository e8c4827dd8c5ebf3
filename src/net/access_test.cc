// SPDX-License-Identifier: Apache-2.0
#include "net/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice::net {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::Optional;

TEST(Tokens, AreReadFromLines) {
  const auto tokens = Tokens::Parse("# Who may ask.\n\n  plain \r\nenvoy\tfirst\nenvoy   second");
  ASSERT_TRUE(tokens);
  EXPECT_EQ(tokens->size(), 3U);
  EXPECT_THAT(tokens->Find("plain"), Optional(std::string_view("")));
  EXPECT_THAT(tokens->Find("first"), Optional(std::string_view("envoy")));
  EXPECT_THAT(tokens->Find("second"), Optional(std::string_view("envoy")));
  for (const char* other :
       {"", "plai", "plain ", "envoy", "plainx", "firs", "# Who may ask.", "#"}) {
    EXPECT_FALSE(tokens->Find(other)) << other;
  }
}

TEST(Tokens, DifferInAnyByte) {
  for (const std::size_t size : {1U, 7U, 8U, 9U, 16U, 63U, 64U, 65U}) {
    Tokens tokens;
    const std::string right(size, 'x');
    tokens.Add("it", right);
    EXPECT_TRUE(tokens.Find(right));
    EXPECT_FALSE(tokens.Find(right + "x"));
    EXPECT_FALSE(tokens.Find(right.substr(1)));
    for (std::size_t i = 0; i < size; ++i) {
      std::string wrong = right;
      wrong[i] = 'y';
      EXPECT_FALSE(tokens.Find(wrong)) << i << " of " << size;
    }
  }
}

TEST(Tokens, ErrorsNameTheLineAndNotTheToken) {
  const std::string long_name = std::string(65, 'n') + " secret";
  const std::string long_token(4097, 's');
  const struct {
    std::string_view text;
    std::string_view expected;
  } cases[] = {
      {"", "there is no token"},
      {"# one\n \n", "there is no token"},
      {"ok\nname sec ret", "line 2: expected a token of visible ASCII"},
      {"n\xc3\xa4me secret", "line 1: expected a token of visible ASCII"},
      {"s\x01"
       "ecret",
       "line 1: expected a token of visible ASCII"},
      {"a secret\nb secret", "line 2: the token is already there"},
      {long_name, "line 1: expected a name of at most 64 bytes"},
      {long_token, "line 1: expected a name of at most 64 bytes and a token of"},
  };
  for (const auto& [text, expected] : cases) {
    const auto tokens = Tokens::Parse(text);
    ASSERT_FALSE(tokens) << text;
    EXPECT_EQ(tokens.error().code, ErrorCode::kInvalidInput);
    EXPECT_THAT(tokens.error().message, HasSubstr(expected));
    EXPECT_THAT(tokens.error().message, Not(HasSubstr("cret")));
  }
  std::string many;
  for (std::size_t i = 0; i < Tokens::kCountMax; ++i) many += "token" + std::to_string(i) + "\n";
  EXPECT_TRUE(Tokens::Parse(many));
  EXPECT_THAT(Tokens::Parse(many + "more").error().message,
              HasSubstr("line 257: expected at most"));
}

TEST(Access, KnowsTheTokensAsTheyAre) {
  Access access(Access::Door::kGuarded);
  EXPECT_FALSE(access.open());
  EXPECT_FALSE(access.Knows(""));
  EXPECT_FALSE(access.Knows("old"));
  access.SetTokens(*Tokens::Parse("ci old"));
  const std::uint64_t generation = access.generation();
  EXPECT_TRUE(access.Knows("old"));
  EXPECT_FALSE(access.Knows(""));
  EXPECT_EQ(access.Find("old"), "ci");
  access.SetTokens(*Tokens::Parse("ci new"));
  EXPECT_FALSE(access.Knows("old"));
  EXPECT_TRUE(access.Knows("new"));
  EXPECT_NE(access.generation(), generation);
  EXPECT_TRUE(Access(Access::Door::kOpen).open());
}

TEST(BearerToken, IsWhatFollowsTheScheme) {
  EXPECT_EQ(BearerToken("Bearer abc"), "abc");
  EXPECT_EQ(BearerToken("bEARER   abc "), "abc");
  for (const char* none : {"", "Bearer", "Bearer ", "Basic abc", "abc", "Bearerabc"}) {
    EXPECT_EQ(BearerToken(none), "") << none;
  }
}

}  // namespace
}  // namespace sluice::net
