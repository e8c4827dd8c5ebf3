// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "api/identity.h"
#include "api/reply.h"
#include "http/message.h"
#include "http/server.h"
#include "service/engine.h"
#include "service/rate_limit_fields.h"

namespace sluice::api {

// /api/v1/holds. Only for callers who may take from any budget: a hold's id says which ones it is
// on, and is not signed.
class HoldApi {
 public:
  HoldApi(service::Engine& engine, const Instruments& instruments, const ClientOptions& clients,
          OnStoreFailure on_store_failure, service::BandFields band_fields)
      : engine_(engine),
        instruments_(instruments),
        clients_(clients),
        on_store_failure_(on_store_failure),
        band_fields_(band_fields) {}

  // POST /api/v1/holds: 201, or 429.
  void Make(const http::Request& request, http::Exchange exchange) const;

  // POST /api/v1/holds/{id}/settle, DELETE /api/v1/holds/{id}, POST /api/v1/holds/{id}/extend.
  void Settle(std::string_view id, const http::Request& request, http::Exchange exchange) const;
  void Release(std::string_view id, const http::Request& request, http::Exchange exchange) const;
  void Extend(std::string_view id, const http::Request& request, http::Exchange exchange) const;

 private:
  struct RuleHold;
  struct LimitHold;
  struct Change;

  void AnswerRules(RuleHold& hold, TimePoint now) const;
  void AnswerLimit(LimitHold& hold, TimePoint now) const;
  std::unique_ptr<Change> Open(std::string_view id, const http::Request& request,
                               http::Exchange exchange) const;
  void Run(std::unique_ptr<Change> change) const;

  service::Engine& engine_;
  const Instruments& instruments_;
  const ClientOptions& clients_;
  const OnStoreFailure on_store_failure_;
  const service::BandFields band_fields_;
};

}  // namespace sluice::api
