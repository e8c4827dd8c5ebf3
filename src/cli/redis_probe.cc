// SPDX-License-Identifier: Apache-2.0
#include "cli/redis_probe.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/text.h"
#include "redis/connection.h"
#include "redis/resp.h"

namespace sluice::cli {
namespace {

using api::Health;

constexpr std::uint64_t kRoundsKept = 3;

}  // namespace

std::optional<Health::Cluster> ParseClusterInfo(std::string_view text) {
  Health::Cluster cluster;
  const std::array<std::pair<std::string_view, std::int64_t*>, 5> numbers = {
      {{"cluster_slots_ok", &cluster.slots_ok},
       {"cluster_slots_pfail", &cluster.slots_suspected},
       {"cluster_slots_fail", &cluster.slots_failed},
       {"cluster_known_nodes", &cluster.nodes},
       {"cluster_size", &cluster.masters}}};
  while (!text.empty()) {
    const auto end = std::min(text.find("\r\n"), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 2, text.size()));
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = line.substr(colon + 1);
    if (name == "cluster_state") cluster.state = value;
    const auto number = std::ranges::find(numbers, name, &decltype(numbers)::value_type::first);
    if (number != numbers.end()) *number->second = text::ParseInteger(value).value_or(0);
  }
  if (cluster.state.empty()) return std::nullopt;
  return cluster;
}

void RedisProbe::Ask() {
  std::uint64_t round = 0;
  {
    const std::scoped_lock lock(memory_->mutex);
    round = ++memory_->round;
    std::erase_if(memory_->masters,
                  [&](const auto& master) { return master.second.round + kRoundsKept < round; });
  }
  const bool cluster = mode_ == redis::Mode::kCluster;
  client_.SendToMasters(
      cluster ? redis::Command("CLUSTER", "INFO") : redis::Command("PING"),
      [memory = memory_, round](const redis::Address& master,
                                Expected<std::span<const redis::RespNode>> reply) {
        Seen seen{.round = round, .problem = {}, .cluster = {}};
        if (!reply) {
          seen.problem = reply.error().message;
        } else if (reply->front().type == redis::RespType::kBulkString) {
          seen.cluster = ParseClusterInfo(reply->front().text);
        }
        const std::scoped_lock lock(memory->mutex);
        memory->masters.insert_or_assign(master.ToString(), std::move(seen));
      });
}

void RedisProbe::Describe(Health::Store& store) const {
  const std::scoped_lock lock(memory_->mutex);
  for (const auto& [address, seen] : memory_->masters) {
    store.masters.push_back({.address = address, .problem = seen.problem});
    // They may disagree while the Cluster changes: the worst is what somebody will run into.
    const bool worse = seen.cluster && (!store.cluster || store.cluster->state == "ok");
    if (worse) store.cluster = seen.cluster;
  }
}

}  // namespace sluice::cli
