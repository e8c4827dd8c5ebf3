// SPDX-License-Identifier: Apache-2.0
#include "service/service_metrics.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <vector>

namespace sluice::service {
namespace {

constexpr std::array<const char*, 2> kReloadResults = {"ok", "invalid"};
constexpr std::array<const char*, 7> kHoldEvents = {"made",    "settled", "released", "extended",
                                                    "expired", "late",    "overdrawn"};
constexpr std::array<const char*, 5> kStatusClasses = {"1xx", "2xx", "3xx", "4xx", "5xx"};

// One counter per value of one label.
template <std::size_t kCount>
std::array<Counter, kCount> AddCounters(Registry& registry, std::string_view name,
                                        std::string_view help, const char* label,
                                        const std::array<const char*, kCount>& values) {
  std::array<Counter, kCount> counters;
  for (std::size_t i = 0; i < kCount; ++i) {
    counters[i] = registry.AddCounter(name, help, {{label, values[i]}});
  }
  return counters;
}

void Retain(CounterFamily& family,
            std::span<const std::pair<std::string_view, std::string_view>> pairs) {
  std::vector<std::vector<std::string_view>> sets;
  sets.reserve(pairs.size());
  for (const auto& [first, second] : pairs) sets.push_back({first, second});
  family.Retain(sets);
}

}  // namespace

ServiceMetrics::ServiceMetrics(Registry& registry, const Options& options) : registry_(registry) {
  AddRequests();

  constexpr const char* kDegradedHelp =
      "Requests decided without the store: by a local store, or let through.";
  local_ =
      registry.AddCounter("sluice_degraded_decisions_total", kDegradedHelp, {{"source", "local"}});
  overload_ = registry.AddCounter("sluice_degraded_decisions_total", kDegradedHelp,
                                  {{"source", "overload"}});
  fail_open_ = registry.AddCounter("sluice_degraded_decisions_total", kDegradedHelp,
                                   {{"source", "fail_open"}});
  for (std::size_t policy = 0; policy < store_failures_.size(); ++policy) {
    store_failures_[policy] = registry.AddCounter(
        "sluice_store_failures_total", "Charges that the store could not decide, by their policy.",
        {{"policy", std::string(ToString(static_cast<OnStoreFailure>(policy)))}});
  }
  deny_cache_hits_ = registry.AddCounter("sluice_deny_cache_hits_total",
                                         "Requests denied from memory without asking the store.");
  errors_ =
      AddCounters(registry, "sluice_errors_total",
                  "Requests that were answered with an error, by its code.", "code", kErrorCodes);

  holds_ =
      AddCounters(registry, "sluice_holds_total", "What happened to holds.", "event", kHoldEvents);
  rule_holds_ = &registry.AddFamily({.name = "sluice_rule_holds_total",
                                     .help = "What happened to holds under each rule.",
                                     .labels = {"rule_set", "rule"},
                                     .outcome_label = "event",
                                     .outcomes = {kHoldEvents.begin(), kHoldEvents.end()},
                                     .sets_max = std::min(options.rules_max, kHoldRulesMax)});
  rules_ = &registry.AddFamily({.name = "sluice_rule_decisions_total",
                                .help = "Decisions of each rule.",
                                .labels = {"rule_set", "rule"},
                                .outcome_label = "outcome",
                                .outcomes = {"allowed", "denied", "shadow_denied", "error"},
                                .sets_max = std::min(options.rules_max, kRulesMax)});
  descriptors_ = &registry.AddFamily({.name = "sluice_rls_decisions_total",
                                      .help = "Descriptors of the Rate Limit Service, by domain.",
                                      .labels = {"domain", "descriptor"},
                                      .outcome_label = "outcome",
                                      .outcomes = {"ok", "near", "over", "shadow_over", "error"},
                                      .sets_max = kDescriptorsMax});
  reloads_ = AddCounters(registry, "sluice_reloads_total", "Attempts to load new rules.", "result",
                         kReloadResults);
  certificate_reloads_ =
      AddCounters(registry, "sluice_certificate_reloads_total",
                  "Certificates read again, one for each door.", "result", kReloadResults);
  token_reloads_ =
      AddCounters(registry, "sluice_token_reloads_total",
                  "Files of tokens read again, one for each door.", "result", kReloadResults);
  generation_ = registry.AddGauge("sluice_rules_generation", "Generation of the rules in force.");

  responses_ = AddCounters(registry, "sluice_http_responses_total",
                           "HTTP answers, by class of status.", "class", kStatusClasses);

  redis_seconds_ = registry.AddHistogram("sluice_redis_call_seconds",
                                         "How long Redis took to answer a call of the script.");

  registry
      .AddGauge("sluice_build_info", "Always 1; the version is in the label.",
                {{"version", std::string(options.version)}})
      .Set(1);
}

void ServiceMetrics::AddRequests() {
  constexpr const char* kRequestsName = "rate_limiter_requests_total";
  constexpr const char* kRequestsHelp =
      "Requests, by whether they were allowed and the algorithm of the limit that decided.";
  constexpr std::array<const char*, 2> kLimitsNames = {"sluice_limit_checks_total",
                                                       "sluice_shadow_limit_checks_total"};
  constexpr std::array<const char*, 2> kLimitsHelp = {
      "Checks of single limits; a request may be under several.",
      "Checks of limits that only shadow, and never deny."};
  for (const bool allowed : {false, true}) {
    const std::size_t column = allowed ? 1 : 0;
    const auto labels = [&](std::string_view algorithm) -> Labels {
      return {{"algorithm", std::string(algorithm)}, {"allowed", allowed ? "true" : "false"}};
    };
    for (std::size_t row = 0; row < core::kAlgorithmCount; ++row) {
      const Labels own = labels(core::kAlgorithms[row].upper_name);
      Requests& requests = requests_[row][column];
      requests.count = registry_.AddCounter(kRequestsName, kRequestsHelp, own);
      requests.seconds = registry_.AddHistogram(
          "rate_limiter_check_seconds", "How long deciding a request took, with its store.", own);
      for (std::size_t standing = 0; standing < limits_.size(); ++standing) {
        limits_[standing][row][column] =
            registry_.AddCounter(kLimitsNames[standing], kLimitsHelp[standing], own);
      }
    }
    without_limit_[column] = registry_.AddCounter(kRequestsName, kRequestsHelp, labels("NONE"));
  }
}

void ServiceMetrics::Decided(Source source) const {
  switch (source) {
    case Source::kStore:
      return;
    case Source::kDenyCache:
      return deny_cache_hits_.Add();
    case Source::kLocal:
      return local_.Add();
    case Source::kOverload:
      return overload_.Add();
    case Source::kFailOpen:
      return fail_open_.Add();
  }
}

void ServiceMetrics::Failed(std::string_view code) const {
  const auto found = std::ranges::find(kErrorCodes, code);
  assert(found != kErrorCodes.end());
  if (found != kErrorCodes.end())
    errors_[static_cast<std::size_t>(found - kErrorCodes.begin())].Add();
}

RuleMetrics ServiceMetrics::Rule(std::string_view rule_set, std::string_view rule) const {
  return {rules_->With({rule_set, rule}), rule_holds_->With({rule_set, rule})};
}

void ServiceMetrics::RetainRules(
    std::span<const std::pair<std::string_view, std::string_view>> rules) const {
  Retain(*rules_, rules);
  Retain(*rule_holds_, rules);
}

RlsMetrics ServiceMetrics::Descriptor(std::string_view domain, std::string_view path) const {
  return RlsMetrics(descriptors_->With({domain, path}));
}

void ServiceMetrics::RetainDescriptors(
    std::span<const std::pair<std::string_view, std::string_view>> descriptors) const {
  Retain(*descriptors_, descriptors);
}

void ServiceMetrics::Reloaded(ReloadResult result, std::int64_t generation) const {
  reloads_[static_cast<std::size_t>(result)].Add();
  if (result == ReloadResult::kOk) generation_.Set(generation);
}

void ServiceMetrics::HttpResponse(int status) const {
  const int status_class = status / 100;
  if (status_class >= 1 && status_class <= 5) {
    responses_[static_cast<std::size_t>(status_class - 1)].Add();
  }
}

void ServiceMetrics::WatchConnections(std::string_view door,
                                      std::function<Connections()> connections) {
  const Labels labels = {{"door", std::string(door)}};
  const auto watch = [&](Registry::Type type, std::string_view name, std::string_view help,
                         std::uint64_t Connections::* field) {
    registry_.AddCallback(type, name, help, labels, [connections, field] {
      return static_cast<double>(connections().*field);
    });
  };
  using enum Registry::Type;
  watch(kGauge, "sluice_connections", "Open connections.", &Connections::open);
  watch(kCounter, "sluice_connections_accepted_total", "Connections accepted.",
        &Connections::accepted);
  watch(kCounter, "sluice_connections_refused_total",
        "Connections closed at once because there were too many.", &Connections::refused);
  watch(kCounter, "sluice_accept_errors_total",
        "Times that the system could not hand over a connection.", &Connections::accept_errors);
  watch(kCounter, "sluice_tls_handshakes_failed_total",
        "Connections on which TLS was not agreed upon.", &Connections::handshakes_failed);
}

void ServiceMetrics::WatchRules(std::function<ManagedRules()> rules) {
  using enum Registry::Type;
  const auto watch = [&](Registry::Type type, std::string_view name, std::string_view help,
                         auto ManagedRules::* field) {
    registry_.AddCallback(type, name, help, {},
                          [rules, field] { return static_cast<double>(rules().*field); });
  };
  watch(kGauge, "sluice_rules_ready", "1 once the rule sets of the rule set store are known.",
        &ManagedRules::ready);
  watch(kGauge, "sluice_rule_store_up", "1 while the rule set store can be read and is whole.",
        &ManagedRules::store_works);
  watch(kGauge, "sluice_rule_store_revision", "Changes that the rule set store has seen.",
        &ManagedRules::revision);
  watch(kCounter, "sluice_rule_store_restored_total",
        "Times that rule sets were written back which the store had lost.",
        &ManagedRules::restored);
  watch(kCounter, "sluice_rules_keep_failures_total",
        "Times that the file of kept rule sets could not be written or was damaged.",
        &ManagedRules::keep_failures);
  watch(kGauge, "sluice_rule_sets_rejected", "Documents of the rule set store not in force.",
        &ManagedRules::rejected);
  registry_.AddNames("sluice_rule_set_rejected", "1 for each of them, by name; the first hundred.",
                     "rule_set", [rules = std::move(rules)] { return rules().rejected_names; });
}

void ServiceMetrics::WatchHolds(
    std::function<std::size_t()> live,
    std::function<std::map<std::pair<std::string, std::string>, std::size_t>()> by_rule) {
  registry_.AddCallback(Registry::Type::kGauge, "sluice_holds_live",
                        "Holds made through this instance that are not over, as far as it knows.",
                        {}, [live = std::move(live)] { return static_cast<double>(live()); });
  registry_.AddSamples(
      Registry::Type::kGauge, "sluice_rule_holds_live", "The same for each rule that has any.",
      {"rule_set", "rule"}, [by_rule = std::move(by_rule)] {
        Registry::Samples samples;
        std::size_t others = 0;
        for (const auto& [rule, count] : by_rule()) {
          if (samples.size() == kHoldRulesMax) {
            others += count;
          } else {
            samples.push_back({{rule.first, rule.second}, static_cast<double>(count)});
          }
        }
        if (others > 0) {
          const std::string other(telemetry::kOtherLabel);
          samples.push_back({{other, other}, static_cast<double>(others)});
        }
        return samples;
      });
}

void ServiceMetrics::WatchMemory(std::function<MemoryStore::Stats()> stats) {
  using enum Registry::Type;
  const auto watch = [&](Registry::Type type, std::string_view name, std::string_view help,
                         std::int64_t MemoryStore::Stats::* field) {
    registry_.AddCallback(type, name, help, {},
                          [stats, field] { return static_cast<double>(stats().*field); });
  };
  watch(kGauge, "sluice_keys", "States held in memory, one for each limit of a key.",
        &MemoryStore::Stats::keys);
  watch(kGauge, "sluice_memory_bytes", "Memory of the states held.", &MemoryStore::Stats::bytes);
  watch(kGauge, "sluice_log_entries", "Room for requests held by sliding windows.",
        &MemoryStore::Stats::log_entries);
  watch(kCounter, "sluice_keys_dropped_total", "States dropped because they had recovered.",
        &MemoryStore::Stats::dropped);
  watch(kCounter, "sluice_overflow_decisions_total",
        "Checks decided on a shared state because the memory store was full.",
        &MemoryStore::Stats::overflow_decisions);
}

void ServiceMetrics::WatchRedis(std::function<RedisStore::Stats()> stats) {
  const auto watch = [&](std::string_view name, std::string_view help,
                         std::int64_t RedisStore::Stats::* field) {
    registry_.AddCallback(Registry::Type::kCounter, name, help, {},
                          [stats, field] { return static_cast<double>(stats().*field); });
  };
  watch("sluice_redis_requests_total", "Requests given to the Redis store.",
        &RedisStore::Stats::requests);
  watch("sluice_redis_calls_total", "Calls of the script; one decides many requests.",
        &RedisStore::Stats::calls);
  watch("sluice_redis_script_loads_total",
        "Times that the server did not know the function or the script.",
        &RedisStore::Stats::script_loads);
  watch("sluice_redis_connects_total", "Connections made to Redis.", &RedisStore::Stats::connects);
  watch("sluice_redis_unavailable_total", "Requests that failed and were not charged.",
        &RedisStore::Stats::unavailable);
  watch("sluice_redis_unanswered_total", "Requests that failed and may have been charged.",
        &RedisStore::Stats::unanswered);
  watch("sluice_redis_refunds_total",
        "Parts of requests over several slots of a Cluster that were given back.",
        &RedisStore::Stats::refunds);
  watch("sluice_redis_refunds_lost_total", "Those that could not be given back.",
        &RedisStore::Stats::refunds_lost);
  registry_.AddCallback(Registry::Type::kGauge, "sluice_redis_listening",
                        "1 while resets that other instances announce are heard.", {},
                        [stats] { return static_cast<double>(stats().listening); });
}

}  // namespace sluice::service
