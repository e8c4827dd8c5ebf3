// SPDX-License-Identifier: Apache-2.0
#include "api/check_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::api {
namespace {

using ::testing::HasSubstr;

TEST(CheckDocument, ReadsEveryField) {
  auto json = ParseJson(
      R"({"ruleSet":"api","permits":3,"context":{"ip":"192.0.2.1","userId":"u","apiKey":null,)"
      R"("method":"GET","path":"/x","attributes":{"plan":"free"}}})");
  ASSERT_TRUE(json);
  const auto document = CheckDocument::Read(*json);
  ASSERT_TRUE(document) << document.error().message;
  EXPECT_EQ(document->rule_set, "api");
  EXPECT_EQ(document->permits, 3);
  EXPECT_EQ(document->context.ip, "192.0.2.1");
  EXPECT_EQ(document->context.user_id, "u");
  EXPECT_EQ(document->context.api_key, "");
  ASSERT_EQ(document->context.attributes.size(), 1U);
  EXPECT_EQ(document->context.attributes[0].value, "free");
}

TEST(CheckDocument, TakesWholeNumbersForIdsAndAttributes) {
  auto json = ParseJson(R"({"ruleSet":"api","context":{"userId":18446744073709551615,"apiKey":-3,)"
                        R"("attributes":{"tenant":9007199254740993,"level":1e3,"zero":-0.0}}})");
  ASSERT_TRUE(json);
  auto read = CheckDocument::Read(*json);
  ASSERT_TRUE(read) << read.error().message;
  const CheckDocument document = *std::move(read);
  EXPECT_EQ(document.context.user_id, "18446744073709551615");
  EXPECT_EQ(document.context.api_key, "-3");
  ASSERT_EQ(document.context.attributes.size(), 3U);
  EXPECT_EQ(document.context.attributes[0].value, "9007199254740993");
  EXPECT_EQ(document.context.attributes[1].value, "1000");
  EXPECT_EQ(document.context.attributes[2].value, "0");
}

TEST(CheckDocument, SaysWhatIsWrong) {
  for (const auto& [text, expected] :
       {std::pair("[]", "expected an object"), std::pair("{}", "ruleSet"),
        std::pair(R"({"ruleSet":5})", "ruleSet: expected a string"),
        std::pair(R"({"ruleset":"x"})", "no field \"ruleset\""),
        std::pair(R"({"ruleSet":"x","permits":-1})", "permits"),
        std::pair(R"({"ruleSet":"x","permits":1.5})", "permits"),
        std::pair(R"({"ruleSet":"x","permits":"1"})", "permits"),
        std::pair(R"({"ruleSet":"x","context":{"user":"u"}})", "no field \"user\""),
        std::pair(R"({"ruleSet":"x","context":{"attributes":{"a":1.5}}})", "a whole number"),
        std::pair(R"({"ruleSet":"x","context":{"attributes":{"a":true}}})", "expected a string"),
        std::pair(R"({"ruleSet":"x","context":{"userId":1e300}})", "a whole number"),
        std::pair(R"({"ruleSet":"x","context":{"userId":123456789012345678901}})",
                  "a whole number"),
        std::pair(R"({"ruleSet":"x","context":{"userId":[1]}})", "context.userId: expected"),
        std::pair(R"({"ruleSet":"x","context":{"ip":1}})", "context.ip: expected a string"),
        std::pair(R"({"ruleSet":"x","context":{"path":1}})", "context.path: expected a string")}) {
    auto json = ParseJson(text);
    ASSERT_TRUE(json) << text;
    const auto document = CheckDocument::Read(*json);
    ASSERT_FALSE(document) << text;
    EXPECT_THAT(document.error().message, HasSubstr(expected));
  }
  EXPECT_FALSE(ParseJson("{"));
  EXPECT_THAT(ParseJson(R"({"ruleSet":"api","ruleSet":"zzz"})").error().message,
              HasSubstr("member \"ruleSet\" is given twice"));
  EXPECT_FALSE(ParseJson(std::string(100, '[') + std::string(100, ']'))) << "bounded depth";
}

}  // namespace
}  // namespace sluice::api
