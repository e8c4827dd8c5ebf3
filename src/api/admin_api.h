// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/audit.h"
#include "api/descriptor_api.h"
#include "api/health.h"
#include "api/key_api.h"
#include "api/reply.h"
#include "api/router.h"
#include "http/message.h"
#include "http/server.h"
#include "net/access.h"
#include "reload/keeper.h"
#include "service/engine.h"
#include "service/service_metrics.h"
#include "telemetry/heavy_hitters.h"
#include "telemetry/log.h"

namespace sluice::api {

// /admin/v1, on its own listener: rule sets, keys, and the state of the service. If there is a
// token, requests must show it. If not, only requests from this machine are answered, and none that
// a browser sends on behalf of a page.
class AdminApi final : public http::Handler {
 public:
  struct Parts {
    service::Engine& engine;
    reload::Keeper& keeper;
    telemetry::HeavyHitters& keys;
    Instruments instruments;
    std::function<Health()> health;
    // Reloads rules, certificates and tokens; everything that failed is among the problems.
    std::function<void(reload::Keeper::Done)> reload;
    std::function<std::string()> guard_status;  // A JSON object; "null" without a guard.
    const net::Access& access;                  // Open: there is no token.
  };

  explicit AdminApi(Parts parts);

  void Handle(const http::Request& request, http::Exchange exchange) override;
  void OnRefused(int status, std::string_view code) override {
    parts_.instruments.CountRefusal(status, code);
  }

  std::vector<std::string> routes() const { return router_.routes(); }

 private:
  void AddRoutes();

  // Answers, and returns false, if the request is not allowed here.
  bool Admits(const http::Request& request, http::Exchange& exchange) const;

  Author AuthorOf(const http::Request& request) const;

  void ListRuleSets(const http::Request& request, http::Exchange exchange) const;
  void ReadRuleSet(const http::Request& request, http::Exchange exchange,
                   std::string_view id) const;
  void CreateRuleSet(const http::Request& request, http::Exchange exchange) const;
  void ReplaceRuleSet(const http::Request& request, http::Exchange exchange,
                      std::string_view id) const;
  void DeleteRuleSet(const http::Request& request, http::Exchange exchange,
                     std::string_view id) const;
  enum class Switch : std::uint8_t { kOff, kOn };
  void SetEnabled(const http::Request& request, http::Exchange exchange, std::string_view id,
                  Switch to) const;
  void Validate(const http::Request& request, http::Exchange exchange) const;
  void Top(const http::Request& request, http::Exchange exchange) const;
  void Reload(const http::Request& request, http::Exchange exchange) const;
  void ReadLogLevel(const http::Request& request, http::Exchange exchange) const;
  void SetLogLevel(const http::Request& request, http::Exchange exchange) const;
  void Status(const http::Request& request, http::Exchange exchange) const;

  const Parts parts_;
  const KeyApi keys_;
  const DescriptorApi descriptors_;
  Router router_;
};

}  // namespace sluice::api
