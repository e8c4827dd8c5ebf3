// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/redis_server.h"

namespace sluice::testing_support {

// A real Redis Cluster of three masters, the first three nodes, with a replica each, the last
// three.
class RedisCluster {
 public:
  struct Options {
    std::vector<std::string> arguments = {};  // For every node.
    bool replicas = true;
    // After which the others call a node dead. A busy machine must not make them do so.
    std::chrono::milliseconds node_timeout{15'000};
    std::string scheme = "redis";
    std::string auth = {};
  };

  RedisCluster() : RedisCluster(Options{}) {}
  explicit RedisCluster(Options options);

  // All masters as seeds.
  std::string Uri(const std::string& query = "") const;

  RedisServer& node(std::size_t number) { return *nodes_[number]; }
  std::size_t size() const { return nodes_.size(); }

  // The node that serves a slot, as it says itself.
  std::size_t MasterOf(std::uint16_t slot) const;

  // Tells both masters that the slot moves from one to the other. New keys are on the new one.
  void BeginMove(std::uint16_t slot, std::size_t to);

  // Moves a slot to another master with all its keys, as redis-cli --cluster reshard does, a few
  // keys at a time.
  void MoveSlot(std::uint16_t slot, std::size_t to);

  // Has a replica replace its master, which then leaves the Cluster but lives on, as redis-cli
  // --cluster del-node does it.
  void ReplaceMaster(std::size_t master, std::size_t replica);

  // What a command answers on all masters, added up.
  long long Sum(const std::string& command) const;

  bool WaitUntilOk() const;

 private:
  std::string IdOf(std::size_t number) const;

  Options options_;
  std::vector<std::unique_ptr<RedisServer>> nodes_;
};

}  // namespace sluice::testing_support
