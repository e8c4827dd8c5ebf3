// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "api/health.h"
#include "config/settings.h"
#include "service/service_metrics.h"
#include "sluice/error.h"
#include "sluice/store.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"

namespace sluice::daemon {

// Where the state of the service lives, with everything that maintains it: the store, the guard
// around it, snapshots, heartbeats.
class Backend {
 public:
  struct Parts {
    telemetry::Logger& logger;
    telemetry::Registry& registry;
    service::ServiceMetrics& metrics;
    const Clock& clock;
  };

  // Errors: kInvalidInput, kIo. An unreachable Redis is not an error: it is looked for in the
  // background.
  static Expected<std::unique_ptr<Backend>> Open(const config::Settings& settings,
                                                 const Parts& parts);
  virtual ~Backend() = default;

  virtual Store& store() = 0;

  // Starts the background work.
  virtual void Start() = 0;

  // After the last request: writes what must not be lost.
  virtual void Finish() = 0;

  virtual api::Health::Store Health() const = 0;
  virtual std::string Description() const = 0;

  // A JSON object; "null" if there is nothing to report.
  virtual std::string GuardStatus() const = 0;

  // After limits have changed; see GuardedStore.
  virtual void ForgetDenials() = 0;
};

}  // namespace sluice::daemon
