// SPDX-License-Identifier: Apache-2.0
#include "base/parse_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string>

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::size_t kDepthMax = 8;

std::string ErrorOf(std::string_view text) {
  const auto value = ParseJson(text, kDepthMax);
  if (value) return "none";
  EXPECT_EQ(value.error().code, ErrorCode::kInvalidInput);
  return value.error().message;
}

TEST(ParseJson, ReadsWhatBoostReads) {
  for (const std::string text :
       {"null", " true ", "[]", "{}", "-1", "18446744073709551615", "1.5e3", R"("a\u00e9\n")",
        R"([1, [2, {"a": [], "b": {"a": 3, "c": "x"}}], {"a": 1}])", R"({"": {"": 0}})"}) {
    const auto value = ParseJson(text, kDepthMax);
    ASSERT_TRUE(value) << value.error().message;
    EXPECT_EQ(*value, boost::json::parse(text)) << text;
  }
}

TEST(ParseJson, RefusesWhatIsNone) {
  for (const std::string_view text : {"", "{", "{} x", "{\"a\":1,}", "'a'", "{a:1}", "\xff"}) {
    EXPECT_THAT(ErrorOf(text), StartsWith("not JSON: ")) << text;
  }
  EXPECT_EQ(ErrorOf("[[[[[[[[]]]]]]]]"), "none");
  EXPECT_THAT(ErrorOf("[[[[[[[[[]]]]]]]]]"), HasSubstr("8 levels"));
}

TEST(ParseJson, RefusesMembersThatAreGivenTwice) {
  const std::string twice = "member \"key\" is given twice; expected it once";
  EXPECT_EQ(ErrorOf(R"({"key":1,"key":1})"), twice);
  EXPECT_EQ(ErrorOf(R"({"a":1,"key":1,"b":{},"k\u0065y":2})"), twice) << "however it is written";
  EXPECT_EQ(ErrorOf(R"([{"a":[{"key":{"x":1},"y":2,"key":3}]}])"), twice) << "at any depth";
  EXPECT_EQ(ErrorOf(R"({"key":{"key":[{"key":1},{"key":2}]},"Key":3})"), "none");
}

TEST(ParseJson, TakesManyMembers) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += "\"name-" + std::to_string(i) + "\":0,";
  EXPECT_EQ(ErrorOf(text + "\"last\":0}"), "none");
  EXPECT_THAT(ErrorOf(text + "\"name-7\":0}"), HasSubstr("name-7"));
}

}  // namespace
}  // namespace sluice
