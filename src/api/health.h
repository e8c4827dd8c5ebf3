// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sluice/time.h"

namespace sluice::api {

// How the service is, as health checks report it.
struct Health {
  struct Store {
    std::string kind;  // memory, standalone, sentinel or cluster
    std::string address = {};
    bool reachable = true;
    std::optional<Micros> latency = {};
    std::string breaker = {};  // closed, open or half-open; empty without a guard.
    std::string problem = {};  // Why it is not reachable.
  };

  bool draining = false;
  Store store;
};

}  // namespace sluice::api
