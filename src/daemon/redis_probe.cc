// SPDX-License-Identifier: Apache-2.0
#include "daemon/redis_probe.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/text.h"
#include "redis/connection.h"
#include "redis/resp.h"

namespace sluice::daemon {
namespace {

using api::Health;

constexpr std::uint64_t kRoundsKept = 3;
constexpr std::uint64_t kFiguresKept = 3 * RedisProbe::kFiguresEvery;

}  // namespace

std::optional<Health::Cluster> ParseClusterInfo(std::string_view text) {
  Health::Cluster cluster;
  const std::array<std::pair<std::string_view, std::int64_t*>, 5> numbers = {
      {{"cluster_slots_ok", &cluster.slots_ok},
       {"cluster_slots_pfail", &cluster.slots_suspected},
       {"cluster_slots_fail", &cluster.slots_failed},
       {"cluster_known_nodes", &cluster.nodes},
       {"cluster_size", &cluster.masters}}};
  redis::ForEachInfoField(text, [&](std::string_view name, std::string_view value) {
    if (name == "cluster_state") cluster.state = value;
    const auto number = std::ranges::find(numbers, name, &decltype(numbers)::value_type::first);
    if (number != numbers.end()) *number->second = text::ParseInteger(value).value_or(0);
  });
  if (cluster.state.empty()) return std::nullopt;
  return cluster;
}

void RedisProbe::Ask() {
  std::uint64_t round = 0;
  bool figures = false;
  {
    const std::scoped_lock lock(memory_->mutex);
    round = ++memory_->round;
    figures = round >= memory_->figures_due;
    std::erase_if(memory_->masters,
                  [&](const auto& master) { return master.second.round + kRoundsKept < round; });
    std::erase_if(memory_->told,
                  [&](const auto& master) { return master.second.round + kFiguresKept < round; });
  }
  AskHealth(round);
  if (figures) AskFigures(round);
}

void RedisProbe::AskHealth(std::uint64_t round) {
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

// Everything in INFO, as servers before Redis 7 accept only one section at a time.
void RedisProbe::AskFigures(std::uint64_t round) {
  client_.SendToMasters(
      redis::Command("INFO"),
      [memory = memory_, round, database = database_](
          const redis::Address& master, Expected<std::span<const redis::RespNode>> reply) {
        if (!reply) return;  // Nothing was asked: the next round tries again.
        const auto figures = redis::ParseInfo(reply->front().text, database);
        const std::scoped_lock lock(memory->mutex);
        memory->figures_due = std::max(memory->figures_due, round + kFiguresEvery);
        if (figures) memory->told.insert_or_assign(master.ToString(), Told{round, *figures});
      });
}

telemetry::Registry::Samples RedisProbe::Figures(std::int64_t redis::ServerFigures::* field) const {
  telemetry::Registry::Samples samples;
  const std::scoped_lock lock(memory_->mutex);
  for (const auto& [address, told] : memory_->told) {
    samples.push_back({{address}, static_cast<double>(told.figures.*field)});
  }
  return samples;
}

void RedisProbe::Describe(Health::Store& store) const {
  const std::scoped_lock lock(memory_->mutex);
  for (const auto& [address, seen] : memory_->masters) {
    store.masters.push_back({.address = address, .problem = seen.problem});
    // They may disagree while the Cluster changes: shows the worst, which some clients will hit.
    const bool worse = seen.cluster && (!store.cluster || store.cluster->state == "ok");
    if (worse) store.cluster = seen.cluster;
  }
}

}  // namespace sluice::daemon
