// SPDX-License-Identifier: Apache-2.0
#include "redis/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "redis/slots.h"
#include "support/ask.h"
#include "support/eventually.h"
#include "support/redis_cluster.h"
#include "support/redis_server.h"
#include "support/scripted_server.h"

namespace sluice::redis {
namespace {

using namespace std::chrono_literals;
using testing_support::Ask;
using testing_support::Eventually;
using testing_support::RedisCluster;
using testing_support::RedisServer;
using testing_support::ScriptedServer;

// For a client that must succeed, however busy the machine is.
const std::string kPatient = "?timeout=60s&connect_timeout=60s";

// What a channel received, to be waited for.
class Mailbox {
 public:
  void Put(std::string_view text) {
    const std::lock_guard lock(mutex_);
    received_.emplace_back(text);
    changed_.notify_all();
  }
  bool WaitFor(const std::string& text) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 30s,
                             [&] { return std::ranges::find(received_, text) != received_.end(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> received_;
};

TEST(Client, SendsAndListensAgainAfterTheServerWasGone) {
  RedisServer server;
  Mailbox box;
  std::atomic<int> subscribed = 0;
  const auto client = Client::Create(server.Uri(kPatient)).value();
  client->Subscribe(
      "news", [&](std::string_view text) { box.Put(text); },
      [&] { box.Put("subscribed " + std::to_string(++subscribed)); });
  client->Subscribe("other", [&](std::string_view text) { box.Put("other " + std::string(text)); });
  ASSERT_TRUE(box.WaitFor("subscribed 1"));
  EXPECT_EQ(Ask(*client, Command("SET", "k", "v"), "k").value(), "OK");
  EXPECT_EQ(Ask(*client, Command("GET", "k"), "k").value(), "v");
  ASSERT_TRUE(Ask(*client, Command("PUBLISH", "news", "first"), "news"));
  EXPECT_TRUE(box.WaitFor("first"));
  server.Kill();
  server.Start();
  ASSERT_TRUE(box.WaitFor("subscribed 2"));
  for (int i = 0; i < 400 && !Ask(*client, Command("PUBLISH", "other", "x"), "other"); ++i) {
    std::this_thread::sleep_for(25ms);
  }
  EXPECT_TRUE(box.WaitFor("other x"));
}

TEST(Client, IsBackSoonHoweverOftenItsConnectionIsKilled) {
  const RedisServer server;
  const auto client = Client::Create(server.Uri(kPatient)).value();
  std::vector<std::chrono::steady_clock::duration> took;
  for (int i = 0; i < 30; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    while (!Ask(*client, Command("PING"), "")) std::this_thread::sleep_for(5ms);
    std::ignore = Ask(*client, Command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"), "");
    took.push_back(std::chrono::steady_clock::now() - begun);
  }
  // If the pauses grew, as they do while it cannot connect, each would be half a second.
  std::ranges::sort(took);
  EXPECT_LT(took[took.size() / 2], 400ms);
}

TEST(Client, ReachesEveryMasterOfACluster) {
  RedisCluster cluster({.replicas = false});
  Mailbox box;
  const auto client = Client::Create(cluster.Uri(kPatient)).value();
  client->Subscribe(
      "news", [&](std::string_view text) { box.Put(text); }, [&] { box.Put("subscribed"); });
  for (int i = 0; i < 60; ++i) {
    const std::string key = "key" + std::to_string(i);
    ASSERT_EQ(Ask(*client, Command("SET", key, key), key).value(), "OK");
    ASSERT_EQ(Ask(*client, Command("GET", key), key).value(), key);
  }
  ASSERT_TRUE(box.WaitFor("subscribed"));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NE(cluster.node(i).Cli("dbsize"), "0\n");
    cluster.node(i).Cli("publish news from" + std::to_string(i));
    EXPECT_TRUE(box.WaitFor("from" + std::to_string(i)));
  }
}

TEST(Client, SendsToEveryMaster) {
  RedisCluster cluster({.replicas = false});
  Mailbox box;
  const auto client = Client::Create(cluster.Uri(kPatient)).value();
  ASSERT_TRUE(Ask(*client, Command("PING"), "")) << "the masters are known";
  client->SendToMasters(Command("PING"), [&](const Address& master, const auto& reply) {
    box.Put(master.ToString() + " " +
            std::string(reply ? reply->front().text : reply.error().message));
  });
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(box.WaitFor("127.0.0.1:" + std::to_string(cluster.node(i).port()) + " PONG"));
  }
}

// A slot is being moved. Of two keys, the new node has neither and the old one has one: no node can
// answer a command on both.
TEST(Client, AnswersWhatPausesWhenItIsClosed) {
  RedisCluster cluster({.replicas = false});
  const std::uint16_t slot = SlotOf("{k}");
  const std::size_t from = cluster.MasterOf(slot);
  std::promise<ErrorCode> answer;
  auto client = Client::Create(cluster.Uri(kPatient)).value();
  ASSERT_EQ(Ask(*client, Command("SET", "{k}1", ""), "{k}1").value(), "OK");
  cluster.BeginMove(slot, (from + 1) % 3);
  client->Send(Command("EXISTS", "{k}1", "{k}2"), "{k}1", [&](const auto& reply) {
    answer.set_value(reply ? ErrorCode::kStoreError : reply.error().code);
  });
  ASSERT_TRUE(Eventually([&] {
    return cluster.node(from).Cli("info errorstats").find("TRYAGAIN") != std::string::npos;
  }));
  client.reset();
  auto answered = answer.get_future();
  ASSERT_EQ(answered.wait_for(0s), std::future_status::ready);
  EXPECT_THAT(answered.get(), testing::AnyOf(ErrorCode::kUnavailable, ErrorCode::kOutcomeUnknown));
}

// What it was about to ask is dropped with it; the address sanitizer looks for leaks.
TEST(Client, CanBeClosedWhileItAsksItsWay) {
  for (const char* const scheme : {"redis-sentinel://", "redis://"}) {
    std::promise<void> closed;
    std::promise<void> asked;
    std::once_flag once;
    const ScriptedServer silent([&, until = closed.get_future().share()](const auto&) {
      std::call_once(once, [&] { asked.set_value(); });
      until.wait();
      return std::nullopt;
    });
    const std::string address = scheme + ("127.0.0.1:" + std::to_string(silent.port()));
    const auto uri = address + (address.starts_with("redis:") ? "/?mode=cluster&" : "/main?");
    auto client = Client::Create(uri + "timeout=60s&connect_timeout=60s").value();
    asked.get_future().wait();
    client.reset();
    closed.set_value();
  }
}

TEST(Client, DoesNotStormAServerThatRefusesItsChannel) {
  const RedisServer server;
  server.Cli("acl setuser default resetchannels");
  const auto client = Client::Create(server.Uri(kPatient)).value();
  client->Subscribe("news", [](std::string_view) {});
  std::this_thread::sleep_for(3s);
  const std::string stats = server.Cli("info stats");
  const std::string name = "total_connections_received:";
  // With a constant pause it would be about 75.
  EXPECT_LT(std::stoi(stats.substr(stats.find(name) + name.size())), 40) << stats;
}

TEST(Client, SaysWhatIsWrong) {
  EXPECT_EQ(Client::Create("nonsense").error().code, ErrorCode::kInvalidInput);
  const auto client = Client::Create("redis://:s3cret@127.0.0.1:1").value();
  EXPECT_EQ(Ask(*client, Command("PING"), "").error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(client->Description(), testing::Not(testing::HasSubstr("s3cret")));
}

}  // namespace
}  // namespace sluice::redis
