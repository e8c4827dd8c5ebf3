// SPDX-License-Identifier: Apache-2.0
#include "net/url.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace sluice::net {
namespace {

std::string Decoded(std::string_view text, Plus plus = Plus::kSpace) {
  std::string out;
  return AppendDecoded(out, text, plus) ? out : "error";
}

TEST(Decode, ReplacesEscapes) {
  EXPECT_EQ(Decoded("user%3A1%2f2"), "user:1/2");
  EXPECT_EQ(Decoded("a+b%2B"), "a b+");
  EXPECT_EQ(Decoded("a+b%2B", Plus::kPlus), "a+b+");
  EXPECT_EQ(Decoded("%00"), std::string(1, '\0'));
  EXPECT_EQ(Decoded("%C3%a9"), "\xC3\xA9");
  EXPECT_EQ(Decoded("%2541"), "%41") << "once, not twice";
  EXPECT_EQ(Decoded(""), "");
}

TEST(Decode, RefusesBadEscapes) {
  for (const std::string_view text :
       {"%", "a%", "%4", "%4g", "%g4", "%%41", "% 41", "%+1", "%u0041", "%-1"}) {
    EXPECT_EQ(Decoded(text), "error") << text;
  }
}

TEST(QueryReader, GoesThroughTheParameters) {
  QueryReader reader("a=1&&b&=c&d=e=f&");
  const auto expect = [&](std::string_view name, std::string_view value) {
    const auto parameter = reader.Next();
    ASSERT_TRUE(parameter);
    EXPECT_EQ(parameter->name, name);
    EXPECT_EQ(parameter->value, value);
  };
  expect("a", "1");
  expect("b", "");
  expect("", "c");
  expect("d", "e=f");
  EXPECT_FALSE(reader.Next());
  EXPECT_FALSE(reader.Next());
}

class ReadQueryTest : public testing::Test {
 protected:
  Expected<void> Read(std::string_view query) {
    wanted_ = {{{"key"}, {"algorithm"}, {"permits"}}};
    return ReadQuery(query, wanted_, scratch_);
  }

  std::array<WantedParameter, 3> wanted_;
  std::string scratch_;
};

TEST_F(ReadQueryTest, FindsWhatIsWanted) {
  ASSERT_TRUE(Read("algorithm=TOKEN_BUCKET&x=1&key=user%3A1+2"));
  EXPECT_EQ(wanted_[0].value, "user:1 2");
  EXPECT_EQ(wanted_[1].value, "TOKEN_BUCKET");
  EXPECT_FALSE(wanted_[2].value);
}

TEST_F(ReadQueryTest, TellsEmptyFromAbsent) {
  ASSERT_TRUE(Read("key=&permits"));
  EXPECT_EQ(wanted_[0].value, "");
  EXPECT_EQ(wanted_[2].value, "");
  EXPECT_FALSE(wanted_[1].value);
}

TEST_F(ReadQueryTest, KeepsAllDecodedValuesAtOnce) {
  const std::string long_value(2'000, 'x');
  ASSERT_TRUE(Read("key=%41" + long_value + "&algorithm=%42" + long_value + "&permits=%43"));
  EXPECT_EQ(wanted_[0].value, "A" + long_value);
  EXPECT_EQ(wanted_[1].value, "B" + long_value);
  EXPECT_EQ(wanted_[2].value, "C");
}

TEST_F(ReadQueryTest, RefusesWhatIsGivenTwiceHoweverItIsWritten) {
  EXPECT_EQ(Read("key=a&key=b").error().message,
            "query parameter \"key\": expected once, but it is given more than once");
  EXPECT_FALSE(Read("key=a&%6bey=a"));
  EXPECT_TRUE(Read("other=a&other=b&key=a"));
}

TEST_F(ReadQueryTest, RefusesBadEscapesEvenInWhatIsNotWanted) {
  EXPECT_EQ(Read("x=%zz").error().message,
            "query parameter \"x\": expected two hexadecimal digits after each %");
  EXPECT_FALSE(Read("%=1"));
}

TEST_F(ReadQueryTest, TakesABoundedNumberOfParameters) {
  std::string query = "key=a";
  for (std::size_t i = 1; i < kQueryParametersMax; ++i) query += "&x=1";
  EXPECT_TRUE(Read(query));
  EXPECT_EQ(Read(query + "&x=1").error().message, "query: expected at most 64 parameters");
}

TEST(HostName, IsTheSameForEverySpelling) {
  for (const std::string_view host : {"shop.example", "SHOP.Example", "shop.example:80",
                                      "shop.example.", "Shop.example.:8443", "shop.example:"}) {
    EXPECT_EQ(HostName(host), "shop.example") << host;
  }
  EXPECT_EQ(HostName("[2001:DB8::1]:80"), "[2001:db8::1]");
  EXPECT_EQ(HostName("[2001:db8::1]"), "[2001:db8::1]");
  EXPECT_EQ(HostName("[::1"), "[::1");
  EXPECT_EQ(HostName(""), "");
  EXPECT_EQ(HostName(".:"), "");
}

}  // namespace
}  // namespace sluice::net
