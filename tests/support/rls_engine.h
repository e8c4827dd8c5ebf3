// SPDX-License-Identifier: Apache-2.0
// An engine with domains of the Rate Limit Service on a memory store, for tests.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rules/envoy.h"
#include "rules/rule_book.h"
#include "service/catalog.h"
#include "service/engine.h"
#include "service/service_metrics.h"
#include "sluice/memory_store.h"
#include "telemetry/heavy_hitters.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"

namespace sluice::test {

inline std::shared_ptr<const service::Catalog> RlsCatalog(const std::vector<std::string>& files) {
  std::vector<rules::RlsConfig::File> named;
  for (const std::string& text : files) {
    named.push_back({.name = "rls-" + std::to_string(named.size()) + ".yaml", .text = text});
  }
  auto domains = rules::RlsConfig::Parse(named);
  if (!domains) throw std::invalid_argument(domains.error().front().ToString());
  auto catalog = std::make_shared<service::Catalog>();
  catalog->domains = *std::move(domains);
  return catalog;
}

// The parts of an engine, on any store.
class RlsEngine {
 public:
  RlsEngine(Store& store, const Clock& clock, const std::vector<std::string>& files)
      : engine_(
            {.store = store, .metrics = metrics_, .keys = keys_, .logger = logger_, .clock = clock},
            RlsCatalog(files)) {}

  service::Engine& operator*() { return engine_; }
  service::Engine* operator->() { return &engine_; }
  telemetry::Registry& registry() { return registry_; }

 private:
  telemetry::Registry registry_;
  service::ServiceMetrics metrics_{registry_};
  telemetry::HeavyHitters keys_;
  telemetry::Logger logger_{{.level = telemetry::LogLevel::kOff}};
  service::Engine engine_;
};

}  // namespace sluice::test
