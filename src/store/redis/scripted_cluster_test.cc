// SPDX-License-Identifier: Apache-2.0
// The store on a Cluster that answers when a test lets it, like a distant or a busy one.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "sluice/redis_store.h"
#include "store/redis/script.h"
#include "support/scripted_server.h"

namespace sluice::redis {
namespace {

using testing_support::ScriptedServer;
using Arguments = ScriptedServer::Arguments;

// A Cluster of one master whose script answers everything except new connections.
class ScriptedCluster {
 public:
  explicit ScriptedCluster(ScriptedServer::Script script) : script_(std::move(script)) {}

  std::string Uri(std::string_view query) const {
    return text::Cat("redis://127.0.0.1:", server_.port(), "?mode=cluster&", query);
  }

 private:
  std::optional<std::string> Answer(const Arguments& command) {
    if (command[0] == "PING") return "+PONG\r\n";
    if (command[0] == "CLIENT") return "+OK\r\n";
    if (command[0] == "SCRIPT") {
      return text::Cat("+", ProgramAs(ProgramForm::kScript).name, "\r\n");
    }
    if (command[0] != "CLUSTER") return script_(command);
    return text::Cat("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:", server_.port(),
                     "\r\n");
  }

  const ScriptedServer::Script script_;
  ScriptedServer server_{[this](const Arguments& command) { return Answer(command); }};
};

TEST(ScriptedCluster, IsPurgedWithoutWaitingForOneSlotAfterAnother) {
  constexpr int kKeys = 100;
  std::string page = text::Cat("*2\r\n$1\r\n0\r\n*", kKeys, "\r\n");
  for (int i = 0; i < kKeys; ++i) {
    const std::string key = text::Cat("sluice:{", i, "}:n");
    page += text::Cat("$", key.size(), "\r\n", key, "\r\n");
  }
  // Nothing is answered before everything has arrived.
  std::size_t named = 0;
  std::string answers;
  const ScriptedCluster cluster([&](const Arguments& command) -> std::optional<std::string> {
    if (command[0] == "SCAN") return page;
    if (command[0] == "PUBLISH") return ":0\r\n";
    if (command[0] != "UNLINK") return std::nullopt;
    named += command.size() - 1;
    answers += text::Cat(":", command.size() - 1, "\r\n");
    return named == kKeys ? answers : "";
  });
  const auto store = RedisStore::Create({.uri = cluster.Uri("timeout=10s")}).value();
  const auto purged = store->Purge("*", false);
  ASSERT_TRUE(purged) << purged.error().message;
  EXPECT_EQ(purged->matched, kKeys);
}

}  // namespace
}  // namespace sluice::redis
