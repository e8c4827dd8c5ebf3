// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "api/health.h"
#include "redis/client.h"
#include "redis/info.h"
#include "redis/uri.h"
#include "telemetry/metrics.h"

namespace sluice::daemon {

// Parses the reply of `CLUSTER INFO`; nothing if it is something else.
std::optional<api::Health::Cluster> ParseClusterInfo(std::string_view text);

// Asks all masters of a Redis how they are, whenever it is told to, and keeps their last answers.
// Nothing waits.
class RedisProbe {
 public:
  // Every so many rounds, asks for figures, too, if the last such round was answered.
  static constexpr std::uint64_t kFiguresEvery = 10;

  RedisProbe(redis::Client& client, redis::Mode mode, int database)
      : client_(client), mode_(mode), database_(database) {}

  // Runs a round; call once a second. Answers show up as they come. A master that has left is
  // forgotten after a few rounds.
  void Ask();

  // Fills in the masters' answers.
  void Describe(api::Health::Store& store) const;

  // One number of each master that has reported it recently, by address.
  telemetry::Registry::Samples Figures(std::int64_t redis::ServerFigures::* field) const;

 private:
  void AskHealth(std::uint64_t round);
  void AskFigures(std::uint64_t round);

  struct Seen {
    std::uint64_t round = 0;
    std::string problem;  // Why it did not answer.
    std::optional<api::Health::Cluster> cluster;
  };
  struct Told {
    std::uint64_t round = 0;
    redis::ServerFigures figures;
  };
  // Outlives this object in the handlers of the client.
  struct Memory {
    std::mutex mutex;
    // Guarded by mutex.
    std::uint64_t round = 0;
    std::uint64_t figures_due = 1;        // The round that asks for them.
    std::map<std::string, Seen> masters;  // By address.
    std::map<std::string, Told> told;     // By address.
  };

  redis::Client& client_;
  const redis::Mode mode_;
  const int database_;
  const std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
};

}  // namespace sluice::daemon
