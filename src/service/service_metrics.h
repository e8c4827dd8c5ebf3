// SPDX-License-Identifier: Apache-2.0
// The metrics of the service; docs/reference/metrics.md explains each. Keys of clients are never
// labels.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/algorithms.h"
#include "sluice/limit.h"
#include "sluice/memory_store.h"
#include "sluice/redis_store.h"
#include "sluice/store.h"
#include "telemetry/metrics.h"

namespace sluice::service {

using telemetry::Counter;
using telemetry::CounterFamily;
using telemetry::Gauge;
using telemetry::Histogram;
using telemetry::Labels;
using telemetry::Registry;

enum class RuleOutcome : std::uint8_t { kAllowed, kDenied, kShadowDenied, kError };
// What happened to a hold. An expired one may still be settled, which is late.
enum class HoldEvent : std::uint8_t {
  kMade,
  kSettled,
  kReleased,
  kExtended,
  kExpired,
  kLate,
  kOverdrawn,
};
enum class Standing : std::uint8_t { kCounts, kShadow };  // Whether a limit can deny.
enum class ReloadResult : std::uint8_t { kOk, kInvalid };

// A rule's counters, kept in the catalog next to the rule: counting takes no lock.
class RuleMetrics {
 public:
  RuleMetrics() = default;
  void Count(RuleOutcome outcome) const { set_[static_cast<std::size_t>(outcome)].Add(); }
  void Count(HoldEvent event) const { holds_[static_cast<std::size_t>(event)].Add(); }

 private:
  friend class ServiceMetrics;
  RuleMetrics(CounterFamily::Set set, CounterFamily::Set holds) : set_(set), holds_(holds) {}
  CounterFamily::Set set_;
  CounterFamily::Set holds_;
};

// The outcome for a descriptor of the Rate Limit Service. Near: it passed, and at least four fifths
// of its limit are used.
enum class RlsOutcome : std::uint8_t { kOk, kNear, kOver, kShadowOver, kError };

// A descriptor's counters, like RuleMetrics for a rule.
class RlsMetrics {
 public:
  RlsMetrics() = default;
  void Count(RlsOutcome outcome) const { set_[static_cast<std::size_t>(outcome)].Add(); }

 private:
  friend class ServiceMetrics;
  explicit RlsMetrics(CounterFamily::Set set) : set_(set) {}
  CounterFamily::Set set_;
};

// Every code that an answer of any door can have.
inline constexpr std::array kErrorCodes = {
    // From stores and rules; see ErrorCode.
    "INVALID_KEY", "INVALID_COST", "COST_EXCEEDS_LIMIT", "INVALID_TIME", "INVALID_REQUEST",
    "INVALID_INPUT", "STORE_FULL", "NOT_FOUND", "IO", "UNAVAILABLE", "OUTCOME_UNKNOWN",
    "ACCESS_DENIED", "STORE_ERROR", "FOREIGN_STATE", "INVALID_LIMIT", "HOLD_LOST", "HOLD_CONFLICT",
    "NEEDS_HOLD", "TOO_MANY_HOLDS",
    // From the HTTP APIs.
    "INVALID_QUERY", "INVALID_ALGORITHM", "INVALID_PERMITS", "INVALID_MODE", "INVALID_LEVEL",
    "METHOD_NOT_ALLOWED", "PRECONDITION_FAILED", "UNAUTHORIZED", "FORBIDDEN", "CONFLICT",
    // For invalid HTTP requests.
    "BAD_REQUEST", "REQUEST_TIMEOUT", "BODY_TOO_LARGE", "TARGET_TOO_LONG", "HEADERS_TOO_LARGE",
    "EXPECTATION_FAILED", "NOT_IMPLEMENTED", "VERSION_NOT_SUPPORTED",
    // The first words of RESP errors.
    "ERR", "NOAUTH", "WRONGPASS", "NOPROTO",
    // The other gRPC statuses.
    "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "INTERNAL",
    "UNAUTHENTICATED", "ALREADY_EXISTS", "FAILED_PRECONDITION"};

// Every method may be called from any thread; unless noted, each costs nanoseconds.
class ServiceMetrics {
 public:
  static constexpr std::size_t kRulesMax = 4000;
  static constexpr std::size_t kHoldRulesMax = 1000;  // Whose holds are counted for each.
  // Further descriptors are counted together, as "other".
  static constexpr std::size_t kDescriptorsMax = 1000;

  struct Options {
    std::string_view version = "unknown";

    // Further rules are counted together, as "other". At most kRulesMax.
    std::size_t rules_max = 1000;
  };

  // The registry outlives it. All series except those of rules exist from now on, with 0.
  ServiceMetrics(Registry& registry, const Options& options);
  explicit ServiceMetrics(Registry& registry) : ServiceMetrics(registry, Options{}) {}
  ServiceMetrics(const ServiceMetrics&) = delete;
  ServiceMetrics& operator=(const ServiceMetrics&) = delete;

  // A client's request was decided by a limit of this algorithm, and took this long.
  void RequestDecided(Algorithm algorithm, bool allowed, std::chrono::nanoseconds duration) const {
    const Requests& requests = requests_[static_cast<std::size_t>(algorithm)][allowed ? 1 : 0];
    requests.count.Add();
    requests.seconds.Observe(duration);
  }

  // The same, without asking the store: it costs more than can ever be granted.
  void RequestNeverGranted(Algorithm algorithm) const {
    requests_[static_cast<std::size_t>(algorithm)][0].count.Add();
  }

  // The same, without a limit: none applied, or a rule refuses the request by itself.
  void RequestDecidedWithoutLimit(bool allowed) const { without_limit_[allowed ? 1 : 0].Add(); }

  // One limit of a request was checked, and would have allowed it or not.
  void LimitChecked(Algorithm algorithm, bool allowed, Standing standing) const {
    limits_[static_cast<std::size_t>(standing)][static_cast<std::size_t>(algorithm)]
           [allowed ? 1 : 0]
               .Add();
  }

  // Something happened to a hold; rules count it, too.
  void Hold(HoldEvent event) const { holds_[static_cast<std::size_t>(event)].Add(); }

  // A request was answered without its store. Does nothing for kStore; counts kDenyCache.
  void Decided(Source source) const;

  // The store failed a charge with this policy.
  void StoreFailed(OnStoreFailure policy) const {
    store_failures_[static_cast<std::size_t>(policy)].Add();
  }

  // A request was answered with this error, one of kErrorCodes. Called where the answer is made.
  void Failed(std::string_view code) const;

  // Takes a lock: call it when rules are compiled, and keep the result.
  RuleMetrics Rule(std::string_view rule_set, std::string_view rule) const;

  // Forgets all rules except these pairs of rule set and rule. Takes a lock.
  void RetainRules(std::span<const std::pair<std::string_view, std::string_view>> rules) const;

  // The same for descriptors of the Rate Limit Service: pairs of a domain and a descriptor's path.
  RlsMetrics Descriptor(std::string_view domain, std::string_view path) const;
  void RetainDescriptors(
      std::span<const std::pair<std::string_view, std::string_view>> descriptors) const;

  // The generation is used only if the result is kOk.
  void Reloaded(ReloadResult result, std::int64_t generation) const;

  // The certificate of a door was reloaded, or could not be.
  void CertificateReloaded(ReloadResult result) const {
    certificate_reloads_[static_cast<std::size_t>(result)].Add();
  }

  // The tokens of a door were reloaded, or could not be.
  void TokensReloaded(ReloadResult result) const {
    token_reloads_[static_cast<std::size_t>(result)].Add();
  }

  void HttpResponse(int status) const;

  // A call to Redis was answered, or given up, after this time.
  void RedisCall(std::chrono::nanoseconds duration) const { redis_seconds_.Observe(duration); }

  struct Connections {
    std::uint64_t open = 0;
    std::uint64_t accepted = 0;
    std::uint64_t refused = 0;
    std::uint64_t accept_errors = 0;
    std::uint64_t handshakes_failed = 0;
  };

  // The rule sets that the admin API manages.
  struct ManagedRules {
    bool ready = false;
    bool store_works = false;
    std::int64_t revision = 0;
    std::uint64_t restored = 0;
    std::uint64_t keep_failures = 0;
    std::size_t rejected = 0;
    std::vector<std::string> rejected_names;  // A bounded number of them.
  };

  // Numbers that doors and stores keep themselves; the callbacks run when metrics are read. Call
  // each once.
  void WatchConnections(std::string_view door, std::function<Connections()> connections);
  void WatchRules(std::function<ManagedRules()> rules);
  void WatchMemory(std::function<MemoryStore::Stats()> stats);
  // `by_rule` has pairs of rule set and rule, as LiveHolds does.
  void WatchHolds(
      std::function<std::size_t()> live,
      std::function<std::map<std::pair<std::string, std::string>, std::size_t>()> by_rule);
  void WatchRedis(std::function<RedisStore::Stats()> stats);

 private:
  void AddRequests();

  struct Requests {
    Counter count;
    Histogram seconds;
  };
  // By algorithm, then denied or allowed.
  template <typename T>
  using ByDecision = std::array<std::array<T, 2>, core::kAlgorithmCount>;

  // Constant after construction.
  Registry& registry_;
  ByDecision<Requests> requests_;
  std::array<Counter, 2> without_limit_;
  std::array<ByDecision<Counter>, 2> limits_;  // By standing.
  Counter local_;
  Counter overload_;
  Counter fail_open_;
  Counter deny_cache_hits_;
  std::array<Counter, 3> store_failures_;
  std::array<Counter, kErrorCodes.size()> errors_;
  std::array<Counter, 7> holds_;  // By event.
  CounterFamily* rules_;
  CounterFamily* rule_holds_;
  CounterFamily* descriptors_;
  std::array<Counter, 2> reloads_;
  std::array<Counter, 2> certificate_reloads_;
  std::array<Counter, 2> token_reloads_;
  Gauge generation_;
  std::array<Counter, 5> responses_;  // 1xx to 5xx
  Histogram redis_seconds_;
};

// The algorithm as in the API and in labels: "TOKEN_BUCKET".
inline std::string_view UpperName(Algorithm algorithm) { return core::RowOf(algorithm).upper_name; }

}  // namespace sluice::service
