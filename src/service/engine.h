// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "service/catalog.h"
#include "sluice/store.h"

namespace sluice::telemetry {
class HeavyHitters;
class LimitedLog;
class Logger;
class ServiceMetrics;
}  // namespace sluice::telemetry

namespace sluice::service {

// What every door asks: a store whose decisions are counted, timed and remembered, and the catalog
// of what is configured. Every method may be called from any thread.
class Engine {
 public:
  struct Parts {
    Store& store;
    telemetry::ServiceMetrics& metrics;
    telemetry::HeavyHitters& keys;  // Which are asked for most, and denied most.
    telemetry::Logger& logger;
    const Clock& clock = SystemClock();
  };

  Engine(const Parts& parts, std::shared_ptr<const Catalog> catalog);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // As Store::Apply: all that the requests point to stays alive until `done` has been called, which
  // may be before this returns and may be on another thread.
  void Apply(std::span<Request> requests, std::move_only_function<void()> done);

  // As Store::Reset.
  void Reset(const Charge& charge, std::move_only_function<void(Expected<bool>)> done);

  // Whether `done` always runs before Apply returns, on the same thread.
  bool AnswersInline() const { return store_.AnswersInline(); }

  // For what answers say about moments; limits are decided by the store's own time.
  TimePoint Now() const { return clock_.Now(); }

  // Where doors count their answers.
  const telemetry::ServiceMetrics& metrics() const { return metrics_; }

  // The current catalog; a few nanoseconds. Keep it as long as anything in it is in use.
  std::shared_ptr<const Catalog> catalog() const {
    return catalog_.load(std::memory_order_acquire);
  }
  void SetCatalog(std::shared_ptr<const Catalog> catalog) {
    catalog_.store(std::move(catalog), std::memory_order_release);
  }

 private:
  using Steady = std::chrono::steady_clock;

  void Account(std::span<const Request> requests, Steady::time_point start, Steady::time_point end);
  void AccountWithoutStore(const Request& request);
  void AccountFailure(const Request& request);

  // Constant after construction.
  Store& store_;
  telemetry::ServiceMetrics& metrics_;
  telemetry::HeavyHitters& keys_;
  telemetry::Logger& logger_;
  const Clock& clock_;

  const std::unique_ptr<telemetry::LimitedLog> degraded_;
  const std::unique_ptr<telemetry::LimitedLog> failed_;
  std::atomic<std::shared_ptr<const Catalog>> catalog_;
};

}  // namespace sluice::service
