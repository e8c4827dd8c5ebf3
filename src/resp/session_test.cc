// SPDX-License-Identifier: Apache-2.0
#include "resp/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/resp_session.h"

namespace sluice::resp {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing_support::FieldOf;
using testing_support::RespCommand;
using testing_support::RespEngine;
using testing_support::RespPeer;

std::string Integers(std::initializer_list<std::int64_t> numbers) {
  std::string reply;
  redis::AppendArrayHeader(reply, numbers.size());
  for (const std::int64_t number : numbers) redis::AppendInteger(reply, number);
  return reply;
}

class SessionTest : public testing::Test {
 protected:
  std::string Ask(std::initializer_list<std::string_view> arguments) {
    return peer_.Send(arguments);
  }

  RespEngine parts_;
  SessionOptions options_;
  Worker worker_{parts_.engine, options_, [] { return ServerInfo{.port = 6379}; }};
  RespPeer peer_{worker_};
};

using ClThrottle = SessionTest;

// The scenario of redis-cell's own tests: limit 5, one per second.
TEST_F(ClThrottle, AnswersAsRedisCell) {
  struct Case {
    int at_ms;
    std::string_view quantity;
    std::int64_t remaining, reset, retry, limited;
  };
  const Case cases[] = {
      {0, "6", 5, 0, -1, 1},    {0, "1", 4, 1, -1, 0},    {0, "1", 3, 2, -1, 0},
      {0, "1", 2, 3, -1, 0},    {0, "1", 1, 4, -1, 0},    {0, "1", 0, 5, -1, 0},
      {0, "1", 0, 5, 1, 1},     {3000, "1", 2, 3, -1, 0}, {3100, "1", 1, 4, -1, 0},
      {4000, "1", 1, 4, -1, 0}, {8000, "1", 4, 1, -1, 0}, {9500, "1", 4, 1, -1, 0},
      {9500, "0", 4, 1, -1, 0}, {9500, "2", 2, 3, -1, 0}, {9500, "5", 2, 3, 3, 1},
  };
  const TimePoint start = parts_.clock.Now();
  for (const Case& c : cases) {
    parts_.clock.Set(start + std::chrono::milliseconds{c.at_ms});
    EXPECT_EQ(Ask({"CL.THROTTLE", "foo", "4", "1", "1", c.quantity}),
              Integers({c.limited, 5, c.remaining, c.retry, c.reset}))
        << "at " << c.at_ms << " ms, quantity " << c.quantity;
  }
}

TEST_F(ClThrottle, TakesOneUnlessTold) {
  EXPECT_EQ(Ask({"cl.throttle", "k", "15", "30", "60"}), Integers({0, 16, 15, -1, 2}));
  EXPECT_EQ(Ask({"CL.Throttle", "k", "15", "30", "60", "15"}), Integers({0, 16, 0, -1, 32}));
  EXPECT_EQ(Ask({"CL.THROTTLE", "k", "15", "30", "60"}), Integers({1, 16, 0, 2, 32}));
}

TEST_F(ClThrottle, RoundsWaitsUp) {
  Ask({"CL.THROTTLE", "k", "0", "1", "2"});
  parts_.clock.Advance(Micros{1});
  EXPECT_EQ(Ask({"CL.THROTTLE", "k", "0", "1", "2"}), Integers({1, 1, 0, 2, 2}));
  parts_.clock.Advance(Micros{1'999'998});
  EXPECT_EQ(Ask({"CL.THROTTLE", "k", "0", "1", "2"}), Integers({1, 1, 0, 1, 1}));
  parts_.clock.Advance(Micros{1});
  EXPECT_EQ(Ask({"CL.THROTTLE", "k", "0", "1", "2"}), Integers({0, 1, 0, -1, 2}));
}

TEST_F(ClThrottle, KeepsWhatWasUsedWhenTheNumbersChange) {
  EXPECT_EQ(Ask({"CL.THROTTLE", "k", "9", "1", "60", "8"}), Integers({0, 10, 2, -1, 480}));
  EXPECT_EQ(Ask({"CL.THROTTLE", "k", "19", "1", "60", "1"}), Integers({0, 20, 11, -1, 540}));
  EXPECT_EQ(Ask({"CL.THROTTLE", "k", "4", "1", "60", "1"}), Integers({1, 5, 0, 300, 540}));
  EXPECT_EQ(Ask({"CL.THROTTLE", "other", "4", "1", "60", "1"}), Integers({0, 5, 4, -1, 60}));
}

TEST_F(ClThrottle, SaysWhatIsWrong) {
  EXPECT_EQ(Ask({"CL.THROTTLE", "k", "1", "1"}),
            "-ERR wrong number of arguments for 'cl.throttle' command\r\n");
  EXPECT_EQ(Ask({"CL.THROTTLE", "k", "1", "1", "1", "1", "1"}),
            "-ERR wrong number of arguments for 'cl.throttle' command\r\n");
  EXPECT_EQ(Ask({"CL.THROTTLE", "k", "x", "1", "1"}),
            "-ERR max_burst is \"x\"; expected a whole number from 0 to 9007199254740990\r\n");
  EXPECT_THAT(Ask({"CL.THROTTLE", "k", "-1", "1", "1"}), StartsWith("-ERR max_burst is \"-1\""));
  EXPECT_THAT(Ask({"CL.THROTTLE", "k", "1", "0", "1"}), StartsWith("-ERR count is \"0\""));
  EXPECT_THAT(Ask({"CL.THROTTLE", "k", "1", "1", "0"}), StartsWith("-ERR period_seconds is \"0\""));
  EXPECT_THAT(Ask({"CL.THROTTLE", "k", "1", "1", "1.5"}), StartsWith("-ERR period_seconds"));
  EXPECT_THAT(Ask({"CL.THROTTLE", "k", "1", "1", "1", "-1"}),
              StartsWith("-ERR quantity is \"-1\""));
  EXPECT_THAT(Ask({"CL.THROTTLE", "k", "9007199254740990", "1", "4503599627"}),
              StartsWith("-ERR gcra: "));
  EXPECT_THAT(Ask({"CL.THROTTLE", "", "1", "1", "1"}), StartsWith("-ERR a key of 0 bytes"));
  EXPECT_THAT(Ask({"CL.THROTTLE", std::string(1025, 'k'), "1", "1", "1"}),
              StartsWith("-ERR a key of 1025 bytes"));
}

TEST_F(ClThrottle, DelMakesTheBudgetWhole) {
  Ask({"CL.THROTTLE", "a", "0", "1", "60"});
  Ask({"CL.THROTTLE", "b", "0", "1", "60"});
  // In one round with what comes before and after it.
  EXPECT_EQ(
      peer_.Send(RespCommand({"CL.THROTTLE", "a", "0", "1", "60"}) +
                 RespCommand({"DEL", "a", "b", "c"}) +
                 RespCommand({"CL.THROTTLE", "a", "0", "1", "60"}) + RespCommand({"UNLINK", "c"})),
      Integers({1, 1, 0, 60, 60}) + ":2\r\n" + Integers({0, 1, 0, -1, 60}) + ":0\r\n");
}

TEST_F(SessionTest, ThrottleAnswersAsThrottlecrab) {
  EXPECT_EQ(Ask({"THROTTLE", "k", "2", "1", "60"}), Integers({1, 2, 1, 60, 0}));
  EXPECT_EQ(Ask({"THROTTLE", "k", "2", "1", "60"}), Integers({1, 2, 0, 120, 0}));
  EXPECT_EQ(Ask({"THROTTLE", "k", "2", "1", "60"}), Integers({0, 2, 0, 120, 60}));
  EXPECT_EQ(Ask({"THROTTLE", "k", "2", "1", "60", "3"}), Integers({0, 2, 0, 120, -1}));
  EXPECT_THAT(Ask({"THROTTLE", "k", "0", "1", "60"}), StartsWith("-ERR max_burst is \"0\""));
}

TEST_F(SessionTest, ChecksNamedLimits) {
  EXPECT_EQ(Ask({"SLUICE.CHECK", "LIMIT", "login", "bob"}),
            "*16\r\n$7\r\nallowed\r\n:1\r\n$5\r\nlimit\r\n:5\r\n$9\r\nremaining\r\n:4\r\n"
            "$14\r\nretry_after_us\r\n:0\r\n$14\r\nreset_after_us\r\n:60000000\r\n"
            "$8\r\ndelay_us\r\n:0\r\n$9\r\ndenied_by\r\n$-1\r\n$6\r\nsource\r\n$5\r\nstore\r\n");
  Ask({"HELLO", "3"});
  EXPECT_EQ(
      Ask({"sluice.check", "limit", "login", "bob", "cost", "5"}),
      "%8\r\n$7\r\nallowed\r\n:0\r\n$5\r\nlimit\r\n:5\r\n$9\r\nremaining\r\n:4\r\n"
      "$14\r\nretry_after_us\r\n:60000000\r\n$14\r\nreset_after_us\r\n:60000000\r\n"
      "$8\r\ndelay_us\r\n:0\r\n$9\r\ndenied_by\r\n$5\r\nlogin\r\n$6\r\nsource\r\n$5\r\nstore\r\n");
  EXPECT_THAT(Ask({"SLUICE.PEEK", "LIMIT", "login", "bob"}), HasSubstr("remaining\r\n:4\r\n"));
  EXPECT_THAT(Ask({"SLUICE.CHECK", "LIMIT", "login", "bob", "COST", "6"}),
              StartsWith("-COST_EXCEEDS_LIMIT cost 6 can never be granted"));
  // A look tells what a request of 1 would get.
  Ask({"SLUICE.CHECK", "LIMIT", "login", "bob", "COST", "4"});
  const std::string look = Ask({"SLUICE.PEEK", "LIMIT", "login", "bob"});
  EXPECT_THAT(look, HasSubstr("allowed\r\n:0\r\n"));
  EXPECT_THAT(look, HasSubstr("remaining\r\n:0\r\n"));
  EXPECT_THAT(look, HasSubstr("retry_after_us\r\n:60000000\r\n"));
  EXPECT_EQ(Ask({"SLUICE.RESET", "LIMIT", "login", "bob"}), ":1\r\n");
  EXPECT_EQ(Ask({"SLUICE.RESET", "LIMIT", "login", "bob"}), ":0\r\n");
}

TEST_F(SessionTest, ChecksLimitsThatAreWrittenOut) {
  constexpr std::string_view kLimit = "limit=2,window=1m,algorithm=fixed_window";
  EXPECT_THAT(Ask({"SLUICE.CHECK", "LIMIT", kLimit, "k", "COST", "2"}), HasSubstr("allowed\r\n:1"));
  EXPECT_THAT(Ask({"SLUICE.CHECK", "LIMIT", kLimit, "k"}), HasSubstr("allowed\r\n:0"));
  EXPECT_EQ(Ask({"SLUICE.RESET", "LIMIT", kLimit, "k"}), ":1\r\n");
  EXPECT_THAT(Ask({"SLUICE.CHECK", "LIMIT", "limit=2", "k"}), StartsWith("-ERR "));
  EXPECT_THAT(Ask({"SLUICE.CHECK", "LIMIT", "nobody", "k"}),
              StartsWith("-ERR no limit is named \"nobody\"; expected"));
}

TEST_F(SessionTest, ALeakyBucketSaysWhatItHolds) {
  constexpr std::string_view kLimit = "algorithm=leaky_bucket,capacity=3,leak=1,period=1m";
  const std::string first = Ask({"SLUICE.CHECK", "LIMIT", kLimit, "k"});
  EXPECT_THAT(first, StartsWith("*18\r\n"));
  EXPECT_THAT(first, HasSubstr("$6\r\nqueued\r\n:1\r\n"));
  EXPECT_THAT(Ask({"SLUICE.CHECK", "LIMIT", kLimit, "k"}), HasSubstr("$6\r\nqueued\r\n:2\r\n"));
}

TEST_F(SessionTest, SaysWhatIsWrongWithACheck) {
  EXPECT_EQ(Ask({"SLUICE.CHECK", "ALL", "x"}), "-ERR \"ALL\" is neither LIMIT nor RULESET\r\n");
  EXPECT_THAT(Ask({"SLUICE.CHECK", "LIMIT", "login"}), StartsWith("-ERR the key is missing"));
  EXPECT_THAT(Ask({"SLUICE.CHECK", "LIMIT", "login", "k", "COST"}),
              StartsWith("-ERR syntax error at \"COST\""));
  EXPECT_THAT(Ask({"SLUICE.CHECK", "LIMIT", "login", "k", "COST", "-1"}),
              StartsWith("-ERR COST is \"-1\""));
  EXPECT_THAT(Ask({"SLUICE.PEEK", "LIMIT", "login", "k", "COST", "1"}),
              StartsWith("-ERR syntax error at \"COST\""));
  EXPECT_THAT(Ask({"SLUICE.CHECK", "RULESET", "api", "USER"}),
              StartsWith("-ERR syntax error at \"USER\""));
  EXPECT_THAT(Ask({"SLUICE.PEEK", "RULESET", "api", "COST", "1"}),
              StartsWith("-ERR syntax error at \"COST\""));
  EXPECT_THAT(Ask({"SLUICE.CHECK", "RULESET", "nothing"}),
              StartsWith("-ERR there is no rule set \"nothing\""));
  EXPECT_EQ(Ask({"SLUICE.RESET", "ALL", "x"}), "-ERR \"ALL\" is neither LIMIT nor RULESET\r\n");
  EXPECT_EQ(Ask({"SLUICE.RESET", "LIMIT", "login"}),
            "-ERR the key is missing; expected LIMIT limit key\r\n");
  for (const std::string_view word : {"DETAIL", "COST"}) {
    EXPECT_THAT(Ask({"SLUICE.RESET", "RULESET", "api", word, "1"}), HasSubstr("expected RULESET"))
        << word;
  }
  EXPECT_THAT(Ask({"SLUICE.RESET", "RULESET", "nothing"}),
              StartsWith("-ERR there is no rule set \"nothing\""));
}

TEST_F(SessionTest, RefusesAnOptionThatIsGivenTwice) {
  using Words = std::vector<std::string>;
  struct Case {
    Words command;
    Words option;
    std::string said;
  };
  std::vector<Case> cases = {
      {{"SLUICE.CHECK", "LIMIT", "login", "k"}, {"COST", "1"}, "COST"},
      {{"SLUICE.CHECK", "RULESET", "api"}, {"COST", "1"}, "COST"},
  };
  for (const char* command : {"SLUICE.CHECK", "SLUICE.PEEK", "SLUICE.RESET"}) {
    for (const char* option : {"IP", "USER", "APIKEY", "METHOD", "PATH"}) {
      cases.push_back({{command, "RULESET", "api"}, {option, "v"}, option});
    }
    cases.push_back({{command, "RULESET", "api"}, {"ATTR", "a", "v"}, "ATTR \"a\""});
    if (std::string_view(command) != "SLUICE.RESET") {
      cases.push_back({{command, "RULESET", "api"}, {"DETAIL"}, "DETAIL"});
    }
  }
  for (const Case& each : cases) {
    Words words = each.command;
    const auto add = [&](const Words& option) {
      words.insert(words.end(), option.begin(), option.end());
    };
    const auto ask = [&] {
      std::string bytes;
      redis::AppendCommand(bytes, std::vector<std::string_view>(words.begin(), words.end()));
      return peer_.Send(bytes);
    };
    add(each.option);
    EXPECT_THAT(ask(), Not(StartsWith("-"))) << each.said;
    Words again = each.option;
    if (again.size() > 1) again.back() = "1";
    // In lower case, and with something in between.
    for (char& c : again[0]) c = static_cast<char>(c | 32);
    if (each.command.size() > 2 && each.command[1] == "RULESET") add({"ATTR", "between", "v"});
    add(again);
    const std::string answer = ask();
    EXPECT_THAT(answer, StartsWith("-ERR ")) << each.command[0] << " " << each.said;
    EXPECT_THAT(answer, AllOf(HasSubstr(each.said), HasSubstr("given twice")))
        << each.command[0] << " " << each.said;
  }
  EXPECT_EQ(Ask({"SLUICE.CHECK", "RULESET", "api", "IP", "192.0.2.1", "IP", "192.0.2.2"}),
            "-ERR IP is given twice; expected it once\r\n");
}

TEST_F(SessionTest, ChecksRuleSets) {
  const auto check = [&] { return Ask({"SLUICE.CHECK", "RULESET", "api", "USER", "ann"}); };
  EXPECT_THAT(check(), HasSubstr("remaining\r\n:1\r\n"));
  EXPECT_THAT(check(), HasSubstr("remaining\r\n:0\r\n"));
  const std::string denied = check();
  EXPECT_THAT(denied, HasSubstr("allowed\r\n:0\r\n"));
  EXPECT_THAT(denied, HasSubstr("retry_after_us\r\n:1000000\r\n"));
  EXPECT_THAT(denied, HasSubstr("denied_by\r\n$10\r\nuser/burst\r\n"));
  // Without a user, that rule does not apply.
  EXPECT_THAT(Ask({"SLUICE.CHECK", "RULESET", "api", "COST", "2", "IP", "192.0.2.9", "APIKEY", "a",
                   "METHOD", "GET", "PATH", "/x", "ATTR", "a", "b"}),
              HasSubstr("remaining\r\n:96\r\n"));
  const std::string detail = Ask({"SLUICE.PEEK", "RULESET", "api", "USER", "ann", "DETAIL"});
  EXPECT_THAT(detail, HasSubstr("allowed\r\n:1\r\n"));
  EXPECT_THAT(detail, HasSubstr("bands\r\n*3\r\n"));
  EXPECT_THAT(detail, HasSubstr("rule\r\n$8\r\neveryone\r\n$4\r\nband\r\n$6\r\nminute\r\n"));
}

TEST_F(SessionTest, ResetsAllThatARuleSetWouldCharge) {
  const auto remaining = [](int count) {
    return HasSubstr("remaining\r\n:" + std::to_string(count) + "\r\n");
  };
  Ask({"SLUICE.CHECK", "RULESET", "api", "USER", "ann", "COST", "2"});
  Ask({"SLUICE.CHECK", "RULESET", "api", "USER", "bob"});
  // Everyone's minute, and ann's burst and day; bob's are not hers.
  EXPECT_EQ(Ask({"SLUICE.RESET", "RULESET", "api", "USER", "ann"}), ":3\r\n");
  EXPECT_THAT(Ask({"SLUICE.PEEK", "RULESET", "api", "USER", "ann"}), remaining(2));
  EXPECT_THAT(Ask({"SLUICE.PEEK", "RULESET", "api", "USER", "bob"}), remaining(1));
  EXPECT_THAT(Ask({"SLUICE.PEEK", "RULESET", "api"}), remaining(100));
  EXPECT_EQ(Ask({"SLUICE.RESET", "RULESET", "api", "USER", "ann"}), ":0\r\n");
}

TEST_F(SessionTest, KnowsWhatClientsAsk) {
  EXPECT_EQ(Ask({"PING"}), "+PONG\r\n");
  EXPECT_EQ(Ask({"ping", "hi"}), "$2\r\nhi\r\n");
  EXPECT_EQ(Ask({"ECHO", "hi"}), "$2\r\nhi\r\n");
  EXPECT_EQ(Ask({"SELECT", "0"}), "+OK\r\n");
  EXPECT_EQ(Ask({"SELECT", "1"}), "-ERR DB index is out of range\r\n");
  EXPECT_EQ(Ask({"SELECT", "-2147483648"}), "-ERR DB index is out of range\r\n");
  EXPECT_EQ(Ask({"SELECT", "2147483648"}),
            "-ERR value is out of range, value must between -2147483648 and 2147483647\r\n");
  EXPECT_EQ(Ask({"CLIENT", "ID"}), ":7\r\n");
  EXPECT_EQ(Ask({"CLIENT", "GETNAME"}), "$-1\r\n");
  EXPECT_EQ(Ask({"CLIENT", "SETNAME", "me"}), "+OK\r\n");
  EXPECT_EQ(Ask({"CLIENT", "GETNAME"}), "$2\r\nme\r\n");
  EXPECT_THAT(Ask({"CLIENT", "SETNAME", "a b"}), StartsWith("-ERR Client names"));
  const std::string long_name(5000, 'n');
  EXPECT_EQ(Ask({"CLIENT", "SETNAME", long_name}), "+OK\r\n");
  EXPECT_EQ(Ask({"CLIENT", "GETNAME"}), "$5000\r\n" + long_name + "\r\n");
  Ask({"CLIENT", "SETNAME", "me"});
  EXPECT_EQ(Ask({"CLIENT", "SETINFO", "lib-name", "redis-py"}), "+OK\r\n");
  EXPECT_THAT(Ask({"CLIENT", "INFO"}),
              HasSubstr("name=me db=0 user=default resp=2 lib-name=redis-py"));
  EXPECT_EQ(Ask({"CLIENT", "KILL"}), "-ERR unknown subcommand 'KILL'. Try CLIENT HELP.\r\n");
  EXPECT_EQ(Ask({"client", "HELP"}),
            "*2\r\n+CLIENT GETNAME | ID | INFO | NO-EVICT ON|OFF | NO-TOUCH ON|OFF | REPLY ON | "
            "SETINFO LIB-NAME|LIB-VER value | SETNAME name\r\n"
            "+    Shows or sets what is known about this connection.\r\n");
  for (const std::string_view container : {"ACL", "COMMAND", "CONFIG"}) {
    EXPECT_THAT(Ask({container, "HELP"}), StartsWith("*2\r\n+")) << container;
  }
  EXPECT_EQ(Ask({"CLIENT", "REPLY", "ON"}), "+OK\r\n");
  EXPECT_EQ(Ask({"CLIENT", "REPLY", "OFF"}), "-ERR every command is answered here\r\n");
  EXPECT_EQ(Ask({"CLIENT", "REPLY", "NO"}), "-ERR syntax error\r\n");
  EXPECT_EQ(Ask({"CLIENT", "SETNAME"}),
            "-ERR wrong number of arguments for 'client|setname' command\r\n");
  EXPECT_EQ(Ask({"CONFIG", "GET", "save"}), "*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
  EXPECT_EQ(Ask({"CONFIG", "GET", "other"}), "*0\r\n");
  EXPECT_EQ(Ask({"CONFIG", "GET", "S*E", "no"}), "*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
  EXPECT_THAT(Ask({"CONFIG", "GET", "*"}), StartsWith("*10\r\n"));
  EXPECT_EQ(Ask({"ACL", "WHOAMI"}), "$7\r\ndefault\r\n");
  EXPECT_THAT(Ask({"INFO", "server"}), HasSubstr("tcp_port:6379\r\n"));
  EXPECT_THAT(Ask({"COMMAND"}), StartsWith("*24\r\n"));
  EXPECT_EQ(Ask({"COMMAND", "COUNT"}), ":24\r\n");
  EXPECT_EQ(Ask({"COMMAND", "GETKEYS", "CL.THROTTLE", "k", "1", "1", "1"}), "*1\r\n$1\r\nk\r\n");
  EXPECT_EQ(Ask({"COMMAND", "GETKEYS", "SLUICE.CHECK", "LIMIT", "login", "k"}),
            "*1\r\n$1\r\nk\r\n");
  EXPECT_EQ(Ask({"COMMAND", "GETKEYS", "SLUICE.RESET", "LIMIT", "login", "k"}),
            "*1\r\n$1\r\nk\r\n");
  EXPECT_EQ(Ask({"COMMAND", "GETKEYS", "SLUICE.HOLD", "LIMIT", "login", "k", "TTL", "1m"}),
            "*1\r\n$1\r\nk\r\n");
  EXPECT_EQ(Ask({"COMMAND", "GETKEYS", "SLUICE.GIVE", "LIMIT", "login", "k"}), "*1\r\n$1\r\nk\r\n");
  EXPECT_EQ(Ask({"COMMAND", "GETKEYS", "SLUICE.SETTLE", "h"}),
            "-ERR The command has no key arguments\r\n");
  EXPECT_EQ(Ask({"COMMAND", "GETKEYS", "DEL", "a", "b"}), "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
  EXPECT_EQ(Ask({"COMMAND", "GETKEYS", "ECHO", "a"}), "-ERR The command has no key arguments\r\n");
  EXPECT_EQ(Ask({"COMMAND", "GETKEYS", "DEL"}),
            "-ERR wrong number of arguments for 'command|getkeys' command\r\n");
  EXPECT_EQ(Ask({"COMMAND", "INFO", "nope"}), "*1\r\n$-1\r\n");
  EXPECT_EQ(Ask({"COMMAND", "DOCS", "nope"}), "*0\r\n");
  EXPECT_EQ(Ask({"GET", "a", "b\r\nc"}),
            "-ERR unknown command 'GET', with args beginning with: 'a' 'b  c' \r\n");
}

TEST_F(SessionTest, SpeaksBothProtocols) {
  EXPECT_THAT(Ask({"HELLO"}), StartsWith("*14\r\n$6\r\nserver\r\n"));
  EXPECT_THAT(Ask({"HELLO", "3", "SETNAME", "me"}), StartsWith("%7\r\n$6\r\nserver\r\n"));
  EXPECT_THAT(Ask({"CLIENT", "INFO"}), HasSubstr("name=me db=0 user=default resp=3"));
  EXPECT_EQ(Ask({"INFO", "replication"}),
            "=52\r\ntxt:# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n");
  EXPECT_EQ(Ask({"HELLO", "4"}), "-NOPROTO unsupported protocol version\r\n");
  EXPECT_EQ(Ask({"HELLO", "x"}), "-ERR Protocol version is not an integer or out of range\r\n");
  EXPECT_EQ(Ask({"HELLO", "2", "NOW"}), "-ERR Syntax error in HELLO option 'NOW'\r\n");
  EXPECT_EQ(Ask({"COMMAND", "INFO", "nope"}), "*1\r\n_\r\n");
  EXPECT_EQ(Ask({"RESET"}), "+RESET\r\n");
  EXPECT_EQ(Ask({"CLIENT", "GETNAME"}), "$-1\r\n");
  // Each reply uses the protocol at its time.
  EXPECT_THAT(
      peer_.Send(RespCommand({"SLUICE.PEEK", "LIMIT", "login", "k"}) + RespCommand({"HELLO", "3"}) +
                 RespCommand({"SLUICE.PEEK", "LIMIT", "login", "k"})),
      testing::AllOf(StartsWith("*16\r\n"), HasSubstr("%8\r\n")));
}

TEST_F(SessionTest, CountsErrorsByTheirFirstWord) {
  Ask({"NOPE"});
  Ask({"CL.THROTTLE", "k", "x", "1", "1"});
  Ask({"HELLO", "9"});
  Ask({"SLUICE.CHECK", "LIMIT", "login", "k", "COST", "1000"});
  Ask({"PING"});
  const std::string text = parts_.registry.Text();
  for (const char* line :
       {R"(sluice_errors_total{code="ERR"} 2)", R"(sluice_errors_total{code="NOPROTO"} 1)",
        R"(sluice_errors_total{code="COST_EXCEEDS_LIMIT"} 1)"}) {
    EXPECT_THAT(text, testing::HasSubstr(line));
  }
}

TEST_F(SessionTest, ClosesAfterQuit) {
  EXPECT_EQ(peer_.Send("PING\r\nQUIT\r\nPING\r\n"), "+PONG\r\n+OK\r\n");
  EXPECT_TRUE(peer_.closed());
}

TEST_F(SessionTest, HangsUpOnWhatABrowserWasMadeToSend) {
  EXPECT_EQ(peer_.Send("POST / HTTP/1.1\r\nCL.THROTTLE k 0 1 1\r\n"), "");
  EXPECT_TRUE(peer_.closed());
  RespPeer other(worker_);
  EXPECT_THAT(other.Send("GET / HTTP/1.1\r\nhost: x\r\nCL.THROTTLE k 0 1 1\r\n"),
              StartsWith("-ERR unknown command 'GET'"));
  EXPECT_TRUE(other.closed());
  EXPECT_EQ(worker_.protocol_errors.value(), 2U);
  RespPeer third(worker_);
  EXPECT_EQ(third.Send({"CL.THROTTLE", "k", "0", "1", "1"}), Integers({0, 1, 0, -1, 1}));
}

TEST_F(SessionTest, AnswersAProtocolErrorInOrderAndCloses) {
  EXPECT_EQ(peer_.Send(RespCommand({"CL.THROTTLE", "k", "0", "1", "1"}) + "*1\r\nPING\r\nPING\r\n"),
            Integers({0, 1, 0, -1, 1}) + "-ERR Protocol error: expected '$', got 'P'\r\n");
  EXPECT_TRUE(peer_.closed());
  EXPECT_EQ(worker_.protocol_errors.value(), 1U);
}

TEST_F(SessionTest, AnswersTheSameHoweverTheBytesAreCut) {
  const std::string bytes = RespCommand({"CL.THROTTLE", "k", "2", "1", "60"}) + "PING\r\n" +
                            RespCommand({"SLUICE.CHECK", "RULESET", "api", "USER", "u"}) +
                            "sluice.check limit login \"a b\"\r\n*0\r\n" +
                            RespCommand({"SLUICE.HOLD", "RULESET", "llm", "USER", "u", "ID", "1"}) +
                            RespCommand({"SLUICE.GIVE", "LIMIT", "login", "a b"}) +
                            RespCommand({"DEL", "k"}) + RespCommand({"HELLO", "3"}) +
                            RespCommand({"CL.THROTTLE", "k", "2", "1", "60"}) +
                            RespCommand({"SLUICE.RESET", "LIMIT", "login", "a b"}) + "*1\r\nX";
  std::string expected;
  for (std::size_t size = bytes.size(); size > 0; --size) {
    RespEngine parts;
    Worker worker(parts.engine, options_, [] { return ServerInfo{}; });
    RespPeer peer(worker);
    std::string out;
    for (std::size_t at = 0; at < bytes.size(); at += size)
      out += peer.Send(bytes.substr(at, size));
    EXPECT_TRUE(peer.closed());
    if (expected.empty()) expected = out;
    ASSERT_EQ(out, expected) << "in pieces of " << size;
  }
  EXPECT_THAT(expected, HasSubstr("-ERR Protocol error"));
}

TEST_F(SessionTest, EndsARoundWhenItIsLong) {
  SessionOptions options;
  options.bounds.pipeline_max = 3;
  options.bounds.output_bytes_max = 40;
  Worker worker(parts_.engine, options, [] { return ServerInfo{}; });
  Session session(worker, {}, [] {});
  std::string input;
  for (int i = 0; i < 5; ++i) input += "PING\r\n";
  std::string out;
  const Session::Progress first = session.Consume(input, out);
  EXPECT_EQ(first.next, Session::Next::kAgain);
  EXPECT_EQ(out, "+PONG\r\n+PONG\r\n+PONG\r\n");
  const Session::Progress second = session.Consume(std::span(input).subspan(first.consumed), out);
  EXPECT_EQ(second.next, Session::Next::kRead);

  std::string echoes;
  for (int i = 0; i < 3; ++i) echoes += RespCommand({"ECHO", "a text of some thirty characters"});
  out.clear();
  EXPECT_EQ(session.Consume(echoes, out).next, Session::Next::kAgain);
  EXPECT_LT(out.size(), 90U);
}

class AuthTest : public testing::Test {
 protected:
  RespEngine parts_;
  AuthTest() { access_.SetTokens(With("")); }

  // The password, and the tokens of a file.
  static net::Tokens With(std::string_view file) {
    net::Tokens tokens;
    if (!file.empty()) tokens = *net::Tokens::Parse(file);
    tokens.Add("", "open sesame");
    return tokens;
  }

  net::Access access_{net::Access::Door::kGuarded};
  SessionOptions options_{.access = &access_};
  Worker worker_{parts_.engine, options_, [] { return ServerInfo{}; }};
  RespPeer peer_{worker_};
};

TEST_F(AuthTest, AsksForThePassword) {
  EXPECT_EQ(peer_.Send({"PING"}), "-NOAUTH Authentication required.\r\n");
  EXPECT_EQ(peer_.Send({"CL.THROTTLE", "k", "1", "1", "1"}),
            "-NOAUTH Authentication required.\r\n");
  EXPECT_THAT(peer_.Send({"HELLO", "3"}), StartsWith("-NOAUTH HELLO must be called"));
  const std::string wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
  for (const std::string_view guess : {"", "open", "open sesame ",
                                       "open sesame"
                                       "open sesame"}) {
    EXPECT_EQ(peer_.Send({"AUTH", guess}), wrong) << guess;
  }
  EXPECT_EQ(peer_.Send({"AUTH", "root", "open sesame"}), wrong);
  EXPECT_EQ(peer_.Send({"HELLO", "3", "AUTH", "default", "no"}), wrong);
  EXPECT_EQ(peer_.Send({"PING"}), "-NOAUTH Authentication required.\r\n");
  EXPECT_EQ(peer_.Send({"AUTH", "open sesame"}), "+OK\r\n");
  EXPECT_EQ(peer_.Send({"PING"}), "+PONG\r\n");
  EXPECT_EQ(peer_.Send({"RESET"}), "+RESET\r\n");
  EXPECT_EQ(peer_.Send({"PING"}), "-NOAUTH Authentication required.\r\n");
  EXPECT_THAT(peer_.Send({"HELLO", "3", "AUTH", "default", "open sesame"}), StartsWith("%7\r\n"));
  EXPECT_EQ(peer_.Send({"PING"}), "+PONG\r\n");
}

TEST_F(AuthTest, TakesEveryTokenForItsNameAndTheDefaultUser) {
  access_.SetTokens(With("envoy first\nsecond"));
  const std::string wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
  EXPECT_EQ(peer_.Send({"AUTH", "second", "first"}), wrong);
  EXPECT_EQ(peer_.Send({"AUTH", "envoy", "second"}), wrong);
  EXPECT_EQ(peer_.Send({"AUTH", "", "second"}), "+OK\r\n");
  for (const std::string_view token : {"first", "second", "open sesame"}) {
    EXPECT_EQ(peer_.Send({"RESET"}), "+RESET\r\n");
    EXPECT_EQ(peer_.Send({"PING"}), "-NOAUTH Authentication required.\r\n");
    EXPECT_EQ(peer_.Send({"AUTH", token}), "+OK\r\n");
    EXPECT_EQ(peer_.Send({"PING"}), "+PONG\r\n");
    EXPECT_EQ(peer_.Send({"AUTH", "default", token}), "+OK\r\n");
  }
  EXPECT_EQ(peer_.Send({"ACL", "WHOAMI"}), "$7\r\ndefault\r\n");
  EXPECT_THAT(peer_.Send({"HELLO", "3", "AUTH", "envoy", "first"}), StartsWith("%7\r\n"));
  EXPECT_EQ(peer_.Send({"ACL", "WHOAMI"}), "$5\r\nenvoy\r\n");
  EXPECT_THAT(peer_.Send({"CLIENT", "INFO"}), HasSubstr(" user=envoy "));
}

TEST_F(AuthTest, ATokenThatIsTakenAwayLetsNobodyGoOn) {
  access_.SetTokens(With("old\nkept"));
  RespPeer other{worker_};
  EXPECT_EQ(peer_.Send({"AUTH", "old"}), "+OK\r\n");
  EXPECT_EQ(other.Send({"AUTH", "kept"}), "+OK\r\n");
  access_.SetTokens(With("kept\nnew"));
  EXPECT_EQ(other.Send({"PING"}), "+PONG\r\n");
  EXPECT_EQ(peer_.Send({"PING"}), "-NOAUTH Authentication required.\r\n");
  EXPECT_THAT(peer_.Send({"AUTH", "old"}), StartsWith("-WRONGPASS"));
  EXPECT_EQ(peer_.Send({"AUTH", "new"}), "+OK\r\n");
}

TEST_F(AuthTest, ACertificateIsAsGoodAsAToken) {
  Session session(worker_, {.certified = true}, [] {});
  std::string input = "PING\r\nRESET\r\nPING\r\nAUTH wrong\r\nPING\r\n";
  std::string out;
  session.Consume(input, out);
  EXPECT_EQ(out,
            "+PONG\r\n+RESET\r\n+PONG\r\n"
            "-WRONGPASS invalid username-password pair or user is disabled.\r\n+PONG\r\n");
}

TEST_F(AuthTest, TrustsLittleBefore) {
  EXPECT_EQ(peer_.Send("*11\r\n"), "-ERR Protocol error: unauthenticated multibulk length\r\n");
  EXPECT_TRUE(peer_.closed());
}

TEST_F(SessionTest, SaysThatNoPasswordIsNeeded) {
  EXPECT_THAT(Ask({"AUTH", "x"}), StartsWith("-ERR AUTH <password> called without any password"));
  EXPECT_EQ(Ask({"AUTH", "default", "x"}), "+OK\r\n");
}

// Answers when told to, like a remote store.
class LaterStore final : public Store {
 public:
  explicit LaterStore(Store& store) : store_(store) {}

  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    calls_.push_back([this, requests, done = std::move(done)]() mutable {
      if (failure_) {
        for (Request& request : requests) request.outcome = std::unexpected(*failure_);
        done();
      } else {
        store_.Apply(requests, std::move(done));
      }
    });
  }

  std::size_t calls() const { return calls_.size(); }
  void Fail(Error error) { failure_ = std::move(error); }
  void Answer() {
    auto call = std::move(calls_.front());
    calls_.pop_front();
    call();
  }

 private:
  Store& store_;
  std::deque<std::move_only_function<void()>> calls_;
  std::optional<Error> failure_;
};

class LaterTest : public testing::Test {
 protected:
  std::string AnswerAll() {
    std::string out;
    while (peer_.waiting()) {
      while (store_.calls() > 0) store_.Answer();
      out += peer_.Resume();
    }
    return out;
  }

  ManualClock clock_{TimePoint{Micros{1'700'000'000'000'000}}};
  MemoryStore memory_{{.clock = &clock_}};
  LaterStore store_{memory_};
  RespEngine parts_{&store_};
  SessionOptions options_;
  Worker worker_{parts_.engine, options_, [] { return ServerInfo{}; }};
  RespPeer peer_{worker_};
};

TEST_F(LaterTest, DecidesTheCommandsOfARoundTogetherAndAnswersInOrder) {
  std::string sent = "PING\r\n";
  for (int i = 0; i < 3; ++i) sent += RespCommand({"CL.THROTTLE", "k", "1", "1", "3600"});
  EXPECT_EQ(peer_.Send(sent + RespCommand({"ECHO", "end"})), "");
  EXPECT_EQ(store_.calls(), 1U);
  EXPECT_EQ(peer_.Send("PING\r\n"), "");
  EXPECT_EQ(AnswerAll(), "+PONG\r\n" + Integers({0, 2, 1, -1, 3600}) +
                             Integers({0, 2, 0, -1, 7200}) + Integers({1, 2, 0, 3600, 7200}) +
                             "$3\r\nend\r\n");
  EXPECT_EQ(peer_.Send("PING\r\n"), "+PONG\r\n+PONG\r\n");
}

TEST_F(LaterTest, DecidesTheRulesOfARoundTogether) {
  std::string sent;
  for (int i = 0; i < 4; ++i) {
    sent += RespCommand({"SLUICE.CHECK", "RULESET", "api", "USER", "u"}) + "PING\r\n";
  }
  EXPECT_EQ(peer_.Send(sent), "");
  EXPECT_EQ(store_.calls(), 1U);
  const std::string out = AnswerAll();
  EXPECT_EQ(out.find("+PONG\r\n*16\r\n"), out.find("+PONG\r\n"));
  EXPECT_THAT(out, EndsWith("+PONG\r\n"));
}

TEST_F(LaterTest, ResetsBetweenWhatComesBeforeAndAfter) {
  const std::string take = RespCommand({"CL.THROTTLE", "k", "0", "1", "3600"});
  const std::string rules = RespCommand({"SLUICE.CHECK", "RULESET", "api", "USER", "u"});
  peer_.Send(take + rules + take + RespCommand({"DEL", "k", "x"}) + take + rules);
  EXPECT_EQ(store_.calls(), 3U);  // The checks before and after the rule set's, and that one.
  const std::string out = AnswerAll();
  EXPECT_THAT(out, StartsWith(Integers({0, 1, 0, -1, 3600}) + "*16\r\n"));
  EXPECT_THAT(out, HasSubstr(Integers({1, 1, 0, 3600, 3600}) + ":1\r\n" +
                             Integers({0, 1, 0, -1, 3600}) + "*16\r\n"));
}

TEST_F(LaterTest, ResetsARuleSetBetweenWhatComesBeforeAndAfter) {
  const std::string check = RespCommand({"SLUICE.CHECK", "RULESET", "api", "USER", "u"});
  const std::string reset = RespCommand({"SLUICE.RESET", "RULESET", "api", "USER", "u"});
  const auto alone = [&] {
    peer_.Send(check);
    return AnswerAll();
  };
  const std::string first = alone();
  const std::string second = alone();
  EXPECT_NE(first, second);
  peer_.Send(reset + check + check + reset + RespCommand({"DEL", "x"}) + check + reset + reset);
  EXPECT_EQ(AnswerAll(), ":3\r\n" + first + second + ":3\r\n:0\r\n" + first + ":3\r\n:0\r\n");
}

TEST_F(LaterTest, HoldsTakeEffectInTheOrderOfTheCommands) {
  constexpr std::string_view kSlots = "algorithm=concurrency,limit=1,ttl=1m";
  const std::string hold = RespCommand({"SLUICE.HOLD", "LIMIT", kSlots, "k", "ID", "mine"});
  const std::string other = RespCommand({"SLUICE.HOLD", "LIMIT", kSlots, "k", "ID", "other"});
  peer_.Send(hold);
  const std::string made = AnswerAll();
  const std::string id = FieldOf(made, "id");

  // All of them are asked before any is answered.
  const std::string check = RespCommand({"SLUICE.CHECK", "LIMIT", "login", "k"});
  peer_.Send(other + check + check + RespCommand({"SLUICE.SETTLE", id}) + other + check);
  EXPECT_EQ(store_.calls(), 5U);
  const std::string out = AnswerAll();
  std::vector<std::string> allowed;
  for (std::size_t at = out.find("allowed"); at < out.size(); at = out.find("allowed", at + 1)) {
    allowed.push_back(out.substr(at + 10, 1));
  }
  EXPECT_THAT(allowed, testing::ElementsAre("0", "1", "1", "1", "1"));
  EXPECT_EQ(FieldOf(out, "late"), "0");
}

// A shadow rule is held when the others have been, and what comes later waits for it.
TEST_F(LaterTest, WhatComesAfterAHoldWaitsForItsShadows) {
  const std::string hold = RespCommand({"SLUICE.HOLD", "RULESET", "trial"});
  const std::string peek = RespCommand({"SLUICE.PEEK", "RULESET", "trial", "DETAIL"});
  peer_.Send(hold + peek);
  EXPECT_EQ(store_.calls(), 1U);
  const std::string out = AnswerAll();
  const std::string bands = out.substr(out.find("bands"));
  EXPECT_THAT(bands, HasSubstr("band\r\n$3\r\nday\r\n"));
  EXPECT_EQ(FieldOf(bands.substr(bands.find("slots")), "remaining"), "0");

  // Without shadows, holds under rules are asked for at once.
  const std::string llm = RespCommand({"SLUICE.HOLD", "RULESET", "llm", "USER", "u"});
  peer_.Send(llm + llm + llm);
  EXPECT_EQ(store_.calls(), 3U);
  EXPECT_EQ(FieldOf(AnswerAll(), "remaining"), "1");
}

TEST_F(LaterTest, ReportsAnOutageAsAnErrorAndNotAsADenial) {
  store_.Fail({ErrorCode::kUnavailable, "the store is away"});
  peer_.Send(RespCommand({"CL.THROTTLE", "k", "0", "1", "1"}) +
             RespCommand({"SLUICE.CHECK", "LIMIT", "login", "k"}) + "PING\r\n");
  EXPECT_EQ(AnswerAll(),
            "-UNAVAILABLE the store is away\r\n-UNAVAILABLE the store is away\r\n+PONG\r\n");
  for (const std::string& command :
       {RespCommand({"SLUICE.HOLD", "LIMIT", "login", "k", "TTL", "1m"}),
        RespCommand({"SLUICE.HOLD", "RULESET", "trial"}),
        RespCommand({"SLUICE.GIVE", "LIMIT", "login", "k"}),
        RespCommand({"SLUICE.GIVE", "RULESET", "api"})}) {
    peer_.Send(command + "PING\r\n");
    EXPECT_EQ(AnswerAll(), "-UNAVAILABLE the store is away\r\n+PONG\r\n");
  }
}

}  // namespace
}  // namespace sluice::resp
