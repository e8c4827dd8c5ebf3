// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "service/catalog.h"
#include "sluice/store.h"

namespace sluice::telemetry {
class ServiceMetrics;
class HeavyHitters;
}  // namespace sluice::telemetry

namespace sluice::service {

// What every door asks: a store whose decisions are counted, timed and remembered, and the catalog
// of what is configured. Every method may be called from any thread.
class Engine {
 public:
  struct Parts {
    Store& store;
    telemetry::ServiceMetrics& metrics;
    telemetry::HeavyHitters& busy;    // Keys by units asked for.
    telemetry::HeavyHitters& denied;  // Keys by denials.
  };

  Engine(const Parts& parts, std::shared_ptr<const Catalog> catalog);

  // As Store::Apply: all that the requests point to stays alive until `done` has been called, which
  // may be before this returns and may be on another thread. With the memory store it always is
  // before this returns, on this thread.
  void Apply(std::span<Request> requests, std::move_only_function<void()> done);

  // As Store::Reset.
  void Reset(const Charge& charge, std::move_only_function<void(Expected<bool>)> done);

  // The current catalog; a few nanoseconds. Keep it as long as anything in it is in use.
  std::shared_ptr<const Catalog> catalog() const {
    return catalog_.load(std::memory_order_acquire);
  }
  void SetCatalog(std::shared_ptr<const Catalog> catalog) {
    catalog_.store(std::move(catalog), std::memory_order_release);
  }

 private:
  Store& store_;
  telemetry::ServiceMetrics& metrics_;
  telemetry::HeavyHitters& busy_;
  telemetry::HeavyHitters& denied_;
  std::atomic<std::shared_ptr<const Catalog>> catalog_;
};

}  // namespace sluice::service
