// SPDX-License-Identifier: Apache-2.0
#include "support/redis_cluster.h"

#include <chrono>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace sluice::testing_support {
namespace {

constexpr int kSlots = 16'384;

std::string Trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

}  // namespace

RedisCluster::RedisCluster(Options options) : options_(std::move(options)) {
  const std::size_t masters = options_.masters;
  const std::size_t size = options_.replicas ? 2 * masters : masters;
  std::vector<int> bus;
  for (std::size_t i = 0; i < size; ++i) {
    bus.push_back(FreePort());
    std::vector<std::string> arguments = {"--cluster-enabled",
                                          "yes",
                                          "--cluster-port",
                                          std::to_string(bus.back()),
                                          "--cluster-node-timeout",
                                          std::to_string(options_.node_timeout.count()),
                                          "--cluster-replica-validity-factor",
                                          "0",
                                          "--cluster-allow-replica-migration",
                                          "no",
                                          "--repl-diskless-sync-delay",
                                          "0"};
    arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
    nodes_.push_back(std::make_unique<RedisServer>(RedisServer::Options{
        .arguments = arguments, .scheme = options_.scheme, .auth = options_.auth}));
  }
  for (std::size_t i = 0; i < size; ++i) {
    const RedisServer& node = *nodes_[i];
    node.Cli("cluster set-config-epoch " + std::to_string(i + 1));
    if (i < masters) {
      const auto first = [&](std::size_t number) {
        return kSlots * static_cast<int>(number) / static_cast<int>(masters);
      };
      node.Cli("cluster addslotsrange " + std::to_string(first(i)) + " " +
               std::to_string(first(i + 1) - 1));
    }
    if (i > 0) {
      node.Cli("cluster meet 127.0.0.1 " + std::to_string(nodes_[0]->port()) + " " +
               std::to_string(bus[0]));
    }
  }
  for (std::size_t i = masters; i < size; ++i) {
    const std::string replicate = "cluster replicate " + IdOf(i - masters);
    for (int tries = 0; nodes_[i]->Cli(replicate) != "OK\n"; ++tries) {
      if (tries == 1000) throw std::runtime_error("a replica does not find its master");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  if (!WaitUntilOk()) throw std::runtime_error("the cluster does not come up");
}

// Every node sees all slots served, all others, and its replicas in sync.
bool RedisCluster::WaitUntilOk() const {
  const std::string known = "cluster_known_nodes:" + std::to_string(nodes_.size());
  for (int tries = 0; tries < 2000; ++tries) {
    bool ok = true;
    for (std::size_t i = 0; i < nodes_.size() && ok; ++i) {
      const std::string info = nodes_[i]->Cli("cluster info");
      ok = info.find("cluster_state:ok") != std::string::npos &&
           info.find("cluster_slots_ok:16384") != std::string::npos &&
           info.find(known) != std::string::npos;
      const std::string role = ok ? nodes_[i]->Cli("role") : "";
      if (role.starts_with("slave")) ok = role.find("connected") != std::string::npos;
    }
    if (ok) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

std::string RedisCluster::Uri(const std::string& query) const {
  std::string uri = options_.scheme + "://" + (options_.auth.empty() ? "" : options_.auth + "@");
  for (std::size_t i = 0; i < options_.masters; ++i) {
    uri += (i == 0 ? "" : ",") + ("127.0.0.1:" + std::to_string(nodes_[i]->port()));
  }
  return uri + query;
}

std::string RedisCluster::IdOf(std::size_t number) const {
  return Trimmed(nodes_[number]->Cli("cluster myid"));
}

std::size_t RedisCluster::MasterOf(std::uint16_t slot) const {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    std::istringstream lines(nodes_[i]->Cli("cluster nodes"));
    for (std::string line; std::getline(lines, line);) {
      if (line.find("myself,master") == std::string::npos) continue;
      std::istringstream words(line);
      std::string word;
      for (int skipped = 0; skipped < 8; ++skipped) words >> word;
      while (words >> word) {
        if (word.starts_with('[')) continue;
        const auto dash = word.find('-');
        const int first = std::stoi(word);
        const int last = dash == std::string::npos ? first : std::stoi(word.substr(dash + 1));
        if (first <= slot && slot <= last) return i;
      }
    }
  }
  throw std::runtime_error("nobody serves the slot");
}

void RedisCluster::BeginMove(std::uint16_t slot, std::size_t to) {
  const std::size_t from = MasterOf(slot);
  const std::string number = std::to_string(slot);
  nodes_[to]->Cli("cluster setslot " + number + " importing " + IdOf(from));
  nodes_[from]->Cli("cluster setslot " + number + " migrating " + IdOf(to));
}

void RedisCluster::MoveSlot(std::uint16_t slot, std::size_t to) {
  const std::size_t from = MasterOf(slot);
  const std::string number = std::to_string(slot);
  BeginMove(slot, to);
  while (true) {
    std::istringstream lines(nodes_[from]->Cli("cluster getkeysinslot " + number + " 2"));
    std::string keys;
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty()) keys += " '" + line + "'";
    }
    if (keys.empty()) break;
    nodes_[from]->Cli("migrate 127.0.0.1 " + std::to_string(nodes_[to]->port()) +
                      " '' 0 5000 keys" + keys);
  }
  for (const std::size_t node : {to, from}) {
    nodes_[node]->Cli("cluster setslot " + number + " node " + IdOf(to));
  }
}

void RedisCluster::ReplaceMaster(std::size_t master, std::size_t replica) {
  // Redis refuses a failover while the replica is not yet connected, and gives one up after five
  // seconds, as on a machine that is busy: it is asked for again.
  const auto is_done = [&] {
    return nodes_[replica]->Cli("role").starts_with("master") &&
           nodes_[master]->Cli("role").starts_with("slave");
  };
  std::chrono::steady_clock::time_point ask_again;
  for (int tries = 0; !is_done(); ++tries) {
    if (tries == 5'000) throw std::runtime_error("a replica does not replace its master");
    const auto now = std::chrono::steady_clock::now();
    if (now >= ask_again && nodes_[replica]->Cli("role").starts_with("slave")) {
      nodes_[replica]->Cli("cluster failover");
      ask_again = now + std::chrono::seconds(6);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::string forget = "cluster forget " + IdOf(master);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (i != master && nodes_[i]->Cli(forget) != "OK\n") {
      throw std::runtime_error("a node does not forget another one");
    }
  }
  nodes_[master]->Cli("cluster reset soft");
}

long long RedisCluster::Sum(const std::string& command) const {
  long long sum = 0;
  for (const auto& node : nodes_) {
    if (!node->Cli("role").starts_with("master")) continue;
    sum += std::stoll(node->Cli(command));
  }
  return sum;
}

}  // namespace sluice::testing_support
