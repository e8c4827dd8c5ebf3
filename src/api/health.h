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
    std::string breaker = {};         // closed, open or half_open; empty if it has none.
    std::string breaker_reason = {};  // Of its last transition; empty if there was none.
    std::string problem = {};         // Why it is not reachable.

    // Whether it decides, rather than the policies.
    bool decides() const { return reachable && (breaker.empty() || breaker == "closed"); }
  };

  bool draining = false;
  Store store;
};

}  // namespace sluice::api
