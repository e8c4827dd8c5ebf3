// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "daemon/guard.h"
#include "daemon/heartbeat.h"
#include "daemon/outage.h"
#include "daemon/periodic.h"
#include "daemon/redis_probe.h"
#include "daemon/snapshot_lock.h"
#include "redis/client.h"
#include "redis/uri.h"
#include "sluice/guarded_store.h"
#include "sluice/memory_store.h"
#include "sluice/redis_store.h"
#include "telemetry/trace.h"

namespace sluice::daemon {
namespace {

using config::Settings;

// Nothing to install: state in this process, kept over restarts if there is a snapshot file.
class MemoryBackend final : public Backend {
 public:
  static Expected<std::unique_ptr<Backend>> Open(const Settings& settings, const Parts& parts) {
    const MemoryStore::Options options{.clock = &parts.clock,
                                       .keys_max = settings.memory.keys_max,
                                       .log_entries_max = settings.memory.log_entries_max};
    std::unique_ptr<MemoryStore> store;
    std::optional<SnapshotLock> lock;
    if (!settings.memory.snapshot_file.empty()) {
      auto taken = SnapshotLock::Take(settings.memory.snapshot_file);
      if (!taken) return std::unexpected(taken.error());
      lock.emplace(*std::move(taken));
      const std::string& file = lock->file();
      auto restored = MemoryStore::Restore(file, options);
      if (restored) {
        store = *std::move(restored);
        const MemoryStore::Stats stats = store->GetStats();
        parts.logger.Info("state restored", {{"file", file}, {"keys", stats.keys}});
        if (stats.dropped_ahead > 0) {
          parts.logger.Warn(
              "states were not restored: a clock that was ahead at the time has written them, and "
              "would have kept their keys waiting",
              {{"file", file}, {"keys", stats.dropped_ahead}});
        }
      } else if (restored.error().code == ErrorCode::kSnapshotDamaged) {
        parts.logger.Error("the snapshot is damaged and was set aside; starting empty",
                           {{"file", file}, {"error", restored.error().message}});
      } else if (restored.error().code != ErrorCode::kNotFound) {
        return std::unexpected(restored.error());
      }
    }
    if (!store) store = std::make_unique<MemoryStore>(options);
    return std::make_unique<MemoryBackend>(settings, parts, std::move(lock), std::move(store));
  }

  MemoryBackend(const Settings& settings, const Parts& parts, std::optional<SnapshotLock> lock,
                std::unique_ptr<MemoryStore> store)
      : settings_(settings.memory),
        logger_(parts.logger),
        lock_(std::move(lock)),
        store_(std::move(store)),
        clock_(parts.clock),
        guard_(*store_, GuardOptions(settings, parts.logger, parts.clock)) {
    parts.metrics.WatchMemory([this] { return store_->GetStats(); });
    AddGuardMetrics(parts.registry, guard_);
    using enum telemetry::Registry::Type;
    parts.registry.AddCallback(kCounter, "sluice_snapshots_failed_total",
                               "Snapshots that could not be written.", {},
                               [this] { return static_cast<double>(SnapshotState().failures); });
    parts.registry.AddCallback(
        kCounter, "sluice_snapshot_states_dropped_total",
        "States that were not restored since they lay too far ahead of the clock.", {},
        [this] { return static_cast<double>(store_->GetStats().dropped_ahead); });
    parts.registry.AddCallback(
        kGauge, "sluice_snapshot_saved_seconds",
        "When a snapshot was last written, as Unix time; 0 before the first.", {}, [this] {
          const TimePoint saved_at = SnapshotState().saved_at.value_or(TimePoint{});
          return std::chrono::duration<double>(saved_at.time_since_epoch()).count();
        });
  }

  // Behind a guard, like Redis: that has the policies and their metrics, though nothing that
  // clients do makes a check in memory fail.
  Store& store() override { return guard_; }

  void Start() override {
    if (!lock_) return;
    snapshots_.emplace(settings_.snapshot_interval, Periodic::First::kAfterInterval,
                       [this] { Save(); });
  }

  void Finish() override {
    snapshots_.reset();
    if (lock_) Save();
  }

  api::Health::Store Health() const override {
    api::Health::Store health{.kind = "memory"};
    if (lock_) health.snapshot = SnapshotState();
    return health;
  }
  std::string Description() const override { return "memory"; }
  std::string GuardStatus() const override { return "null"; }
  void ForgetDenials() override { guard_.ForgetDenials(); }

 private:
  void Save() {
    const auto saved = store_->Save(lock_->file());
    {
      const std::scoped_lock lock(mutex_);
      snapshot_.problem = saved ? "" : saved.error().message;
      if (saved) {
        snapshot_.saved_at = clock_.Now();
      } else {
        ++snapshot_.failures;
      }
    }
    if (saved) return;
    logger_.Error("the snapshot was not written; the last one stays",
                  {{"file", lock_->file()}, {"error", saved.error().message}});
  }

  api::Health::Snapshot SnapshotState() const {
    const std::scoped_lock lock(mutex_);
    return snapshot_;
  }

  const Settings::Memory settings_;
  telemetry::Logger& logger_;
  const std::optional<SnapshotLock> lock_;  // If there is a snapshot file.
  const std::unique_ptr<MemoryStore> store_;
  const Clock& clock_;
  GuardedStore guard_;
  mutable std::mutex mutex_;
  api::Health::Snapshot snapshot_;  // Guarded by mutex_.
  std::optional<Periodic> snapshots_;
};

// State shared through Redis, and a guard that keeps deciding when Redis is unavailable.
class RedisBackend final : public Backend {
 public:
  static Expected<std::unique_ptr<Backend>> Open(const Settings& settings, const Parts& parts) {
    const auto endpoint = redis::Endpoint::Parse(settings.store);
    if (!endpoint) return std::unexpected(endpoint.error());
    for (const std::string& warning : endpoint->warnings) parts.logger.Warn(warning);
    if (!settings.memory.snapshot_file.empty()) {
      parts.logger.Warn("memory.snapshotFile is not used: Redis keeps the state",
                        {{"file", settings.memory.snapshot_file}});
    }
    auto redis =
        RedisStore::Create({.uri = settings.store,
                            .on_call = [&metrics = parts.metrics](std::chrono::nanoseconds took) {
                              metrics.RedisCall(took);
                            }});
    if (!redis) return std::unexpected(redis.error());
    auto client = redis::Client::Create(settings.store);
    if (!client) return std::unexpected(client.error());
    return std::make_unique<RedisBackend>(settings, parts, *std::move(redis), *std::move(client),
                                          *endpoint);
  }

  RedisBackend(const Settings& settings, const Parts& parts, std::unique_ptr<RedisStore> redis,
               std::unique_ptr<redis::Client> client, const redis::Endpoint& endpoint)
      : mode_(redis::ToString(endpoint.mode)),
        outages_(parts.logger, {.lines_max = kOutageLinesMax, .interval = Outage::kLineEvery}),
        redis_(std::move(redis)),
        guard_(*redis_, GuardOptions(settings, parts.logger, parts.clock)),
        client_(std::move(client)),
        probe_(*client_, endpoint.mode, endpoint.database) {
    if (settings.guard.instances == 0) {
      const auto name = telemetry::IdSource::OfThisThread().NewRequestId();
      heartbeat_.emplace(*client_, std::string(name.text()));
    }
    parts.metrics.WatchRedis([this] { return redis_->GetStats(); });
    AddGuardMetrics(parts.registry, guard_);
    AddServerMetrics(parts.registry);
  }

  Store& store() override { return guard_; }

  // Connects to a reachable Redis before the first request; an unreachable one delays nobody.
  void Start() override {
    pings_.emplace(std::chrono::seconds{1}, Periodic::First::kAtOnce, [this] { Ping(); });
    std::unique_lock lock(mutex_);
    first_pong_.wait_for(lock, kStartWait, [this] { return latency_ || !problem_.empty(); });
  }

  void Finish() override {
    pings_.reset();
    finished_ = true;
  }

  api::Health::Store Health() const override {
    const GuardedStore::Status status = guard_.GetStatus();
    api::Health::Store health{.kind = mode_,
                              .address = redis_->Description(),
                              .breaker = std::string(ToString(status.breaker))};
    health.overloaded = status.overloaded;
    if (status.last_transition) health.breaker_reason = ToString(status.last_transition->reason);
    probe_.Describe(health);
    const std::scoped_lock lock(mutex_);
    health.reachable = latency_.has_value();
    health.latency = latency_;
    health.problem = problem_;
    return health;
  }

  std::string Description() const override { return redis_->Description(); }

  std::string GuardStatus() const override { return daemon::GuardStatus(guard_); }
  void ForgetDenials() override { guard_.ForgetDenials(); }

 private:
  // Does not wait: a Redis that hangs must not delay a shutdown.
  void Ping() {
    probe_.Ask();
    if (heartbeat_) {
      heartbeat_->Beat([this](std::int64_t instances) { guard_.SetInstances(instances); });
    }
    if (ping_under_way_.exchange(true)) return;
    redis_->Ping([this](const Expected<Micros>& latency) {
      LogOutage(latency ? "" : latency.error().message);
      const std::scoped_lock lock(mutex_);
      latency_ = latency ? std::optional(*latency) : std::nullopt;
      problem_ = latency ? "" : latency.error().message;
      ping_under_way_ = false;
      first_pong_.notify_all();
    });
  }

  // Logs whether or not anybody asks for decisions. On the store's thread.
  void LogOutage(std::string_view problem) {
    if (finished_) return;  // We closed the connection ourselves.
    const auto now = Outage::Steady::now();
    if (!problem.empty()) {
      if (!outage_.Failed(now)) return;
      outages_.Log(telemetry::LogLevel::kWarn, "Redis cannot be used",
                   {{"store", redis_->Description()}, {"error", problem}});
    } else if (const auto lasted = outage_.Worked(now)) {
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*lasted);
      outages_.Log(telemetry::LogLevel::kInfo, "Redis can be used again",
                   {{"store", redis_->Description()}, {"after_seconds", seconds.count()}});
    }
  }

  void AddServerMetrics(telemetry::Registry& registry) {
    using enum telemetry::Registry::Type;
    using Figures = redis::ServerFigures;
    const auto add = [&](telemetry::Registry::Type type, std::string_view name,
                         std::string_view help, std::int64_t Figures::* field) {
      registry.AddSamples(type, name, help, {"node"},
                          [this, field] { return probe_.Figures(field); });
    };
    add(kGauge, "sluice_redis_server_keys", "Keys of any kind in the database.", &Figures::keys);
    add(kGauge, "sluice_redis_server_memory_bytes", "Memory that Redis uses.",
        &Figures::memory_bytes);
    add(kGauge, "sluice_redis_server_memory_max_bytes",
        "Most memory that Redis may use; 0 if there is no maximum.", &Figures::memory_max_bytes);
    add(kCounter, "sluice_redis_server_expired_keys_total", "Keys that expired.",
        &Figures::expired_keys);
    add(kCounter, "sluice_redis_server_evicted_keys_total",
        "Keys that Redis evicted for want of memory.", &Figures::evicted_keys);
    add(kCounter, "sluice_redis_server_received_bytes_total",
        "Bytes that Redis received from all of its clients.", &Figures::received_bytes);
    add(kCounter, "sluice_redis_server_sent_bytes_total",
        "Bytes that Redis sent to all of its clients.", &Figures::sent_bytes);
  }

  static constexpr auto kStartWait = std::chrono::milliseconds{100};
  static constexpr std::uint16_t kOutageLinesMax = 6;  // If it comes and goes.

  const std::string mode_;

  // Also for the store's thread.
  mutable std::mutex mutex_;
  std::condition_variable first_pong_;
  std::optional<Micros> latency_;  // Guarded by mutex_.
  std::string problem_;            // Guarded by mutex_.
  std::atomic<bool> ping_under_way_ = false;
  std::atomic<bool> finished_ = false;

  // Used by the store's thread.
  telemetry::LimitedLog outages_;
  Outage outage_;

  // The guard ends first and decides what waits; then the store.
  const std::unique_ptr<RedisStore> redis_;
  GuardedStore guard_;
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

}  // namespace sluice::daemon
