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
#include "redis/uri.h"

namespace sluice::cli {

// What `CLUSTER INFO` says; nothing if it is not that.
std::optional<api::Health::Cluster> ParseClusterInfo(std::string_view text);

// Asks all masters of a Redis how they are, whenever it is told to, and keeps what they said last.
// Nothing waits.
class RedisProbe {
 public:
  RedisProbe(redis::Client& client, redis::Mode mode) : client_(client), mode_(mode) {}

  // The answers show as they come. A master that has left is forgotten after a few rounds.
  void Ask();

  // Fills in what the masters said.
  void Describe(api::Health::Store& store) const;

 private:
  struct Seen {
    std::uint64_t round = 0;
    std::string problem;  // Why it did not answer.
    std::optional<api::Health::Cluster> cluster;
  };
  // Outlives this object in the handlers of the client.
  struct Memory {
    std::mutex mutex;
    std::uint64_t round = 0;              // Guarded by mutex.
    std::map<std::string, Seen> masters;  // Guarded by mutex. By address.
  };

  redis::Client& client_;
  const redis::Mode mode_;
  const std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
};

}  // namespace sluice::cli
