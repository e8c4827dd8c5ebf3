// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "api/health.h"
#include "api/reply.h"
#include "http/message.h"
#include "http/server.h"
#include "service/engine.h"
#include "service/service_metrics.h"
#include "telemetry/metrics.h"

namespace sluice::api {

// What operators and tools ask about the service itself: health, metrics, and its API.
class ServiceApi {
 public:
  struct Parts {
    service::Engine& engine;
    const telemetry::Registry& registry;
    Instruments instruments;
    std::function<Health()> health;  // Called from any thread; must not block.
    std::string version;
    bool tls = false;  // Whether the door uses it.
  };

  explicit ServiceApi(Parts parts) : parts_(std::move(parts)) {}

  void Metrics(const http::Request& request, http::Exchange exchange) const;

  // Liveness: the process answers. Readiness: it can decide, if need be without its store; not
  // while it drains.
  void Live(const http::Request& request, http::Exchange exchange) const;
  void Ready(const http::Request& request, http::Exchange exchange) const;
  void HealthOf(const http::Request& request, http::Exchange exchange) const;
  void Info(const http::Request& request, http::Exchange exchange) const;

  void OpenApi(const http::Request& request, http::Exchange exchange) const;
  void Docs(const http::Request& request, http::Exchange exchange) const;

 private:
  const Parts parts_;
};

}  // namespace sluice::api
