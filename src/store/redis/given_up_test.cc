// SPDX-License-Identifier: Apache-2.0
// A caller that was told "no answer" acts on it: what was not executed by then must never be
// executed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"
#include "redis/client.h"
#include "redis/slots.h"
#include "sluice/redis_store.h"
#include "store/redis/script.h"
#include "support/ask.h"
#include "support/eventually.h"
#include "support/scripted_server.h"

namespace sluice::redis {
namespace {

using namespace std::chrono_literals;
using testing_support::Ask;
using testing_support::Eventually;
using testing_support::ScriptedServer;
using Arguments = ScriptedServer::Arguments;

const Limit kMany = *Limit::Parse("algorithm=fixed_window,limit=1000000,window=1d");

// What every server replies to new connections.
std::optional<std::string> Greet(const Arguments& command) {
  if (command[0] == "PING") return "+PONG\r\n";
  if (command[0] == "CLIENT") return "+OK\r\n";
  if (command[0] == "SCRIPT") {
    return text::Cat("+", ProgramAs(ProgramForm::kScript).name, "\r\n");
  }
  return std::nullopt;
}

// A Cluster in which all slots move to another master while the first one is slow to answer a
// command that mentions "late-one". All others are answered with an error.
class MovingCluster {
 public:
  std::string Uri(const std::string& query) const {
    return "redis://127.0.0.1:" + std::to_string(old_.port()) + "?mode=cluster&" + query;
  }

  // Lets the first master answer.
  void Move() { may_move_.set_value(); }

  const ScriptedServer& old_master() const { return old_; }
  const ScriptedServer& new_master() const { return new_; }

 private:
  std::string Slots() {
    std::string reply = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n";
    AppendInteger(reply, moved_ ? new_.port() : old_.port());
    return reply;
  }

  std::string AnswerOfOld(const Arguments& command) {
    if (auto greeting = Greet(command)) return *greeting;
    if (command[0] == "CLUSTER") return Slots();
    if (ScriptedServer::Mentions(command, "late-one")) {
      moving_.wait_for(1min);
      moved_ = true;
    }
    if (!moved_) return "-ERR old\r\n";
    const std::string& key = command[0] == "FCALL" ? command[3] : command[1];
    return "-MOVED " + std::to_string(SlotOf(key)) + " 127.0.0.1:" + std::to_string(new_.port()) +
           "\r\n";
  }

  std::string AnswerOfNew(const Arguments& command) {
    if (auto greeting = Greet(command)) return *greeting;
    return command[0] == "CLUSTER" ? Slots() : "-ERR new\r\n";
  }

  std::promise<void> may_move_;
  std::shared_future<void> moving_ = may_move_.get_future().share();
  std::atomic<bool> moved_ = false;
  ScriptedServer new_{[this](const Arguments& command) { return AnswerOfNew(command); }};
  ScriptedServer old_{[this](const Arguments& command) { return AnswerOfOld(command); }};
};

TEST(GivenUp, ACheckDoesNotFollowItsSlot) {
  MovingCluster cluster;
  const auto store = RedisStore::Create({.uri = cluster.Uri("timeout=300ms")}).value();
  const auto answer = [&](std::string_view key) {
    return store->Check({.key = key, .limit = &kMany}).error();
  };
  ASSERT_TRUE(Eventually([&] { return answer("warm").message == "Redis says \"ERR old\""; }));
  ASSERT_EQ(answer("late-one").code, ErrorCode::kOutcomeUnknown);
  cluster.Move();
  // Had the late one been sent on, it would have come before this one.
  ASSERT_TRUE(Eventually([&] { return answer("next-one").message == "Redis says \"ERR new\""; }));
  EXPECT_EQ(cluster.old_master().Received("late-one"), 1);
  EXPECT_EQ(cluster.new_master().Received("late-one"), 0);
}

TEST(GivenUp, ACommandDoesNotFollowItsSlot) {
  MovingCluster cluster;
  const auto client = Client::Create(cluster.Uri("timeout=300ms")).value();
  const auto incremented = [&](std::string_view key) {
    return Ask(*client, Command("INCR", key), key);
  };
  ASSERT_TRUE(Eventually([&] { return incremented("warm") == "ERR old"; }));
  ASSERT_EQ(incremented("late-one").error().code, ErrorCode::kOutcomeUnknown);
  cluster.Move();
  ASSERT_TRUE(Eventually([&] { return incremented("next-one") == "ERR new"; }));
  EXPECT_EQ(cluster.old_master().Received("late-one"), 1);
  EXPECT_EQ(cluster.new_master().Received("late-one"), 0);
}

// Sets it at the end of the scope, so that nobody waits for it after a failure.
class SetAtEnd {
 public:
  explicit SetAtEnd(std::promise<void>& promise) : promise_(promise) {}
  ~SetAtEnd() { promise_.set_value(); }
  SetAtEnd(const SetAtEnd&) = delete;
  SetAtEnd& operator=(const SetAtEnd&) = delete;

 private:
  std::promise<void>& promise_;
};

// Whether a command was given up while it waited for another one to be written. If the machine
// stalls, the connection may be dropped too early.
bool ACommandIsGivenUpWhileItWaits() {
  constexpr std::size_t kMoreThanSocketsHold = 40 << 20;
  std::promise<void> answered;
  const auto answering = answered.get_future().share();
  const ScriptedServer server([&](const Arguments& command) -> std::optional<std::string> {
    if (auto greeting = Greet(command)) return greeting;
    if (command[0] != "HANG") return "+done\r\n";
    answering.wait_for(1min);
    return std::nullopt;
  });
  // Longer than a connection must last for the next one to be made at once.
  const auto client =
      Client::Create("redis://127.0.0.1:" + std::to_string(server.port()) + "?timeout=1100ms")
          .value();
  std::string large = Command("SET", "large", std::string(kMoreThanSocketsHold, 'x'));
  std::optional<ErrorCode> code;
  {
    const SetAtEnd set_at_end(answered);
    EXPECT_TRUE(Eventually([&] { return Ask(*client, Command("GET", "warm"), "") == "done"; }));
    client->Send(Command("HANG"), "", [](auto) {});
    client->Send(std::move(large), "", [](auto) {});
    const auto late = Ask(*client, Command("INCR", "late-one"), "");
    if (!late) code = late.error().code;
  }
  EXPECT_TRUE(code) << "nobody could answer it";
  EXPECT_TRUE(Eventually([&] { return Ask(*client, Command("GET", "next-one"), "") == "done"; }));
  if (code != ErrorCode::kOutcomeUnknown) return false;
  EXPECT_EQ(server.Received("late-one"), 0);
  return true;
}

TEST(GivenUp, ACommandThatWaitedForAnotherOneToBeWrittenIsNotSentOnTheNextConnection) {
  bool seen = false;
  for (int i = 0; i < 10 && !seen; ++i) seen = ACommandIsGivenUpWhileItWaits();
  EXPECT_TRUE(seen);
}

// Loading the script failed; the request was never sent.
TEST(RedisStore, WhatIsNotSentForWantOfAConnectionIsNotInDoubt) {
  const ScriptedServer server([](const Arguments& command) -> std::optional<std::string> {
    if (command[0] == "SCRIPT") return std::nullopt;
    return "+PONG\r\n";
  });
  const auto store =
      RedisStore::Create({.uri = "redis://127.0.0.1:" + std::to_string(server.port())}).value();
  const Limit limit = *Limit::Parse("limit=5,window=1d");
  for (int i = 0; i < 5; ++i) {
    const auto decision = store->Check({.key = "k", .limit = &limit});
    ASSERT_FALSE(decision);
    EXPECT_EQ(decision.error().code, ErrorCode::kUnavailable) << decision.error().message;
  }
}

}  // namespace
}  // namespace sluice::redis
