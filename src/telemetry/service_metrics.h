// SPDX-License-Identifier: Apache-2.0
// The metrics of the service; docs/reference/metrics.md says what each means. Keys of clients are
// never labels.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "sluice/error.h"
#include "sluice/limit.h"
#include "sluice/memory_store.h"
#include "sluice/redis_store.h"
#include "sluice/store.h"
#include "telemetry/metrics.h"

namespace sluice::telemetry {

enum class RuleOutcome : std::uint8_t { kAllowed, kDenied, kShadowDenied, kError };
enum class ReloadResult : std::uint8_t { kOk, kInvalid };
enum class Door : std::uint8_t { kHttp, kAdmin, kGrpc, kResp };

// A rule's counters, kept in the compiled rule: counting needs no look-up.
class RuleMetrics {
 public:
  RuleMetrics() = default;
  void Count(RuleOutcome outcome) const { set_[static_cast<std::size_t>(outcome)].Add(); }

 private:
  friend class ServiceMetrics;
  explicit RuleMetrics(CounterFamily::Set set) : set_(set) {}
  CounterFamily::Set set_;
};

// Every method may be called from any thread; all but those that say otherwise cost nanoseconds.
class ServiceMetrics {
 public:
  static constexpr std::size_t kRulesMax = 4000;

  struct Options {
    std::string_view version = "unknown";

    // Beyond it rules are counted together, as "other". At most kRulesMax.
    std::size_t rules_max = 1000;
  };

  // The registry outlives it. All series but those of rules exist from now on, with 0.
  ServiceMetrics(Registry& registry, const Options& options);
  explicit ServiceMetrics(Registry& registry) : ServiceMetrics(registry, Options{}) {}
  ServiceMetrics(const ServiceMetrics&) = delete;
  ServiceMetrics& operator=(const ServiceMetrics&) = delete;

  // A limit was checked, and that took so long.
  void Check(Algorithm algorithm, bool allowed, std::chrono::nanoseconds duration) const {
    const Checks& checks = checks_[static_cast<std::size_t>(algorithm)][allowed ? 1 : 0];
    checks.requests.Add();
    checks.seconds.Observe(duration);
  }

  // A request was answered without its store. Does nothing for kStore; kDenyCache counts there.
  void Decided(Source source) const;

  // The store failed a charge that has this policy.
  void StoreFailed(OnStoreFailure policy) const {
    store_failures_[static_cast<std::size_t>(policy)].Add();
  }

  void Failed(ErrorCode code) const { errors_[static_cast<std::size_t>(code)].Add(); }

  // Takes a lock: ask when rules are compiled, and keep the answer.
  RuleMetrics Rule(std::string_view rule_set, std::string_view rule) const;

  // Forgets all rules but these pairs of rule set and rule. Takes a lock.
  void RetainRules(std::span<const std::pair<std::string_view, std::string_view>> rules) const;

  // The generation counts only if the result is kOk.
  void Reloaded(ReloadResult result, std::int64_t generation) const;

  // The certificate of a door was read again, or could not be.
  void CertificateReloaded(ReloadResult result) const {
    certificate_reloads_[static_cast<std::size_t>(result)].Add();
  }

  void HttpResponse(int status) const;

  // A call to Redis was answered, or given up, after so long.
  void RedisCall(std::chrono::nanoseconds duration) const { redis_seconds_.Observe(duration); }

  struct Connections {
    std::uint64_t open = 0;
    std::uint64_t accepted = 0;
    std::uint64_t refused = 0;
    std::uint64_t handshakes_failed = 0;
  };

  // Numbers that doors and stores keep themselves; what is given here runs when metrics are read.
  // Once each.
  void WatchConnections(Door door, std::function<Connections()> connections);
  void WatchMemory(std::function<MemoryStore::Stats()> stats);
  void WatchRedis(std::function<RedisStore::Stats()> stats);

 private:
  static constexpr std::size_t kAlgorithms = 6;
  static constexpr std::size_t kErrorCodes = 15;

  struct Checks {
    Counter requests;
    Histogram seconds;
  };

  // Constant after construction.
  Registry& registry_;
  std::array<std::array<Checks, 2>, kAlgorithms> checks_;  // By algorithm, then denied, allowed.
  Counter local_;
  Counter fail_open_;
  Counter deny_cache_hits_;
  std::array<Counter, 3> store_failures_;
  std::array<Counter, kErrorCodes> errors_;
  CounterFamily* rules_;
  std::array<Counter, 2> reloads_;
  std::array<Counter, 2> certificate_reloads_;
  Gauge generation_;
  std::array<Counter, 5> responses_;  // 1xx to 5xx
  Histogram redis_seconds_;
};

// The algorithm as the API and the label write it: "TOKEN_BUCKET".
std::string_view UpperName(Algorithm algorithm);

}  // namespace sluice::telemetry
