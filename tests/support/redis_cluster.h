// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/redis_server.h"

namespace sluice::testing_support {

// A real Redis Cluster. The first nodes are the masters, the last ones a replica of each.
class RedisCluster {
 public:
  struct Options {
    std::vector<std::string> arguments = {};  // For every node.
    std::size_t masters = 3;
    bool replicas = true;
    // After this, the others declare a node dead. A busy machine must not make them do so.
    std::chrono::milliseconds node_timeout{15'000};
    std::string scheme = "redis";
    std::string auth = {};
  };

  RedisCluster() : RedisCluster(Options{}) {}
  explicit RedisCluster(Options options);

  // With all masters as seeds.
  std::string Uri(const std::string& query = "") const;

  RedisServer& node(std::size_t number) { return *nodes_[number]; }
  std::size_t size() const { return nodes_.size(); }

  // The node that claims to serve a slot.
  std::size_t MasterOf(std::uint16_t slot) const;

  // Tells both masters that the slot moves from one to the other. New keys go to the new one.
  void BeginMove(std::uint16_t slot, std::size_t to);

  // Moves a slot to another master with all its keys, as redis-cli --cluster reshard does, a few
  // keys at a time.
  void MoveSlot(std::uint16_t slot, std::size_t to);

  // Makes a replica replace its master, which then leaves the Cluster but lives on, as with
  // redis-cli --cluster del-node.
  void ReplaceMaster(std::size_t master, std::size_t replica);

  // The replies of all masters to a command, added up.
  long long Sum(const std::string& command) const;

  bool WaitUntilOk() const;

 private:
  std::string IdOf(std::size_t number) const;

  Options options_;
  std::vector<std::unique_ptr<RedisServer>> nodes_;
};

}  // namespace sluice::testing_support
