// SPDX-License-Identifier: Apache-2.0
#include "client/hold_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"

namespace sluice::client {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Kind = Answer::Kind;
using Outcome = Answer::Outcome;

TEST(HoldExchange, AsksForALimit) {
  EXPECT_EQ(MakeBody({.limit = "jobs", .key = "a\"b", .permits = 2, .ttl = 90s}, "id-1"),
            R"({"limit":"jobs","key":"a\"b","permits":2,"ttl":"90s","id":"id-1"})");
  EXPECT_EQ(ExtendBody({.ttl = 2min}), R"({"ttl":"2m"})");
}

TEST(HoldExchange, AsksForARuleSet) {
  EXPECT_EQ(MakeBody({.rule_set = "r",
                      .context = {{"userId", "ann"}, {"tenant", "7"}, {"path", "/a=b"}},
                      .ttl = 1s},
                     "i"),
            R"({"ruleSet":"r","context":{"userId":"ann","path":"/a=b",)"
            R"("attributes":{"tenant":"7"}},"permits":1,"ttl":"1s","id":"i"})");
}

TEST(HoldExchange, ReadsContexts) {
  const auto pair = ParseContext("path=/a?b=c");
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->first, "path");
  EXPECT_EQ(pair->second, "/a?b=c");
  EXPECT_EQ(ParseContext("tenant=")->second, "");
  for (const char* const text : {"", "userId", "=ann"}) EXPECT_FALSE(ParseContext(text)) << text;
}

TEST(HoldExchange, ReadsWhatEndsTheHold) {
  const Made made = ReadMade({201, R"({"id":"aG9s-_A","holds":true,"allowed":true})"});
  EXPECT_EQ(made.answer.kind, Kind::kDone);
  EXPECT_EQ(made.ticket, "aG9s-_A");
}

TEST(HoldExchange, TakesNothingElseIntoTheTargetsOfRequests) {
  for (const char* const id : {"", "/../x", "a b", "a?b", "aG9s HTTP/1.1\\r\\nHost: x", "aG9s="}) {
    const Made made = ReadMade({201, text::Cat(R"({"holds":true,"id":")", id, R"("})")});
    EXPECT_EQ(made.answer.kind, Kind::kRefused) << id;
    EXPECT_EQ(made.answer.outcome, Outcome::kUnknown) << id;
    EXPECT_EQ(made.ticket, "") << id;
  }
}

TEST(HoldExchange, NothingOnHoldIsNoHold) {
  const Made away = ReadMade({201, R"({"id":"t","holds":false,"source":"fail-open"})"});
  EXPECT_EQ(away.answer.kind, Kind::kAway);
  EXPECT_EQ(away.answer.outcome, Outcome::kGivenUp);
  const Made none = ReadMade({201, R"({"id":"t","holds":false,"source":"store"})"});
  EXPECT_EQ(none.answer.kind, Kind::kRefused);
  EXPECT_THAT(none.answer.message, HasSubstr("no limit applies"));
  EXPECT_EQ(ReadMade({201, "welcome"}).answer.kind, Kind::kRefused) << "a proxy's own page";
}

TEST(HoldExchange, ReadsDenials) {
  const Answer denied =
      ReadMade({429, R"({"allowed":false,"limit":3,"remaining":0,"held":3,"retryAfterMicros":5})"})
          .answer;
  EXPECT_EQ(denied.kind, Kind::kDenied);
  EXPECT_EQ(denied.outcome, Outcome::kGivenUp);
  EXPECT_EQ(denied.retry_after, 5us);
  EXPECT_TRUE(denied.may_pass_sooner);
  EXPECT_EQ(denied.message, "denied, 0 of 3 left, 3 on hold");
  const Answer used_up =
      ReadMade({429, R"({"allowed":false,"limit":3,"remaining":1,"retryAfterMicros":-5})"}).answer;
  EXPECT_FALSE(used_up.may_pass_sooner);
  EXPECT_EQ(used_up.retry_after, 0us);
  const Answer full =
      ReadMade({409, R"({"error":{"code":"TOO_MANY_HOLDS","message":"m"}})"}).answer;
  EXPECT_EQ(full.kind, Kind::kDenied);
  EXPECT_EQ(full.outcome, Outcome::kGivenUp);
}

TEST(HoldExchange, AUsedIdIsReplaced) {
  const Made made = ReadMade({409, R"({"error":{"code":"HOLD_CONFLICT","message":"m"}})"});
  EXPECT_EQ(made.answer.outcome, Outcome::kGivenUp);
  EXPECT_EQ(made.answer.kind, Kind::kAway);
}

TEST(HoldExchange, TellsWhatMayPassFromWhatDoesNot) {
  const Answer unavailable = ReadMade({503, ""}).answer;
  EXPECT_EQ(unavailable.kind, Kind::kAway);
  EXPECT_EQ(unavailable.outcome, Outcome::kUnknown);
  EXPECT_EQ(ReadMade({502, "<html>"}).answer.kind, Kind::kAway);
  const Answer refused =
      ReadMade(
          {404,
           R"({"error":{"code":"NOT_FOUND","message":"no rule \"x\"\u001b[2J \u009b2J \u00e9"}})"})
          .answer;
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_THAT(refused.message, HasSubstr("NOT_FOUND: no rule \"x\"?[2J ?2J \u00e9"));
  EXPECT_EQ(refused.outcome, Outcome::kNotMade);
  EXPECT_EQ(ReadMade({429, "slow down"}).answer.kind, Kind::kAway) << "a proxy's own limit";
  EXPECT_EQ(ReadChanged({200, "{}"}).kind, Kind::kDone);
  EXPECT_EQ(ReadChanged({410, "{}"}).kind, Kind::kLost);
  EXPECT_EQ(ReadChanged({401, "{}"}).kind, Kind::kRefused);
  EXPECT_EQ(ReadChanged({500, "{}"}).kind, Kind::kAway);
}

}  // namespace
}  // namespace sluice::client
