// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "reload/managed_rules.h"
#include "sluice/time.h"

namespace sluice::api {

// The state of the service, for health checks.
struct Health {
  struct Master {
    std::string address;
    std::string problem = {};  // Why it does not answer; empty if it does.
  };

  // What a Redis Cluster reports about itself.
  struct Cluster {
    std::string state = {};  // ok, or fail
    std::int64_t slots_ok = 0;
    std::int64_t slots_suspected = 0;  // Of masters that some nodes cannot reach.
    std::int64_t slots_failed = 0;     // Of masters that are agreed to be down.
    std::int64_t nodes = 0;
    std::int64_t masters = 0;  // Those that serve slots.
  };

  // The state of the file that keeps the budgets over restarts.
  struct Snapshot {
    std::uint64_t failures = 0;
    std::optional<TimePoint> saved_at = {};  // The last successful one since the start.
    std::string problem = {};                // Why a later one failed; empty if none did.
  };

  struct Store {
    std::string kind;  // memory, standalone, sentinel or cluster
    std::string address = {};
    bool reachable = true;
    std::optional<Micros> latency = {};
    std::string breaker = {};          // closed, open or half_open; empty if there is none.
    std::string breaker_reason = {};   // Of its last transition; empty if there was none.
    bool overloaded = false;           // It answers, but cannot keep up.
    std::string problem = {};          // Why it is unreachable.
    std::vector<Master> masters = {};  // Of Redis, as far as known.
    std::optional<Cluster> cluster = {};
    std::optional<Snapshot> snapshot = {};  // Of the memory store, if it has one.

    bool works() const { return reachable && (!cluster || cluster->state == "ok"); }

    // Whether it decides, and not the policies.
    bool decides() const {
      return works() && !overloaded && (breaker.empty() || breaker == "closed");
    }
  };

  // The files that can be reloaded: configuration, rules, certificates and tokens.
  struct Reload {
    std::vector<std::string> problems = {};  // Of files not in force; the old ones are.
    std::optional<TimePoint> good_at = {};   // When rules were last read from files.
  };

  bool draining = false;
  bool clock_believed = true;  // Whether the system's clock can be right.
  Store store;
  // For the rule sets that the admin API manages, if they outlive the process.
  std::optional<reload::RulesStatus> rules = {};
  Reload reload = {};

  // Whether requests should come here. Without its store it decides by policy; without its rules it
  // would not find them.
  bool ready() const { return !draining && (!rules || rules->ready); }

  // Whether it decides only as well as it can.
  bool degraded() const {
    return !store.decides() || !clock_believed || (rules && rules->degraded()) ||
           !reload.problems.empty();
  }
};

// As an object.
void AppendStore(JsonWriter& json, const Health::Store& store);

// As an object. It shows files and parts of their content: only for the admin API.
void AppendReload(JsonWriter& json, const Health::Reload& reload);

// As fields of an object.
void AppendRulesFields(JsonWriter& json, const reload::RulesStatus& rules);

}  // namespace sluice::api
