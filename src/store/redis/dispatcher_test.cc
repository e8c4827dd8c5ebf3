// SPDX-License-Identifier: Apache-2.0
// What is sent to Redis and when, as lists of events: no socket, no thread, no clock.
#include "store/redis/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "store/redis/announcement.h"
#include "store/redis/state_key.h"

namespace sluice::redis {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto kCallTimeout = 100ms;
constexpr std::int64_t kMidnight = std::int64_t{86'400'000'000} * 19'676;
const Limit kDaily = *Limit::Parse("algorithm=fixed_window,limit=1000,window=1d");

// A command that was sent and has no reply yet.
struct SentCommand {
  NodeId node;
  bool asking;
  Exchange* exchange;
  std::vector<std::string> words;

  bool Has(std::string_view word) const { return std::ranges::find(words, word) != words.end(); }
};

// The script's reply if every budget were untouched, or used up.
std::string ScriptReply(const std::vector<std::string>& words, bool admits) {
  const auto number = [&](std::size_t at) { return std::stoll(words.at(at)); };
  const std::size_t arguments = 3 + static_cast<std::size_t>(number(2));
  if (words.at(arguments).contains(' ')) {  // Checks of one state each.
    const std::string time = text::Cat(kMidnight / 1'000'000, " 0");
    const std::string used = text::Cat(kMidnight, " ", kDaily.amount());
    std::string text = text::Cat(admits ? "1 " : "0 ", time, " ", admits ? "" : used);
    if (words.size() != 5 || words[2] != "1") {
      text = time;
      long long keys_left = number(2);
      for (std::size_t at = arguments; at < words.size(); at += 3) {
        const bool has_numbers = at + 2 < words.size();
        const long long keys = has_numbers ? number(at + 1) : keys_left;
        const long long times = has_numbers ? number(at + 2) : 1;
        keys_left -= keys;
        for (long long i = 0; i < keys; ++i) {
          text += admits ? text::Cat("\n", times, " ") : text::Cat("\n0 ", used);
        }
      }
    }
    std::string reply;
    AppendBulkString(reply, text);
    return reply;
  }
  std::vector<std::int64_t> numbers = {kMidnight};
  std::size_t at = arguments + 1;                  // After now.
  at += 1 + static_cast<std::size_t>(number(at));  // After the limits.
  while (at < words.size()) {
    const std::string action = words[at];
    const auto groups = number(at + 1);
    const auto charges = number(at + 2);
    const auto times = number(at + 3);
    const bool has_states = action != "refund" && action != "reset";
    const std::size_t width = action == "refund"  ? 5
                              : action == "give"  ? 4
                              : action == "reset" ? 3
                                                  : 2;
    at += 4 + static_cast<std::size_t>(charges) * width;
    for (std::int64_t i = 0; i < groups; ++i) {
      numbers.push_back(admits ? times : 0);
      for (std::int64_t charge = 0; has_states && charge < charges; ++charge) {
        numbers.push_back(admits ? 0 : kMidnight);
        numbers.push_back(admits ? -1 : kDaily.amount());
      }
    }
  }
  std::string reply;
  AppendArrayHeader(reply, numbers.size());
  for (const std::int64_t each : numbers) AppendInteger(reply, each);
  return reply;
}

class DispatcherTest : public testing::Test {
 protected:
  void SetUp() override { Make("redis://n0:1"); }

  void Make(const std::string& uri) {
    router_ =
        std::make_unique<Router>(Router::Options{.endpoint = *Endpoint::Parse(uri, kCallTimeout)});
    dispatcher_ = std::make_unique<Dispatcher>(*router_);
    if (!router_->cluster()) router_->OnUp(Router::kOnlyNode, {.host = "n0", .port = 1}, now_);
    Run();
  }

  // Two masters, of the even and the odd slots.
  void MakeCluster(const std::string& query = "") {
    Make("redis://n0:1?mode=cluster" + query);
    SlotMap map;
    map.masters = {{.host = "n0", .port = 1}, {.host = "n1", .port = 1}};
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      map.owner[slot] = static_cast<std::uint16_t>(slot % 2);
    }
    router_->OnSlots(map, now_);
    Run();
    router_->OnUp(0, map.masters[0], now_);
    router_->OnUp(1, map.masters[1], now_);
    Run();
  }

  void Run(std::chrono::milliseconds later = 0ms) {
    now_ += later;
    do {
      dispatcher_->Advance(now_);
      for (auto& action : router_->TakeActions()) {
        const auto* transmit = std::get_if<Router::Transmit>(&action);
        if (!transmit) continue;
        std::string bytes;
        transmit->exchange->AppendTo(bytes);
        RespParser parser;
        EXPECT_EQ(parser.Parse(bytes), RespParser::Status::kMessage);
        SentCommand command{transmit->node, transmit->asking, transmit->exchange, {}};
        for (const RespNode& node : parser.nodes().subspan(1))
          command.words.emplace_back(node.text);
        sent_.push_back(std::move(command));
      }
    } while (dispatcher_->NextWake() <= now_);
    std::vector<Dispatcher::Done> answered;
    dispatcher_->TakeAnswered(answered);
    for (auto& done : answered) done();
  }

  // Adds one request; returns its index in requests_.
  std::size_t Ask(const std::vector<std::string>& keys, std::int64_t cost = 1,
                  std::optional<TimePoint> at = {}, Action action = Action::kCheck) {
    auto& held = requests_.emplace_back();
    held.keys = keys;
    for (const std::string& key : held.keys) {
      held.charges.push_back({.key = key, .limit = &kDaily, .cost = cost});
    }
    held.request = {.charges = held.charges, .now = at, .action = action};
    dispatcher_->Apply({&held.request, 1}, [&held] { held.answered = true; }, now_);
    return requests_.size() - 1;
  }
  std::size_t Check(const std::string& key) { return Ask({key}); }

  SentCommand TakeFirst() {
    if (sent_.empty()) {
      ADD_FAILURE() << "nothing was sent";
      return {};
    }
    SentCommand command = std::move(sent_.front());
    sent_.pop_front();
    return command;
  }

  void AnswerFirst(bool admits = true) {
    const SentCommand command = TakeFirst();
    if (command.exchange) ReplyTo(command, ScriptReply(command.words, admits));
  }
  void AnswerFirstWith(std::string_view bytes) { ReplyTo(TakeFirst(), bytes); }
  void BreakFirst(ErrorCode code) {
    router_->OnReply(*TakeFirst().exchange, std::unexpected(Error{code, "it broke"}), now_);
    Run();
  }
  void ReplyTo(const SentCommand& command, std::string_view bytes) {
    RespParser parser;
    ASSERT_EQ(parser.Parse(bytes), RespParser::Status::kMessage);
    router_->OnReply(*command.exchange, parser.nodes(), now_);
    Run();
  }

  // "open", "allowed", "denied" or the error.
  std::string Outcome(std::size_t number) const {
    const Held& held = requests_[number];
    if (!held.answered) return "open";
    if (!held.request.outcome) return std::string(ToString(held.request.outcome.error().code));
    return held.request.outcome->allowed ? "allowed" : "denied";
  }

  // The first `k<number>`, from `from` on, whose slot is even or odd.
  static std::string KeyIn(int parity, int from = 0) {
    for (int i = from;; ++i) {
      const std::string key = text::Cat("k", i);
      if (SlotOf(KeyPrefix("sluice", key)) % 2 == parity) return key;
    }
  }

  std::int64_t Count(const std::atomic<std::int64_t>& counter) const { return counter.load(); }
  const Dispatcher::Counters& counters() const { return dispatcher_->counters(); }

  struct Held {
    std::vector<std::string> keys;
    std::vector<Charge> charges;
    Request request;
    bool answered = false;
  };

  std::unique_ptr<Router> router_;
  std::unique_ptr<Dispatcher> dispatcher_;
  Moment now_ = Moment{} + 1h;
  std::deque<SentCommand> sent_;
  std::deque<Held> requests_;
};

// In two calls: the server first says what its time is.
TEST_F(DispatcherTest, SendsTheWindowsOfACalendarThatTheServerIsIn) {
  const Limit limit = *Limit::Calendar({.limit = 5, .every = Every::kDay});
  constexpr std::int64_t kDay = 86'400'000'000;
  const auto ask = [&] {
    Held& held = requests_.emplace_back();
    held.charges.push_back({.key = "k", .limit = &limit});
    held.request = {.charges = held.charges};
    dispatcher_->Apply({&held.request, 1}, [&held] { held.answered = true; }, now_);
    Run();
  };
  const auto windows = [](std::int64_t first) {
    return text::Cat(" ", first, " ", first + kDay, " ", first + 2 * kDay);
  };
  const auto reply = [](std::int64_t now_us) {
    return text::Cat("*5\r\n:", now_us, "\r\n:1\r\n:0\r\n:-1\r\n:0\r\n");
  };
  const auto refusal = [](std::int64_t now_us) { return text::Cat("-CALENDAR ", now_us, "\r\n"); };

  ask();
  ASSERT_THAT(sent_.front().words.at(6), EndsWith(windows(0))) << "nothing is known yet";
  AnswerFirstWith(refusal(kMidnight + 3));
  EXPECT_EQ(Outcome(0), "open");
  ASSERT_THAT(sent_.front().words.at(6), EndsWith(windows(kMidnight - kDay)))
      << "and the one that follows, in which the server is";
  AnswerFirstWith(reply(kMidnight + 3));
  EXPECT_EQ(Outcome(0), "allowed");
  EXPECT_EQ(requests_[0].request.outcome->reset_after, Micros{kDay - 3});

  // From then on it is known.
  now_ += 5s;
  ask();
  ASSERT_THAT(sent_.front().words.at(6), EndsWith(windows(kMidnight)));
  AnswerFirstWith(reply(kMidnight + 5'000'003));
  EXPECT_EQ(Outcome(1), "allowed");

  // Unless somebody sets the server's clock.
  ask();
  AnswerFirstWith(refusal(kMidnight - 7 * kDay - 1));
  ASSERT_THAT(sent_.front().words.at(6), EndsWith(windows(kMidnight - 8 * kDay)));
  AnswerFirstWith(reply(kMidnight - 7 * kDay - 1));
  EXPECT_EQ(Outcome(2), "allowed");

  // A server whose clock races is not asked for ever.
  ask();
  for (int i = 1; i <= 9; ++i) AnswerFirstWith(refusal(kMidnight + 10 * i * kDay));
  EXPECT_THAT(sent_, IsEmpty());
  EXPECT_EQ(Outcome(3), "STORE_ERROR");
}

TEST_F(DispatcherTest, SharesWhatCameTogetherBetweenTwoCalls) {
  Check("a");
  Check("b");
  EXPECT_THAT(sent_, IsEmpty());
  Run();
  ASSERT_EQ(sent_.size(), 2u);
  AnswerFirst();
  AnswerFirst();
  EXPECT_EQ(Outcome(0), "allowed");
  EXPECT_EQ(Outcome(1), "allowed");
}

TEST_F(DispatcherTest, GathersWhileTwoCallsAreOnTheirWay) {
  Check("a");
  Run();
  Check("b");
  Run();
  EXPECT_EQ(sent_.size(), 2u);
  for (const char* const key : {"c", "d", "e", "f"}) Check(key);
  Run();
  EXPECT_EQ(sent_.size(), 2u);
  AnswerFirst();
  // 4 wait and 1 is in flight: 3 go, the rest waits for its turn.
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[1].words[2], "3");
  AnswerFirst();
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[1].words[2], "1");
  AnswerFirst();
  AnswerFirst();
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(Outcome(i), "allowed") << i;
  EXPECT_EQ(Count(counters().calls), 4);
}

TEST_F(DispatcherTest, FoldsEqualRequestsAndDealsOutInOrder) {
  Check("x");
  Check("y");
  Run();
  for (int i = 0; i < 4; ++i) Check("hot");
  AnswerFirst();
  ASSERT_EQ(sent_.size(), 2u);
  const SentCommand call = sent_.back();
  sent_.pop_back();
  EXPECT_EQ(call.words[2], "1");                      // One key,
  EXPECT_THAT(call.words.end()[-3], EndsWith(" 1"));  // of cost 1,
  EXPECT_EQ(call.words.back(), "3");                  // three times.
  // 998 of 1000 are used: 2 of 3 are admitted.
  std::string reply;
  AppendBulkString(reply, text::Cat(kMidnight / 1'000'000, " 0\n2 ", kMidnight, " 998"));
  ReplyTo(call, reply);
  EXPECT_EQ(Outcome(2), "allowed");
  EXPECT_EQ(Outcome(3), "allowed");
  EXPECT_EQ(Outcome(4), "denied");
  EXPECT_EQ(Outcome(5), "open");
}

TEST_F(DispatcherTest, AnswersInvalidRequestsWithoutRedis) {
  const auto invalid = Ask({""});
  Run();
  EXPECT_EQ(Outcome(invalid), "INVALID_KEY");
  EXPECT_THAT(sent_, IsEmpty());
  EXPECT_EQ(Count(counters().unavailable), 0);
}

TEST_F(DispatcherTest, IsUnavailableIfItCannotSendInTime) {
  router_->OnLost(Router::kOnlyNode, now_);
  const auto first = Check("a");
  Run();
  Run(kCallTimeout - 1ms);
  EXPECT_EQ(Outcome(first), "open");
  EXPECT_EQ(dispatcher_->NextWake(), now_ + 1ms);
  Run(1ms);
  EXPECT_EQ(Outcome(first), "UNAVAILABLE");
  router_->OnUp(Router::kOnlyNode, {.host = "n0", .port = 1}, now_);
  Run();
  EXPECT_THAT(sent_, IsEmpty());
  EXPECT_EQ(Count(counters().unavailable), 1);
  EXPECT_EQ(Count(counters().calls), 0);
}

TEST_F(DispatcherTest, DoesNotKnowTheOutcomeOfWhatWasSentAndNotAnswered) {
  Check("a");
  Run();
  Check("b");
  Run();
  Run(10ms);
  const auto waiting = Check("c");
  Run(kCallTimeout - 10ms);
  EXPECT_EQ(Outcome(0), "OUTCOME_UNKNOWN");
  EXPECT_EQ(Outcome(1), "OUTCOME_UNKNOWN");
  EXPECT_EQ(Outcome(waiting), "open");
  EXPECT_EQ(dispatcher_->TakeCallTimes().size(), 2u);
  EXPECT_EQ(Count(counters().unanswered), 2);
  // Both still count as in flight: nothing more is sent to a server that does not answer.
  EXPECT_EQ(sent_.size(), 2u);
  Run(10ms);
  EXPECT_EQ(Outcome(waiting), "UNAVAILABLE");
  // The replies come late, and make room.
  Check("d");
  AnswerFirst();
  EXPECT_EQ(Outcome(0), "OUTCOME_UNKNOWN");
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_THAT(sent_.back().words[3], HasSubstr("d"));
}

TEST_F(DispatcherTest, SendsAgainOnlyWhatProvablyDidNotLeave) {
  Check("a");
  Run();
  Check("b");
  Run();
  router_->OnLost(Router::kOnlyNode, now_);
  BreakFirst(ErrorCode::kOutcomeUnknown);
  BreakFirst(ErrorCode::kUnavailable);
  EXPECT_EQ(Outcome(0), "OUTCOME_UNKNOWN");
  EXPECT_EQ(Outcome(1), "open");
  router_->OnUp(Router::kOnlyNode, {.host = "n0", .port = 1}, now_);
  Run();
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_THAT(sent_.front().words[3], HasSubstr("b"));
  AnswerFirst();
  EXPECT_EQ(Outcome(1), "allowed");
}

TEST_F(DispatcherTest, LoadsAMissingFunctionOnceAndCallsTheScriptMeanwhile) {
  Check("a");
  Run();
  Check("b");
  Run();
  AnswerFirstWith("-ERR Function not found\r\n");
  AnswerFirstWith("-ERR Function not found\r\n");
  ASSERT_EQ(sent_.size(), 3u);
  EXPECT_EQ(sent_[0].words[0], "EVALSHA");
  EXPECT_EQ(sent_[1].words[0], "FUNCTION");
  EXPECT_EQ(sent_[2].words[0], "EVALSHA");
  EXPECT_EQ(Count(counters().script_loads), 1);
  AnswerFirst();
  AnswerFirstWith("+library\r\n");
  AnswerFirst();
  Check("c");
  Run();
  EXPECT_EQ(sent_[0].words[0], "FCALL");
  AnswerFirst();
  EXPECT_EQ(Outcome(0), "allowed");
  EXPECT_EQ(Outcome(1), "allowed");
}

TEST_F(DispatcherTest, LoadsAMissingScriptOnceAndCallsAgain) {
  Check("a");
  Run();
  Check("b");
  Run();
  AnswerFirstWith("-ERR unknown command 'FCALL'\r\n");
  AnswerFirstWith("-ERR unknown command 'FCALL'\r\n");
  AnswerFirstWith("-NOSCRIPT No matching script.\r\n");
  AnswerFirstWith("-NOSCRIPT No matching script.\r\n");
  ASSERT_EQ(sent_.size(), 3u);
  EXPECT_EQ(sent_[0].words[0], "SCRIPT");
  EXPECT_EQ(sent_[1].words[0], "EVALSHA");
  EXPECT_EQ(sent_[2].words[0], "EVALSHA");
  EXPECT_EQ(Count(counters().script_loads), 1);
  AnswerFirstWith("+digest\r\n");
  AnswerFirst();
  AnswerFirst();
  EXPECT_EQ(Outcome(0), "allowed");
  EXPECT_EQ(Outcome(1), "allowed");
}

TEST_F(DispatcherTest, DoesNotLoadTheScriptForEver) {
  const auto check = Check("a");
  Run();
  AnswerFirstWith("-ERR unknown command 'FCALL'\r\n");
  for (int i = 0; i < 20 && Outcome(check) == "open"; ++i) {
    const bool loads = sent_.front().words[0] == "SCRIPT";
    AnswerFirstWith(loads ? "+digest\r\n" : "-NOSCRIPT No matching script.\r\n");
  }
  EXPECT_EQ(Outcome(check), "STORE_ERROR");
}

// Before Redis 7.0, and for users who may not call functions.
TEST_F(DispatcherTest, CallsTheScriptWhereThereAreNoFunctions) {
  for (const char* const refusal : {"-ERR unknown command 'FCALL', with args beginning with: \r\n",
                                    "-NOPERM this user has no permissions to run 'fcall'\r\n"}) {
    Make("redis://n0:1");
    const auto first = Check("a");
    Run();
    AnswerFirstWith(refusal);
    ASSERT_EQ(sent_.size(), 1u);
    EXPECT_EQ(sent_[0].words[0], "EVALSHA");
    AnswerFirstWith("-NOSCRIPT No matching script.\r\n");
    ASSERT_EQ(sent_.size(), 2u);
    EXPECT_EQ(sent_[0].words[0], "SCRIPT");
    AnswerFirstWith("+digest\r\n");
    AnswerFirst();
    EXPECT_EQ(Outcome(first), "allowed");
    // It is remembered, for a while.
    Check("b");
    Run();
    EXPECT_EQ(sent_[0].words[0], "EVALSHA");
    AnswerFirst();
    now_ += 6min;
    Check("c");
    Run();
    EXPECT_EQ(sent_[0].words[0], "FCALL");
    AnswerFirst();
  }
}

TEST_F(DispatcherTest, CallsTheScriptWhereTheLibraryCannotBeLoaded) {
  for (const auto& [refusal, next] :
       {std::pair{"-NOPERM this user has no permissions to run 'function|load'\r\n", "EVALSHA"},
        {"-ERR Library 'sluice_1' already exists\r\n", "FCALL"}}) {  // By another instance.
    Make("redis://n0:1");
    const auto check = Check("a");
    Run();
    AnswerFirstWith("-ERR Function not found\r\n");
    AnswerFirst();
    EXPECT_EQ(Outcome(check), "allowed");
    AnswerFirstWith(refusal);
    Check("b");
    Run();
    EXPECT_EQ(sent_[0].words[0], next);
    AnswerFirst();
  }
}

// A full server refuses functions before they run, but lets scripts deny.
TEST_F(DispatcherTest, AsksTheScriptOfAServerThatTakesNoWrites) {
  for (const char* const refusal :
       {"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        "-NOREPLICAS Not enough good replicas to write.\r\n", "-MISCONF Errors writing\r\n"}) {
    Make("redis://n0:1");
    Check("a");
    Run();
    AnswerFirstWith(refusal);
    ASSERT_EQ(sent_.size(), 1u);
    EXPECT_EQ(sent_[0].words[0], "EVALSHA");
    AnswerFirst();
    EXPECT_EQ(Outcome(0), "allowed");
    // The next one tries the function again.
    Check("b");
    Run();
    EXPECT_EQ(sent_[0].words[0], "FCALL");
    AnswerFirst();
  }
}

TEST_F(DispatcherTest, RefusesMoreThanMayWait) {
  Make("redis://n0:1?waiting=2");
  for (const char* const key : {"a", "b"}) {
    Check(key);
    Run();
  }
  for (const char* const key : {"c", "d", "e"}) Check(key);
  Run();
  EXPECT_EQ(Outcome(3), "open");
  EXPECT_EQ(Outcome(4), "UNAVAILABLE");
  EXPECT_THAT(requests_[4].request.outcome.error().message, HasSubstr("2 requests wait"));
}

TEST_F(DispatcherTest, AnswersAllWhenItIsStopped) {
  Check("a");
  Run();
  Check("b");
  Run();
  const auto waiting = Check("c");
  dispatcher_->Stop();
  BreakFirst(ErrorCode::kOutcomeUnknown);
  BreakFirst(ErrorCode::kUnavailable);
  EXPECT_EQ(Outcome(0), "OUTCOME_UNKNOWN");
  EXPECT_EQ(Outcome(1), "UNAVAILABLE");
  EXPECT_EQ(Outcome(waiting), "UNAVAILABLE");
  const auto later = Check("d");
  Run();
  EXPECT_EQ(Outcome(later), "UNAVAILABLE");
  EXPECT_THAT(sent_, IsEmpty());
}

TEST_F(DispatcherTest, MakesOneCallForEachSlot) {
  MakeCluster();
  Ask({KeyIn(0)});
  Ask({KeyIn(1)});
  Run();
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_NE(sent_[0].node, sent_[1].node);
  AnswerFirst();
  AnswerFirst();
  EXPECT_EQ(Outcome(0), "allowed");
  EXPECT_EQ(Outcome(1), "allowed");
}

TEST_F(DispatcherTest, FollowsAMovedSlot) {
  MakeCluster();
  const std::string key = KeyIn(0);
  const auto check = Check(key);
  Run();
  AnswerFirstWith(text::Cat("-MOVED ", SlotOf(KeyPrefix("sluice", key)), " n1:1\r\n"));
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].node, 1u);
  AnswerFirst();
  EXPECT_EQ(Outcome(check), "allowed");
}

TEST_F(DispatcherTest, AsksWhereAMovingSlotGoes) {
  MakeCluster();
  const std::string key = KeyIn(0);
  const auto check = Check(key);
  Run();
  AnswerFirstWith(text::Cat("-ASK ", SlotOf(KeyPrefix("sluice", key)), " n1:1\r\n"));
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(sent_[0].asking);
  AnswerFirst();
  EXPECT_EQ(Outcome(check), "allowed");
}

TEST_F(DispatcherTest, PausesWithAGroupThatIsOnTwoNodes) {
  MakeCluster("&in_flight=1");
  auto& held = requests_.emplace_back();
  held.charges = {{.key = "k", .limit = &kDaily, .name = "a"},
                  {.key = "k", .limit = &kDaily, .name = "b"}};
  held.request = {.charges = held.charges};
  dispatcher_->Apply({&held.request, 1}, [&held] { held.answered = true; }, now_);
  Run();
  AnswerFirstWith("-TRYAGAIN Multiple keys request during rehashing of slot\r\n");
  EXPECT_THAT(sent_, IsEmpty());
  // It holds nobody up.
  const auto other = Check("k");
  Run();
  ASSERT_EQ(sent_.size(), 1u);
  AnswerFirst();
  EXPECT_EQ(Outcome(other), "allowed");
  Run(10ms);
  ASSERT_EQ(sent_.size(), 1u);
  AnswerFirstWith("-TRYAGAIN Multiple keys request during rehashing of slot\r\n");
  Run(19ms);
  EXPECT_THAT(sent_, IsEmpty());
  Run(1ms);
  AnswerFirst();
  EXPECT_EQ(Outcome(0), "allowed");
}

TEST_F(DispatcherTest, SplitsABatchThatIsOnTwoNodes) {
  MakeCluster("&in_flight=1");
  Check("k");
  Run();
  for (const char* const name : {"a", "b"}) {
    auto& held = requests_.emplace_back();
    held.charges = {{.key = "k", .limit = &kDaily, .name = name}};
    held.request = {.charges = held.charges};
    dispatcher_->Apply({&held.request, 1}, [&held] { held.answered = true; }, now_);
  }
  AnswerFirst();
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].words[2], "2");
  AnswerFirstWith("-TRYAGAIN Multiple keys request during rehashing of slot\r\n");
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[0].words[2], "1");
  EXPECT_EQ(sent_[1].words[2], "1");
  AnswerFirst();
  AnswerFirst(false);
  EXPECT_EQ(Outcome(1), "allowed");
  EXPECT_EQ(Outcome(2), "denied");
}

TEST_F(DispatcherTest, GoesToTheReplacementOfAMasterThatVanished) {
  MakeCluster();
  const auto check = Check(KeyIn(0));
  Run();
  router_->OnLost(0, now_);
  BreakFirst(ErrorCode::kUnavailable);
  SlotMap map;
  map.masters = {{.host = "n1", .port = 1}};
  map.owner.fill(0);
  router_->OnSlots(map, now_);
  Run();
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].node, 1u);
  AnswerFirst();
  EXPECT_EQ(Outcome(check), "allowed");
}

TEST_F(DispatcherTest, HasTheScriptAnnounceWhatIsGivenBackAndReset) {
  for (const Action action : {Action::kGive, Action::kReset}) {
    const auto request = Ask({"k"}, 1, {}, action);
    Run();
    ASSERT_EQ(sent_.size(), 1u);
    EXPECT_TRUE(sent_[0].Has("sluice:reset"));
    EXPECT_TRUE(sent_[0].Has(AnnouncementOf(&requests_[request].charges[0])));
    AnswerFirst();
    EXPECT_EQ(Outcome(request), "allowed");
  }
  // Nothing is given back, so nothing is announced.
  Ask({"k"}, 0, {}, Action::kGive);
  Run();
  EXPECT_FALSE(sent_[0].Has("sluice:reset"));
}

class DispatcherSpanTest : public DispatcherTest {
 protected:
  void SetUp() override {
    MakeCluster();
    span_ = Ask({KeyIn(0), KeyIn(1)});
    Run();
  }

  // Expects both parts of the step in flight.
  void ExpectStep(std::string_view step) {
    ASSERT_EQ(sent_.size(), 2u);
    EXPECT_TRUE(sent_[0].Has(step) && sent_[1].Has(step)) << step;
  }

  std::size_t span_ = 0;
};

TEST_F(DispatcherSpanTest, LooksAndTakes) {
  ExpectStep("look");
  AnswerFirst();
  AnswerFirst();
  ExpectStep("hold");
  AnswerFirst();
  EXPECT_EQ(Outcome(span_), "open");
  AnswerFirst();
  EXPECT_EQ(Outcome(span_), "allowed");
}

TEST_F(DispatcherSpanTest, TakesNothingIfAPartWouldDeny) {
  AnswerFirst();
  AnswerFirst(false);
  EXPECT_EQ(Outcome(span_), "denied");
  EXPECT_THAT(sent_, IsEmpty());
}

TEST_F(DispatcherSpanTest, GivesBackWhatItTookIfAnotherWasFaster) {
  AnswerFirst();
  AnswerFirst();
  AnswerFirst();
  AnswerFirst(false);
  EXPECT_EQ(Outcome(span_), "open");
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(sent_[0].Has("refund"));
  EXPECT_TRUE(sent_[0].Has("sluice:reset"));  // The script announces it.
  const Charge& taken = requests_[span_].charges[sent_[0].node];
  EXPECT_TRUE(sent_[0].Has(AnnouncementOf(&taken)));
  AnswerFirst();
  EXPECT_EQ(Outcome(span_), "denied");
  EXPECT_EQ(Count(counters().refunds), 1);
  EXPECT_EQ(Count(counters().refunds_lost), 0);
}

TEST_F(DispatcherSpanTest, IsUnavailableIfItCouldNotLook) {
  AnswerFirst();
  Run(kCallTimeout);
  EXPECT_EQ(Outcome(span_), "UNAVAILABLE");
}

TEST_F(DispatcherSpanTest, DoesNotKnowTheOutcomeIfARefundIsLost) {
  AnswerFirst();
  AnswerFirst();
  AnswerFirst();
  AnswerFirstWith("-OOM command not allowed\r\n");  // To the function, and then to the script.
  AnswerFirstWith("-OOM command not allowed\r\n");
  ASSERT_EQ(sent_.size(), 1u);
  Run(kCallTimeout);
  EXPECT_EQ(Outcome(span_), "OUTCOME_UNKNOWN");
  EXPECT_EQ(Count(counters().refunds_lost), 1);
}

TEST_F(DispatcherSpanTest, RefundsThoughItsDeadlineHasPassed) {
  AnswerFirst();
  AnswerFirst();
  AnswerFirst();
  Run(kCallTimeout);  // The other part is not answered.
  EXPECT_EQ(Outcome(span_), "open");
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_TRUE(sent_[1].Has("refund"));
  sent_.pop_front();
  AnswerFirst();
  EXPECT_EQ(Outcome(span_), "OUTCOME_UNKNOWN");
  EXPECT_EQ(Count(counters().refunds_lost), 0);
}

TEST_F(DispatcherSpanTest, IsAnsweredWhenTheStoreIsStopped) {
  dispatcher_->Stop();
  BreakFirst(ErrorCode::kOutcomeUnknown);
  BreakFirst(ErrorCode::kOutcomeUnknown);
  EXPECT_EQ(Outcome(span_), "UNAVAILABLE");  // It only looked.
}

TEST_F(DispatcherTest, KeepsTheOrderOfRequestsWithAMomentOfTheirOwn) {
  MakeCluster();
  const TimePoint at{Micros{kMidnight}};
  const std::string even = KeyIn(0);
  const std::string odd = KeyIn(1);
  const auto first = Ask({even}, 1, at);
  const auto span = Ask({even, odd}, 1, at);
  const auto last = Ask({odd}, 1, at);
  Run();
  ASSERT_EQ(sent_.size(), 1u);  // The span waits for the first, and the last for the span.
  AnswerFirst();
  EXPECT_EQ(Outcome(first), "allowed");
  for (int parts = 0; parts < 4; ++parts) AnswerFirst();
  EXPECT_EQ(Outcome(span), "allowed");
  ASSERT_EQ(sent_.size(), 1u);
  AnswerFirst();
  EXPECT_EQ(Outcome(last), "allowed");
}

TEST_F(DispatcherTest, LetsOrderedRequestsGoTogetherWhereNoneSpans) {
  MakeCluster();
  const TimePoint at{Micros{kMidnight}};
  Ask({KeyIn(0)}, 1, at);
  Ask({KeyIn(1)}, 1, at);
  Run();
  EXPECT_EQ(sent_.size(), 2u);
}

TEST_F(DispatcherTest, GivesUpOrderedRequestsThatWaitTooLong) {
  MakeCluster();
  const TimePoint at{Micros{kMidnight}};
  Ask({KeyIn(0)}, 1, at);
  const auto span = Ask({KeyIn(0), KeyIn(1)}, 1, at);
  Run();
  Run(kCallTimeout);
  EXPECT_EQ(Outcome(0), "OUTCOME_UNKNOWN");
  EXPECT_EQ(Outcome(span), "UNAVAILABLE");
}

}  // namespace
}  // namespace sluice::redis
