// SPDX-License-Identifier: Apache-2.0
// A failover, in orders of events that real Sentinels produce only now and then: real masters, and
// Sentinels that answer as instructed.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "redis/resp.h"
#include "sluice/redis_store.h"
#include "support/eventually.h"
#include "support/redis_server.h"
#include "support/scripted_server.h"

namespace sluice {
namespace {

using testing_support::Eventually;
using testing_support::RedisServer;
using testing_support::ScriptedServer;

const Limit kFive = *Limit::Parse("algorithm=fixed_window,limit=5,window=1d");

class Sentinel {
 public:
  enum class Listeners { kWelcome, kRefused };

  explicit Sentinel(const RedisServer& master, Listeners listeners = Listeners::kWelcome)
      : listeners_(listeners), master_(master.port()) {}

  std::string address() const { return "127.0.0.1:" + std::to_string(server_.port()); }
  const ScriptedServer& server() const { return server_; }

  // Answers with this master from now on.
  void Name(const RedisServer& master) { master_ = master.port(); }

  void AnnounceSwitch(const RedisServer& from, const RedisServer& to) {
    server_.Publish("+switch-master", "main 127.0.0.1 " + std::to_string(from.port()) +
                                          " 127.0.0.1 " + std::to_string(to.port()));
  }

  bool IsListenedTo() const { return server_.Received("+switch-master") > 0; }

 private:
  std::optional<std::string> Answer(const ScriptedServer::Arguments& command) const {
    if (command[0] == "PING") return "+PONG\r\n";
    if (command[0] == "CLIENT") return "+OK\r\n";
    if (command[0] == "SUBSCRIBE" && listeners_ == Listeners::kRefused) return std::nullopt;
    if (command[0] == "SUBSCRIBE") return Reply("subscribe", command[1], "1");
    if (command[0] == "SENTINEL") return Reply("127.0.0.1", std::to_string(master_));
    return std::nullopt;
  }

  template <typename... Texts>
  static std::string Reply(const Texts&... texts) {
    const std::array<std::string_view, sizeof...(Texts)> all = {texts...};
    std::string reply;
    redis::AppendCommand(reply, all);
    return reply;
  }

  const Listeners listeners_;
  std::atomic<int> master_;
  ScriptedServer server_{[this](const auto& command) { return Answer(command); }};
};

// With timeouts that no test reaches.
std::unique_ptr<RedisStore> Open(const std::string& sentinels) {
  return RedisStore::Create(
             {.uri = "redis-sentinel://" + sentinels + "/main?timeout=10s&connect_timeout=3600s"})
      .value();
}

Expected<Decision> Check(RedisStore& store) { return store.Check({.key = "k", .limit = &kFive}); }

// Until decisions are written there.
bool WritesTo(RedisStore& store, const RedisServer& master) {
  return Eventually([&] { return Check(store) && master.Cli("dbsize") == "1\n"; });
}

TEST(SentinelSwitch, EndsTheAttemptToConnectToTheOldMaster) {
  const RedisServer hangs;
  const RedisServer next;
  Sentinel sentinel(hangs);
  hangs.Signal(SIGSTOP);
  const auto store = Open(sentinel.address());
  ASSERT_TRUE(Eventually([&] {
    return sentinel.IsListenedTo() && sentinel.server().Received("get-master-addr-by-name") > 0;
  }));
  sentinel.Name(next);
  sentinel.AnnounceSwitch(hangs, next);
  EXPECT_TRUE(WritesTo(*store, next));
}

// The listener hears what the store announces only if both use the same master.
TEST(SentinelSwitch, BringsTheStoreAndTheListenerToTheNewMaster) {
  const RedisServer old;
  const RedisServer next;
  Sentinel sentinel(old);
  const auto store = Open(sentinel.address());
  const auto heard = std::make_shared<std::atomic<int>>(0);
  store->Watch([heard](const Charge* charge) { *heard += charge ? 1 : 0; });
  ASSERT_TRUE(WritesTo(*store, old));
  ASSERT_TRUE(
      Eventually([&] { return sentinel.IsListenedTo() && store->GetStats().listening == 1; }));
  sentinel.Name(next);
  sentinel.AnnounceSwitch(old, next);
  // The old master, which lives on as a master, does not make either of them leave.
  EXPECT_TRUE(WritesTo(*store, next));
  EXPECT_TRUE(
      Eventually([&] { return store->Reset({.key = "k", .limit = &kFive}) && *heard > 0; }));
}

TEST(SentinelSwitch, IsHeardThoughTheListenerWasFaster) {
  const RedisServer old;
  const RedisServer next;
  Sentinel sentinel(old);
  const auto store = Open(sentinel.address());
  store->Watch([](const Charge*) {});
  const auto listens_to = [](const RedisServer& server) {
    return Eventually([&] { return server.Cli("pubsub numsub sluice:reset").ends_with("\n1\n"); });
  };
  ASSERT_TRUE(WritesTo(*store, old));
  ASSERT_TRUE(Eventually([&] { return sentinel.IsListenedTo(); }));
  ASSERT_TRUE(listens_to(old));
  // Sentinels name the new master slightly before they announce it.
  sentinel.Name(next);
  old.Cli("client kill type pubsub");
  ASSERT_TRUE(listens_to(next));
  sentinel.AnnounceSwitch(old, next);
  EXPECT_TRUE(WritesTo(*store, next));
}

TEST(SentinelSwitch, IsNotUndoneByASentinelThatHasNotHeardOfIt) {
  const RedisServer old;
  const RedisServer next;
  Sentinel late(old, Sentinel::Listeners::kRefused);
  Sentinel sentinel(old);
  const auto store = Open(late.address() + "," + sentinel.address());
  ASSERT_TRUE(WritesTo(*store, old));
  ASSERT_TRUE(Eventually([&] { return sentinel.IsListenedTo(); }));
  sentinel.Name(next);
  sentinel.AnnounceSwitch(old, next);
  EXPECT_TRUE(WritesTo(*store, next));
}

}  // namespace
}  // namespace sluice
