// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "redis/client.h"

namespace sluice::daemon {

// Counts the instances that share a Redis: each enters its name and the time in a sorted set,
// `<prefix>:instances`, every time that Beat is called, and those that have not for kGoneAfter are
// taken out. The count is the most of the last kBeatsKept: the first to be back after an outage
// does not take itself for the only one.
class Heartbeat {
 public:
  static constexpr std::int64_t kGoneAfterMs = 10'000;
  static constexpr std::size_t kBeatsKept = 10;

  Heartbeat(redis::Client& client, std::string name);

  // Enters this instance and counts all. Does not wait: `count` runs on the client's thread, and
  // not at all if Redis does not answer, so that the last count stays.
  void Beat(std::function<void(std::int64_t)> count);

 private:
  redis::Client& client_;
  const std::string name_;
  const std::string key_;

  // On the client's thread, which may outlive this object.
  struct Recent {
    std::array<std::int64_t, kBeatsKept> counts{};
    std::size_t next = 0;
  };
  const std::shared_ptr<Recent> recent_ = std::make_shared<Recent>();
};

}  // namespace sluice::daemon
