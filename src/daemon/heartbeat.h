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

// Counts the instances that share a Redis: each Beat enters its name and the time in a sorted set,
// `<prefix>:instances`, and removes those that have not done so for kGoneAfter. The count is the
// highest of the last kBeatsKept: the first to return after an outage does not take itself for the
// only one.
class Heartbeat {
 public:
  static constexpr std::int64_t kGoneAfterMs = 10'000;
  static constexpr std::size_t kBeatsKept = 10;

  Heartbeat(redis::Client& client, std::string name);

  // Enters this instance and counts all. Does not wait: `count` runs on the client's thread, and
  // not at all if Redis does not answer, so the last count stays.
  void Beat(std::function<void(std::int64_t)> count);

 private:
  redis::Client& client_;
  const std::string name_;
  const std::string key_;

  // Used on the client's thread, which may outlive this object.
  struct Recent {
    std::array<std::int64_t, kBeatsKept> counts{};
    std::size_t next = 0;
  };
  const std::shared_ptr<Recent> recent_ = std::make_shared<Recent>();
};

}  // namespace sluice::daemon
