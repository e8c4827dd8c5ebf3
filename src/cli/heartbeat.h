// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "redis/client.h"

namespace sluice::cli {

// Counts the instances that share a Redis: each enters its name and the time in a sorted set,
// `<prefix>:instances`, every time that Beat is called, and those that have not for kGoneAfter are
// taken out.
class Heartbeat {
 public:
  static constexpr std::int64_t kGoneAfterMs = 10'000;

  Heartbeat(redis::Client& client, std::string name);

  // Enters this instance and counts all. Does not wait: `count` runs on the client's thread, and
  // not at all if Redis does not answer, so that the last count stays.
  void Beat(std::function<void(std::int64_t)> count);

 private:
  redis::Client& client_;
  const std::string name_;
  const std::string key_;
};

}  // namespace sluice::cli
