// SPDX-License-Identifier: Apache-2.0
#include "cli/backend.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "cli/heartbeat.h"
#include "cli/periodic.h"
#include "cli/redis_probe.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "redis/client.h"
#include "redis/uri.h"
#include "service/timed_store.h"
#include "sluice/guarded_store.h"
#include "sluice/memory_store.h"
#include "sluice/redis_store.h"
#include "telemetry/trace.h"

namespace sluice::cli {
namespace {

using config::Settings;
using telemetry::BreakerState;

// Nothing to install: state in this process, over restarts if there is a snapshot file.
class MemoryBackend final : public Backend {
 public:
  static Expected<std::unique_ptr<Backend>> Open(const Settings& settings, const Parts& parts) {
    const MemoryStore::Options options{.keys_max = settings.memory.keys_max,
                                       .log_entries_max = settings.memory.log_entries_max};
    const std::string& file = settings.memory.snapshot_file;
    std::unique_ptr<MemoryStore> store;
    if (!file.empty()) {
      auto restored = MemoryStore::Restore(file, options);
      if (restored) {
        store = *std::move(restored);
        parts.logger.Info("state restored", {{"file", file}, {"keys", store->GetStats().keys}});
      } else if (restored.error().code == ErrorCode::kSnapshotDamaged) {
        parts.logger.Error("the snapshot is damaged and was set aside; starting empty",
                           {{"file", file}, {"error", restored.error().message}});
      } else if (restored.error().code != ErrorCode::kNotFound) {
        return std::unexpected(restored.error());
      }
      if (auto writable = CheckWritable(file); !writable) return std::unexpected(writable.error());
    }
    if (!store) store = std::make_unique<MemoryStore>(options);
    return std::make_unique<MemoryBackend>(settings, parts, std::move(store));
  }

  MemoryBackend(const Settings& settings, const Parts& parts, std::unique_ptr<MemoryStore> store)
      : settings_(settings.memory), logger_(parts.logger), store_(std::move(store)) {
    parts.metrics.WatchMemory([this] { return store_->GetStats(); });
  }

  Store& store() override { return *store_; }

  void Start() override {
    if (settings_.snapshot_file.empty()) return;
    snapshots_.emplace(settings_.snapshot_interval, [this] { Save(); });
  }

  void Finish() override {
    snapshots_.reset();
    if (!settings_.snapshot_file.empty()) Save();
  }

  api::Health::Store Health() const override { return {.kind = "memory"}; }
  std::string Description() const override { return "memory"; }
  std::string GuardStatus() const override { return "null"; }

 private:
  // Better now than when it is needed. Saving writes beside the file, and so does this.
  static Expected<void> CheckWritable(const std::string& file) {
    const std::string beside = file + ".tmp";
    errno = 0;
    const bool opened = std::ofstream(beside).good();
    if (!opened) {
      return std::unexpected(
          Error{ErrorCode::kIo, text::Cat("cannot write the snapshot ", text::Quote(file), ": ",
                                          std::generic_category().message(errno))});
    }
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    return {};
  }

  void Save() {
    const auto saved = store_->Save(settings_.snapshot_file);
    if (saved) return;
    logger_.Error("the snapshot was not written; the last one stays",
                  {{"file", settings_.snapshot_file}, {"error", saved.error().message}});
  }

  const Settings::Memory settings_;
  telemetry::Logger& logger_;
  const std::unique_ptr<MemoryStore> store_;
  std::optional<Periodic> snapshots_;
};

GuardedStore::Options GuardOptions(const Settings& settings) {
  const Settings::Guard& guard = settings.guard;
  GuardedStore::Options options;
  options.deadline = guard.deadline;
  options.in_flight_max = static_cast<std::size_t>(guard.in_flight_max);
  options.breaker.window = guard.window;
  options.breaker.minimum_calls = guard.calls_min;
  options.breaker.failure_percent = guard.failure_percent;
  options.breaker.slow_percent = guard.slow_percent;
  options.breaker.slow_after = guard.slow_after;
  options.breaker.open_min = guard.open_min;
  options.breaker.open_max = guard.open_max;
  options.breaker.probe_deadline = guard.deadline;
  options.instances = std::max<std::int64_t>(guard.instances, 1);
  options.local = {.keys_max = settings.memory.keys_max,
                   .log_entries_max = settings.memory.log_entries_max};
  options.deny_cache_entries = static_cast<std::size_t>(guard.deny_cache_entries);
  return options;
}

BreakerState MetricOf(GuardedStore::BreakerState state) {
  switch (state) {
    case GuardedStore::BreakerState::kClosed:
      return BreakerState::kClosed;
    case GuardedStore::BreakerState::kHalfOpen:
      return BreakerState::kHalfOpen;
    case GuardedStore::BreakerState::kOpen:
      break;
  }
  return BreakerState::kOpen;
}

// State shared through Redis, and a guard that keeps deciding when it is not there.
class RedisBackend final : public Backend {
 public:
  static Expected<std::unique_ptr<Backend>> Open(const Settings& settings, const Parts& parts) {
    const auto endpoint = redis::Endpoint::Parse(settings.store);
    if (!endpoint) return std::unexpected(endpoint.error());
    for (const std::string& warning : endpoint->warnings) parts.logger.Warn(warning);
    auto redis = RedisStore::Create({.uri = settings.store});
    if (!redis) return std::unexpected(redis.error());
    auto client = redis::Client::Create(settings.store);
    if (!client) return std::unexpected(client.error());
    return std::make_unique<RedisBackend>(settings, parts, *std::move(redis), *std::move(client),
                                          endpoint->mode);
  }

  RedisBackend(const Settings& settings, const Parts& parts, std::unique_ptr<RedisStore> redis,
               std::unique_ptr<redis::Client> client, redis::Mode mode)
      : settings_(settings),
        logger_(parts.logger),
        metrics_(parts.metrics),
        mode_(redis::ToString(mode)),
        redis_(std::move(redis)),
        timed_(*redis_, parts.metrics),
        guard_(timed_, WithObserver(GuardOptions(settings))),
        client_(std::move(client)),
        probe_(*client_, mode) {
    if (settings.guard.instances == 0) {
      const auto name = telemetry::IdSource::OfThisThread().NewRequestId();
      heartbeat_.emplace(*client_, std::string(name.text()));
    }
    parts.metrics.WatchRedis([this] { return redis_->GetStats(); });
    AddGuardMetrics(parts.registry);
  }

  Store& store() override { return guard_; }

  void Start() override {
    Ping();
    pings_.emplace(std::chrono::seconds{1}, [this] { Ping(); });
  }

  void Finish() override { pings_.reset(); }

  api::Health::Store Health() const override {
    api::Health::Store health{.kind = mode_,
                              .address = redis_->Description(),
                              .breaker = std::string(ToString(guard_.GetStatus().breaker))};
    probe_.Describe(health);
    const std::scoped_lock lock(mutex_);
    health.reachable = latency_.has_value();
    health.latency = latency_;
    health.problem = problem_;
    return health;
  }

  std::string Description() const override { return redis_->Description(); }

  std::string GuardStatus() const override {
    const GuardedStore::Status status = guard_.GetStatus();
    const GuardedStore::Stats stats = guard_.GetStats();
    std::string out;
    JsonWriter json(out);
    json.BeginObject().Field("breaker", ToString(status.breaker));
    json.Field("instances", status.instances);
    if (status.last_transition) {
      json.Key("lastTransition").BeginObject();
      json.Field("from", ToString(status.last_transition->from));
      json.Field("to", ToString(status.last_transition->to));
      json.Field("reason", ToString(status.last_transition->reason));
      json.Field("number", status.last_transition->number).EndObject();
    }
    if (status.last_failure) json.Field("lastFailure", status.last_failure->message);
    json.Field("inFlight", stats.in_flight).Field("abandoned", stats.abandoned);
    json.Field("deadlineMisses", stats.deadline_misses);
    json.Field("storeFailures", stats.store_failures);
    json.Field("breakerRejections", stats.breaker_rejections);
    json.Field("failedClosed", stats.failed_closed).Field("failedOpen", stats.failed_open);
    json.Field("localAllowed", stats.local_allowed).Field("localDenied", stats.local_denied);
    json.Field("statesToReport", stats.states_to_report);
    json.Field("denyCacheEntries", stats.deny_cache_entries);
    json.Field("denyCacheHits", stats.deny_cache_hits).EndObject();
    return out;
  }

 private:
  GuardedStore::Options WithObserver(GuardedStore::Options options) {
    options.on_transition = [this](const GuardedStore::Transition& transition) {
      metrics_.SetBreaker(MetricOf(transition.to));
      const auto level = transition.to == GuardedStore::BreakerState::kClosed
                             ? telemetry::LogLevel::kInfo
                             : telemetry::LogLevel::kWarn;
      logger_.Log(level, "circuit breaker",
                  {{"from", ToString(transition.from)},
                   {"to", ToString(transition.to)},
                   {"reason", ToString(transition.reason)},
                   {"calls", transition.calls},
                   {"failures", transition.failures},
                   {"slow", transition.slow},
                   {"error", transition.last_failure ? transition.last_failure->message
                                                     : std::string_view{}}});
    };
    return options;
  }

  void AddGuardMetrics(telemetry::Registry& registry) {
    const auto add = [&](telemetry::Registry::Type type, std::string_view name,
                         std::string_view help, const telemetry::Labels& labels,
                         std::int64_t GuardedStore::Stats::* field) {
      registry.AddCallback(type, name, help, labels,
                           [this, field] { return static_cast<double>(guard_.GetStats().*field); });
    };
    using enum telemetry::Registry::Type;
    using Stats = GuardedStore::Stats;
    add(kGauge, "sluice_guard_in_flight", "Decisions that wait for the store.", {},
        &Stats::in_flight);
    constexpr std::string_view kBypassed = "sluice_guard_bypassed_total";
    constexpr std::string_view kBypassedHelp = "Decisions that policy made, by why.";
    add(kCounter, kBypassed, kBypassedHelp, {{"reason", "deadline"}}, &Stats::deadline_misses);
    add(kCounter, kBypassed, kBypassedHelp, {{"reason", "failure"}}, &Stats::store_failures);
    add(kCounter, kBypassed, kBypassedHelp, {{"reason", "breaker"}}, &Stats::breaker_rejections);
    add(kCounter, kBypassed, kBypassedHelp, {{"reason", "in_flight"}},
        &Stats::in_flight_rejections);
    constexpr std::string_view kLate = "sluice_guard_late_answers_total";
    constexpr std::string_view kLateHelp = "Answers of the store after their deadline.";
    add(kCounter, kLate, kLateHelp, {{"outcome", "charged"}}, &Stats::late_charged);
    add(kCounter, kLate, kLateHelp, {{"outcome", "not_charged"}}, &Stats::late_not_charged);
    add(kCounter, kLate, kLateHelp, {{"outcome", "unknown"}}, &Stats::late_unknown);
    constexpr std::string_view kUnits = "sluice_local_units_total";
    constexpr std::string_view kUnitsHelp = "Units granted locally, and what became of them.";
    add(kCounter, kUnits, kUnitsHelp, {{"state", "granted"}}, &Stats::local_units);
    add(kCounter, kUnits, kUnitsHelp, {{"state", "reported"}}, &Stats::reported_units);
    add(kCounter, kUnits, kUnitsHelp, {{"state", "recovered"}}, &Stats::recovered_units);
    add(kCounter, kUnits, kUnitsHelp, {{"state", "charged"}}, &Stats::charged_units);
    add(kCounter, kUnits, kUnitsHelp, {{"state", "dropped"}}, &Stats::dropped_units);
    add(kGauge, "sluice_deny_cache_entries", "Denials remembered.", {}, &Stats::deny_cache_entries);
  }

  void Ping() {
    probe_.Ask();
    if (heartbeat_) {
      heartbeat_->Beat([this](std::int64_t instances) { guard_.SetInstances(instances); });
    }
    const auto answered = redis_->Ping();
    const std::scoped_lock lock(mutex_);
    if (answered) {
      latency_ = *answered;
      problem_.clear();
    } else {
      latency_.reset();
      problem_ = answered.error().message;
    }
  }

  const Settings settings_;
  telemetry::Logger& logger_;
  telemetry::ServiceMetrics& metrics_;
  const std::string mode_;

  const std::unique_ptr<RedisStore> redis_;
  service::TimedStore timed_;
  GuardedStore guard_;

  mutable std::mutex mutex_;
  std::optional<Micros> latency_;  // Guarded by mutex_.
  std::string problem_;            // Guarded by mutex_.
  const std::unique_ptr<redis::Client> client_;
  RedisProbe probe_;
  std::optional<Heartbeat> heartbeat_;
  std::optional<Periodic> pings_;
};

}  // namespace

Expected<std::unique_ptr<Backend>> Backend::Open(const Settings& settings, const Parts& parts) {
  if (settings.store == "memory") return MemoryBackend::Open(settings, parts);
  return RedisBackend::Open(settings, parts);
}

}  // namespace sluice::cli
