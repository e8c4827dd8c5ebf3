// SPDX-License-Identifier: Apache-2.0
// SLUICE.HOLD, SLUICE.SETTLE, SLUICE.EXTEND, SLUICE.RELEASE and SLUICE.GIVE.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "support/resp_session.h"

namespace sluice::resp {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing_support::FieldOf;
using testing_support::RespCommand;
using testing_support::RespEngine;
using testing_support::RespPeer;

constexpr std::string_view kSlots = "algorithm=concurrency,limit=2,ttl=30s";

class HoldsTest : public testing::Test {
 protected:
  std::string Ask(std::initializer_list<std::string_view> arguments) {
    return peer_.Send(arguments);
  }

  // Holds on the limit "login", which has 5 units and gets one a minute.
  std::string Hold(std::string_view key, std::string_view cost, std::string_view ttl = "1m") {
    return Ask({"SLUICE.HOLD", "LIMIT", "login", key, "COST", cost, "TTL", ttl});
  }

  std::string Left(std::string_view key) {
    return FieldOf(Ask({"SLUICE.PEEK", "LIMIT", "login", key}), "remaining");
  }

  std::string Micros(std::chrono::microseconds later) {
    return std::to_string((parts_.clock.Now() + later).time_since_epoch().count());
  }

  RespEngine parts_;
  SessionOptions options_;
  Worker worker_{parts_.engine, options_, [] { return ServerInfo{}; }};
  RespPeer peer_{worker_};
};

std::string Bulk(std::string_view text) {
  return "$" + std::to_string(text.size()) + "\r\n" + std::string(text) + "\r\n";
}

TEST_F(HoldsTest, AHoldAnswersAsACheckAndWithItsId) {
  const std::string expires = Micros(1min);
  const std::string made = Hold("k", "3");
  const std::string id = FieldOf(made, "id");
  EXPECT_EQ(made,
            "*24\r\n$7\r\nallowed\r\n:1\r\n$5\r\nlimit\r\n:5\r\n$9\r\nremaining\r\n:2\r\n"
            "$14\r\nretry_after_us\r\n:0\r\n$14\r\nreset_after_us\r\n:180000000\r\n"
            "$8\r\ndelay_us\r\n:0\r\n$9\r\ndenied_by\r\n$-1\r\n$6\r\nsource\r\n$5\r\nstore\r\n"
            "$2\r\nid\r\n" +
                Bulk(id) + "$5\r\nholds\r\n:1\r\n$13\r\nexpires_at_us\r\n:" + expires +
                "\r\n$4\r\nheld\r\n:3\r\n");
  // A denial has the same shape.
  Ask({"HELLO", "3"});
  EXPECT_EQ(Hold("k", "4"),
            "%12\r\n$7\r\nallowed\r\n:0\r\n$5\r\nlimit\r\n:5\r\n$9\r\nremaining\r\n:2\r\n"
            "$14\r\nretry_after_us\r\n:120000000\r\n$14\r\nreset_after_us\r\n:180000000\r\n"
            "$8\r\ndelay_us\r\n:0\r\n$9\r\ndenied_by\r\n$5\r\nlogin\r\n$6\r\nsource\r\n"
            "$5\r\nstore\r\n$2\r\nid\r\n_\r\n$5\r\nholds\r\n:0\r\n$13\r\nexpires_at_us\r\n_\r\n"
            "$4\r\nheld\r\n:3\r\n");
}

TEST_F(HoldsTest, ChecksSayWhatIsOnHoldOnlyIfAnythingIs) {
  EXPECT_THAT(Ask({"SLUICE.PEEK", "LIMIT", "login", "k"}), StartsWith("*16\r\n"));
  const std::string id = FieldOf(Hold("k", "3"), "id");
  for (const std::string_view command : {"SLUICE.PEEK", "SLUICE.CHECK"}) {
    const std::string reply = Ask({command, "LIMIT", "login", "k"});
    EXPECT_THAT(reply, StartsWith("*18\r\n"));
    EXPECT_THAT(reply, testing::EndsWith("$5\r\nstore\r\n$4\r\nheld\r\n:3\r\n"));
  }
  Ask({"SLUICE.RELEASE", id});
  EXPECT_THAT(Ask({"SLUICE.PEEK", "LIMIT", "login", "k"}), StartsWith("*16\r\n"));

  Ask({"SLUICE.HOLD", "RULESET", "llm", "USER", "ann"});
  EXPECT_THAT(Ask({"SLUICE.PEEK", "RULESET", "llm", "USER", "ann"}), StartsWith("*18\r\n"));
  const std::string detail = Ask({"SLUICE.PEEK", "RULESET", "llm", "USER", "ann", "DETAIL"});
  EXPECT_THAT(detail, StartsWith("*20\r\n"));
  EXPECT_THAT(detail, HasSubstr("bands\r\n*2\r\n*18\r\n"));
}

TEST_F(HoldsTest, ASettledHoldHasCostWhatItReallyDid) {
  const std::string id = FieldOf(Hold("k", "4"), "id");
  const std::string settled =
      "*16\r\n$4\r\nlate\r\n:0\r\n$9\r\noverdrawn\r\n:0\r\n"
      "$5\r\nlimit\r\n:5\r\n$9\r\nremaining\r\n:4\r\n$4\r\nheld\r\n:0\r\n"
      "$14\r\nreset_after_us\r\n:60000000\r\n$6\r\nsource\r\n$5\r\nstore\r\n"
      "$6\r\nlimits\r\n*1\r\n*14\r\n$4\r\nname\r\n$5\r\nlogin\r\n"
      "$3\r\nkey\r\n$1\r\nk\r\n$4\r\ncost\r\n:1\r\n$5\r\nlimit\r\n:5\r\n"
      "$9\r\nremaining\r\n:4\r\n$4\r\nheld\r\n:0\r\n"
      "$14\r\nreset_after_us\r\n:60000000\r\n";
  EXPECT_EQ(Ask({"SLUICE.SETTLE", id, "COST", "1"}), settled);
  EXPECT_EQ(Ask({"sluice.settle", id, "cost", "1"}), settled) << "again, it changes nothing";
  EXPECT_EQ(Left("k"), "4");

  const std::string more = Ask({"SLUICE.SETTLE", FieldOf(Hold("m", "1"), "id"), "COST", "9"});
  EXPECT_EQ(FieldOf(more, "overdrawn"), "1");
  EXPECT_EQ(FieldOf(more, "remaining"), "0");
  Ask({"SLUICE.SETTLE", FieldOf(Hold("n", "2"), "id")});
  EXPECT_EQ(Left("n"), "3") << "without a cost, it is what was held";
}

TEST_F(HoldsTest, AReleaseGivesEverythingBack) {
  const std::string id = FieldOf(Hold("k", "4"), "id");
  const std::string released = Ask({"SLUICE.RELEASE", id});
  EXPECT_EQ(FieldOf(released, "late"), "0");
  EXPECT_EQ(FieldOf(released, "remaining"), "5");
  EXPECT_EQ(FieldOf(released, "cost"), "null");
  EXPECT_EQ(FieldOf(Ask({"SLUICE.RELEASE", id}), "late"), "0");
}

TEST_F(HoldsTest, AnExtendedHoldLastsFromThenOn) {
  const std::string id = FieldOf(Hold("k", "4", "10s"), "id");
  parts_.clock.Advance(9s);
  const std::string extended = Ask({"SLUICE.EXTEND", id, "TTL", "1h"});
  EXPECT_THAT(extended, StartsWith("*14\r\n$13\r\nexpires_at_us\r\n:" + Micros(1h) + "\r\n"));
  EXPECT_EQ(FieldOf(extended, "held"), "4");
  EXPECT_EQ(FieldOf(extended, "cost"), "null");
  const std::string again = Micros(10s);
  EXPECT_EQ(FieldOf(Ask({"SLUICE.EXTEND", id}), "expires_at_us"), again);
  parts_.clock.Advance(10s);
  EXPECT_THAT(Ask({"SLUICE.EXTEND", id}), StartsWith("-HOLD_LOST the hold "));
}

TEST_F(HoldsTest, AHoldThatExpiresChargesUnlessToldOtherwise) {
  Hold("charges", "4", "10s");
  const std::string id = FieldOf(Ask({"SLUICE.HOLD", "LIMIT", "login", "releases", "COST", "4",
                                      "TTL", "10s", "ONEXPIRY", "release"}),
                                 "id");
  parts_.clock.Advance(10s);
  EXPECT_EQ(Left("charges"), "1");
  EXPECT_EQ(Left("releases"), "5");
  const std::string late = Ask({"SLUICE.SETTLE", id, "COST", "2"});
  EXPECT_EQ(FieldOf(late, "late"), "1");
  EXPECT_EQ(FieldOf(late, "remaining"), "3");
}

TEST_F(HoldsTest, AnIdOfTheClientsOwnIsTakenOnce) {
  const auto hold = [&](std::string_view cost) {
    return Ask({"SLUICE.HOLD", "LIMIT", "login", "k", "COST", cost, "TTL", "1m", "ID", "job 1"});
  };
  const std::string first = hold("2");
  EXPECT_EQ(hold("2"), first);
  EXPECT_THAT(hold("1"), StartsWith("-HOLD_CONFLICT the hold \"job 1\" exists with other costs"));
  Ask({"SLUICE.RELEASE", FieldOf(first, "id")});
  EXPECT_THAT(hold("2"), StartsWith("-HOLD_CONFLICT "));
  EXPECT_NE(FieldOf(Hold("a", "1"), "id"), FieldOf(Hold("b", "1"), "id"));
}

TEST_F(HoldsTest, WhatIsInUseAtATimeIsHeldAndReleased) {
  const auto hold = [&] { return Ask({"SLUICE.HOLD", "LIMIT", kSlots, "jobs"}); };
  const std::string expires = Micros(30s);
  const std::string first = hold();
  EXPECT_EQ(FieldOf(first, "expires_at_us"), expires) << "the limit's own ttl";
  hold();
  const std::string denied = hold();
  EXPECT_EQ(FieldOf(denied, "allowed"), "0");
  EXPECT_EQ(FieldOf(denied, "denied_by"), kSlots);
  EXPECT_EQ(FieldOf(denied, "retry_after_us"), "30000000");
  const std::string settled = Ask({"SLUICE.SETTLE", FieldOf(first, "id")});
  EXPECT_EQ(FieldOf(settled, "cost"), "null");
  EXPECT_EQ(FieldOf(settled, "remaining"), "1");
  EXPECT_EQ(FieldOf(hold(), "allowed"), "1");
  for (const std::string_view command : {"SLUICE.CHECK", "SLUICE.GIVE"}) {
    EXPECT_THAT(Ask({command, "LIMIT", kSlots, "jobs"}), StartsWith("-NEEDS_HOLD ")) << command;
    EXPECT_THAT(Ask({command, "RULESET", "llm", "USER", "ann"}), StartsWith("-NEEDS_HOLD "));
  }
}

TEST_F(HoldsTest, OneBudgetHasSoManyHoldsAtMost) {
  constexpr std::string_view kMany = "algorithm=concurrency,limit=10000,ttl=1m";
  for (std::size_t i = 0; i < kLiveHoldsMax; ++i) {
    ASSERT_THAT(Ask({"SLUICE.HOLD", "LIMIT", kMany, "k"}), StartsWith("*")) << i;
  }
  EXPECT_THAT(Ask({"SLUICE.HOLD", "LIMIT", kMany, "k"}), StartsWith("-TOO_MANY_HOLDS "));
}

TEST_F(HoldsTest, RulesAreHeldTogetherAndSettledOneByOne) {
  const auto hold = [&] {
    return Ask({"SLUICE.HOLD", "RULESET", "llm", "USER", "ann", "ATTR", "tokens", "800"});
  };
  const std::string expires = Micros(30s);
  const std::string made = hold();
  EXPECT_THAT(made, StartsWith("*24\r\n"));
  EXPECT_EQ(FieldOf(made, "remaining"), "1") << "of the streams, the fewest";
  EXPECT_EQ(FieldOf(made, "expires_at_us"), expires) << "the shortest ttl of the rules";
  const std::string denied = hold();
  EXPECT_THAT(denied, StartsWith("*24\r\n"));
  EXPECT_EQ(FieldOf(denied, "denied_by"), "tokens/tpm");
  EXPECT_EQ(FieldOf(denied, "id"), "null");

  const std::string id = FieldOf(made, "id");
  const std::string settled = Ask({"SLUICE.SETTLE", id, "RULE", "tokens", "250"});
  EXPECT_THAT(settled, HasSubstr("limits\r\n*2\r\n*14\r\n$4\r\nname\r\n$14\r\nllm/tokens/tpm\r\n"
                                 "$3\r\nkey\r\n$8\r\nuser:ann\r\n$4\r\ncost\r\n:250\r\n"
                                 "$5\r\nlimit\r\n:1000\r\n$9\r\nremaining\r\n:750\r\n"));
  EXPECT_THAT(settled, HasSubstr("$4\r\nname\r\n$16\r\nllm/streams/open\r\n"
                                 "$3\r\nkey\r\n$8\r\nuser:ann\r\n$4\r\ncost\r\n$-1\r\n"
                                 "$5\r\nlimit\r\n:2\r\n$9\r\nremaining\r\n:2\r\n"));
}

TEST_F(HoldsTest, AHoldUnderRulesTakesTheWordsOfACheckAndOfAHold) {
  const std::string expires = Micros(5s);
  const std::string made =
      Ask({"SLUICE.HOLD", "RULESET", "llm", "COST",      "2",      "TTL", "5s",     "ID",  "x",
           "ONEXPIRY",    "CHARGE",  "IP",  "192.0.2.1", "USER",   "ann", "APIKEY", "key", "METHOD",
           "GET",         "PATH",    "/x",  "ATTR",      "tokens", "10",  "DETAIL"});
  EXPECT_THAT(made, StartsWith("*26\r\n"));
  EXPECT_THAT(made, HasSubstr("bands\r\n*2\r\n"));
  EXPECT_EQ(FieldOf(made, "allowed"), "1");
  EXPECT_EQ(FieldOf(made, "expires_at_us"), expires);
  const std::string settled = Ask({"SLUICE.SETTLE", FieldOf(made, "id")});
  EXPECT_EQ(FieldOf(settled, "cost"), "20");
}

TEST_F(HoldsTest, AHoldOnNothingHasAnIdAndHoldsNothing) {
  const std::string made = Ask({"SLUICE.HOLD", "RULESET", "llm"});
  EXPECT_THAT(made, StartsWith("*24\r\n"));
  EXPECT_EQ(FieldOf(made, "allowed"), "1");
  EXPECT_EQ(FieldOf(made, "limit"), "null");
  EXPECT_EQ(FieldOf(made, "holds"), "0");
  EXPECT_EQ(FieldOf(made, "expires_at_us"), "null");
  const std::string settled = Ask({"SLUICE.SETTLE", FieldOf(made, "id"), "COST", "3"});
  EXPECT_EQ(FieldOf(settled, "limit"), "null");
  EXPECT_EQ(FieldOf(settled, "limits"), "0");
}

TEST_F(HoldsTest, GivingBackNeverMakesMoreThanAnUntouchedBudget) {
  Ask({"SLUICE.CHECK", "LIMIT", "login", "k", "COST", "4"});
  EXPECT_EQ(Ask({"SLUICE.GIVE", "LIMIT", "login", "k"}),
            "*10\r\n$5\r\nlimit\r\n:5\r\n$9\r\nremaining\r\n:2\r\n$4\r\nheld\r\n:0\r\n"
            "$14\r\nreset_after_us\r\n:180000000\r\n$6\r\nsource\r\n$5\r\nstore\r\n");
  EXPECT_EQ(FieldOf(Ask({"SLUICE.GIVE", "LIMIT", "login", "k", "COST", "0"}), "remaining"), "2");
  EXPECT_EQ(FieldOf(Ask({"SLUICE.GIVE", "LIMIT", "login", "k", "COST", "99"}), "remaining"), "5");
  Hold("k", "2");
  const std::string given = Ask({"SLUICE.GIVE", "LIMIT", "login", "k", "COST", "99"});
  EXPECT_EQ(FieldOf(given, "remaining"), "3") << "what is on hold stays on hold";
  EXPECT_EQ(FieldOf(given, "held"), "2");
}

TEST_F(HoldsTest, GivesBackWhatACheckOfRulesWouldTake) {
  const auto left = [&](std::string_view user) {
    return FieldOf(Ask({"SLUICE.PEEK", "RULESET", "api", "USER", user}), "remaining");
  };
  Ask({"SLUICE.CHECK", "RULESET", "api", "USER", "ann", "COST", "2"});
  EXPECT_EQ(left("ann"), "0");
  const std::string given = Ask({"SLUICE.GIVE", "RULESET", "api", "USER", "ann"});
  EXPECT_THAT(given, StartsWith("*10\r\n$5\r\nlimit\r\n:2\r\n$9\r\nremaining\r\n:1\r\n"));
  EXPECT_EQ(left("ann"), "1");
  EXPECT_EQ(FieldOf(Ask({"SLUICE.PEEK", "RULESET", "api"}), "remaining"), "99") << "everyone's";
  // In one round with what comes before and after it.
  const std::string out =
      peer_.Send(RespCommand({"SLUICE.CHECK", "RULESET", "api", "USER", "ann", "COST", "2"}) +
                 RespCommand({"SLUICE.GIVE", "RULESET", "api", "USER", "ann"}) +
                 RespCommand({"SLUICE.CHECK", "RULESET", "api", "USER", "ann", "COST", "2"}));
  EXPECT_EQ(FieldOf(out, "allowed"), "0");
  EXPECT_EQ(FieldOf(out.substr(out.find("*10\r\n")), "allowed"), "1");
  EXPECT_EQ(FieldOf(Ask({"SLUICE.GIVE", "RULESET", "llm"}), "limit"), "null") << "no rule applies";
}

TEST_F(HoldsTest, SaysWhatIsWrong) {
  const std::string id = FieldOf(Hold("k", "1"), "id");
  struct Case {
    std::vector<std::string_view> command;
    std::string_view said;
  };
  const Case cases[] = {
      {{"SLUICE.HOLD", "ALL", "x"}, "\"ALL\" is neither LIMIT nor RULESET"},
      {{"SLUICE.HOLD", "LIMIT", "login"},
       "the key is missing; expected LIMIT limit key [COST cost] [TTL ttl] [ID id] "
       "[ONEXPIRY CHARGE|RELEASE]"},
      {{"SLUICE.HOLD", "LIMIT", "login", "k", "DETAIL"}, "syntax error at \"DETAIL\""},
      {{"SLUICE.HOLD", "LIMIT", "login", "k"}, "a hold without a ttl; expected 1ms to 1d"},
      {{"SLUICE.HOLD", "LIMIT", "login", "k", "TTL", "30"},
       "TTL is \"30\"; expected a duration such as 30s, from 1ms to 1d"},
      {{"SLUICE.HOLD", "LIMIT", "login", "k", "TTL", "25h"}, "TTL is \"25h\""},
      {{"SLUICE.HOLD", "LIMIT", "login", "k", "TTL", "999us"}, "TTL is \"999us\""},
      {{"SLUICE.HOLD", "LIMIT", "login", "k", "ONEXPIRY", "keep"},
       "ONEXPIRY is \"keep\"; expected CHARGE or RELEASE"},
      {{"SLUICE.HOLD", "LIMIT", "login", "k", "TTL", "1m", "COST", "-1"}, "COST is \"-1\""},
      {{"SLUICE.HOLD", "LIMIT", "login", "k", "TTL", "1m", "ID", "\xc3\xa9"}, "printable ASCII"},
      {{"SLUICE.HOLD", "LIMIT", "login", "k", "TTL", "1m", "ttl", "1m"}, "TTL is given twice"},
      {{"SLUICE.HOLD", "LIMIT", "login", "k", "ID", "a", "ID", "b"}, "ID is given twice"},
      {{"SLUICE.HOLD", "LIMIT", "lake", "k", "TTL", "1m"}, "no limit is named \"lake\""},
      {{"SLUICE.HOLD", "LIMIT", "login", "", "TTL", "1m"}, "a key of 0 bytes"},
      {{"SLUICE.HOLD", "RULESET", "nothing"}, "there is no rule set \"nothing\""},
      {{"SLUICE.HOLD", "RULESET", "api", "USER", "u"},
       "none of the rules that apply says how long"},
      {{"SLUICE.HOLD", "RULESET", "api", "TTL"},
       "syntax error at \"TTL\"; expected RULESET id [COST cost] [TTL ttl] [ID id] "
       "[ONEXPIRY CHARGE|RELEASE] [IP ip]"},
      {{"SLUICE.CHECK", "LIMIT", "login", "k", "TTL", "1m"}, "syntax error at \"TTL\""},
      {{"SLUICE.CHECK", "RULESET", "api", "ID", "x"}, "syntax error at \"ID\""},
      {{"SLUICE.GIVE", "LIMIT", "login", "k", "TTL", "1m"}, "syntax error at \"TTL\""},
      {{"SLUICE.GIVE", "RULESET", "api", "DETAIL"}, "syntax error at \"DETAIL\""},
      {{"SLUICE.GIVE", "LIMIT", "login", "k", "COST", "-1"}, "COST is \"-1\""},
      {{"SLUICE.SETTLE", "nobody's"}, "this is not the id of a hold"},
      {{"SLUICE.RELEASE", ""}, "this is not the id of a hold"},
      {{"SLUICE.EXTEND", std::string_view(id).substr(1)}, "this is not the id of a hold"},
      {{"SLUICE.SETTLE", id, "1"}, "syntax error at \"1\"; expected COST cost, or RULE rule cost"},
      {{"SLUICE.SETTLE", id, "COST"}, "syntax error at \"COST\""},
      {{"SLUICE.SETTLE", id, "COST", "x"}, "COST is \"x\""},
      {{"SLUICE.SETTLE", id, "COST", "1", "COST", "1"}, "COST is given twice"},
      {{"SLUICE.SETTLE", id, "COST", "1", "RULE", "r", "1"}, "COST and RULE exclude each other"},
      {{"SLUICE.SETTLE", id, "RULE", "r"}, "syntax error at \"RULE\""},
      {{"SLUICE.SETTLE", id, "RULE", "r", "1"}, "the hold is not on a rule \"r\""},
      {{"SLUICE.EXTEND", id, "1m"}, "syntax error at \"1m\"; expected TTL ttl, or nothing"},
      {{"SLUICE.EXTEND", id, "TTL", "2d"}, "TTL is \"2d\""},
      {{"SLUICE.EXTEND", id, "TTL", "1m", "TTL", "1m"}, "TTL is given twice"},
      {{"SLUICE.RELEASE", id, "now"}, "wrong number of arguments for 'sluice.release' command"},
  };
  for (const Case& each : cases) {
    std::string bytes;
    redis::AppendCommand(bytes, each.command);
    const std::string answer = peer_.Send(bytes);
    EXPECT_THAT(answer, StartsWith("-ERR ")) << bytes;
    EXPECT_THAT(answer, HasSubstr(each.said)) << bytes;
  }
  EXPECT_EQ(Ask({"SLUICE.HOLD", "LIMIT", "login", "k", "TTL", "1m", "COST", "6"})
                .find("-COST_EXCEEDS_LIMIT "),
            0U);
  EXPECT_EQ(Left("k"), "4") << "nothing has changed";

  const std::string rules = FieldOf(Ask({"SLUICE.HOLD", "RULESET", "llm", "USER", "ann"}), "id");
  EXPECT_THAT(Ask({"SLUICE.SETTLE", rules, "RULE", "tokens", "1", "RULE", "tokens", "2"}),
              StartsWith("-ERR RULE \"tokens\" is given twice"));
  EXPECT_THAT(Ask({"SLUICE.SETTLE", rules, "RULE", "tokens", "1", "RULE", "streams", "0"}),
              Not(StartsWith("-")));
}

TEST_F(HoldsTest, EventsAreCounted) {
  const std::string id = FieldOf(Hold("k", "1"), "id");
  Hold("k", "5");
  Ask({"SLUICE.EXTEND", id});
  Ask({"SLUICE.SETTLE", id, "COST", "2"});
  Ask({"SLUICE.RELEASE", FieldOf(Ask({"SLUICE.HOLD", "RULESET", "llm", "USER", "u"}), "id")});
  EXPECT_THAT(Ask({"SLUICE.EXTEND", id}), StartsWith("-HOLD_LOST "));
  const std::string text = parts_.registry.Text();
  for (const char* line :
       {R"(sluice_holds_total{event="made"} 2)", R"(sluice_holds_total{event="extended"} 1)",
        R"(sluice_holds_total{event="settled"} 1)", R"(sluice_holds_total{event="overdrawn"} 1)",
        R"(sluice_holds_total{event="released"} 1)",
        R"(sluice_errors_total{code="HOLD_LOST"} 1)"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

}  // namespace
}  // namespace sluice::resp
