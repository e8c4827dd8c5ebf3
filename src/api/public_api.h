// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

#include "api/rate_limit_api.h"
#include "api/router.h"
#include "api/rule_api.h"
#include "api/service_api.h"
#include "http/server.h"

namespace sluice::api {

// All that the HTTP door answers. openapi.json describes it.
class PublicApi final : public http::Handler {
 public:
  struct Parts {
    ServiceApi::Parts service;
    ClientOptions clients;
    OnStoreFailure on_store_failure = OnStoreFailure::kFailOpen;

    // POST /json, in the shape of envoyproxy/ratelimit.
    std::function<void(const http::Request&, http::Exchange)> rls_json = {};
  };

  explicit PublicApi(Parts parts);

  void Handle(const http::Request& request, http::Exchange exchange) override;
  void OnRefused(int status, std::string_view code) override {
    parts_.service.instruments.CountRefusal(status, code);
  }

  std::vector<std::string> routes() const { return router_.routes(); }

 private:
  const Parts parts_;
  const RateLimitApi rate_limits_;
  const RuleApi rules_;
  const ServiceApi service_;
  Router router_;
};

}  // namespace sluice::api
