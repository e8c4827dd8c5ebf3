// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "api/caller.h"
#include "api/identity.h"
#include "api/reply.h"
#include "http/message.h"
#include "http/server.h"
#include "service/engine.h"
#include "service/rate_limit_fields.h"
#include "service/service_metrics.h"

namespace sluice::api {

// Checks against rule sets: described in JSON, or by what a proxy forwards.
class RuleApi {
 public:
  RuleApi(service::Engine& engine, const Instruments& instruments, const ClientOptions& clients,
          service::BandFields band_fields)
      : engine_(engine), instruments_(instruments), clients_(clients), band_fields_(band_fields) {}

  // POST /api/v1/check. Anonymous callers may ask only about themselves.
  void Check(const http::Request& request, http::Exchange exchange, Caller caller) const;

  // POST /api/v1/check/batch. All are refused if an anonymous caller may not ask one of them.
  void CheckBatch(const http::Request& request, http::Exchange exchange, Caller caller) const;

  // /api/v1/authorize/{ruleSet}, with any method: 200, or 429. With ?mode=nginx a denial is 403,
  // because nginx accepts nothing else, and X-Sluice-Status says 429.
  void Authorize(std::string_view rule_set, const http::Request& request,
                 http::Exchange exchange) const;

 private:
  service::Engine& engine_;
  const Instruments& instruments_;
  const ClientOptions& clients_;
  const service::BandFields band_fields_;
};

}  // namespace sluice::api
