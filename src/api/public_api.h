// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "api/caller.h"
#include "api/hold_api.h"
#include "api/rate_limit_api.h"
#include "api/router.h"
#include "api/rule_api.h"
#include "api/service_api.h"
#include "http/server.h"
#include "net/access.h"

namespace sluice::api {

// Everything that the HTTP door answers. openapi.json describes it.
class PublicApi final : public http::Handler {
 public:
  struct Parts {
    ServiceApi::Parts service;
    ClientOptions clients;
    OnStoreFailure on_store_failure = OnStoreFailure::kFailOpen;
    const net::Access& access;  // Open: no token is needed.
    // Callers without a token get answers about themselves, instead of none.
    bool is_public = false;

    service::BandFields band_fields = service::BandFields::kNo;

    // POST /json, in the format of envoyproxy/ratelimit.
    std::function<void(const http::Request&, http::Exchange)> rls_json = {};
  };

  explicit PublicApi(Parts parts);

  void Handle(const http::Request& request, http::Exchange exchange) override;
  void OnRefused(int status, std::string_view code) override {
    parts_.service.instruments.CountRefusal(status, code);
  }

  std::vector<std::string> routes() const { return router_.routes(); }

 private:
  // Who may use a route: anyone, whoever the door lets in, or, even at a public door, only those
  // with a token or a certificate.
  enum class For : std::uint8_t { kAnyone, kCallers, kTrusted };
  using Action =
      std::function<void(const http::Request&, http::Exchange, Caller, std::string_view parameter)>;

  void Add(std::string_view method, std::string_view path, For who, Action action);
  // Nothing: the caller is refused.
  std::optional<Caller> CallerOf(const http::Request& request) const;

  const Parts parts_;
  const RateLimitApi rate_limits_;
  const RuleApi rules_;
  const HoldApi holds_;
  const ServiceApi service_;
  Router router_;
};

}  // namespace sluice::api
