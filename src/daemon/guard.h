// SPDX-License-Identifier: Apache-2.0
// The service's configuration of its guard, and what it reports about it.
#pragma once

#include <string>

#include "config/settings.h"
#include "sluice/guarded_store.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"

namespace sluice::daemon {

// Transitions of the breaker are logged.
GuardedStore::Options GuardOptions(const config::Settings& settings, telemetry::Logger& logger,
                                   const Clock& clock);

// The guard outlives the registry's last reader.
void AddGuardMetrics(telemetry::Registry& registry, const GuardedStore& guard);

// A JSON object.
std::string GuardStatus(const GuardedStore& guard);

}  // namespace sluice::daemon
