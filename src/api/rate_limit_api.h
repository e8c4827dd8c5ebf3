// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "api/caller.h"
#include "api/identity.h"
#include "api/reply.h"
#include "http/message.h"
#include "http/server.h"
#include "service/engine.h"
#include "service/service_metrics.h"
#include "sluice/limit.h"

namespace sluice::api {

// The names of the states of these checks: for a key that a caller names, and for an address.
std::string_view NamedState(Algorithm algorithm);
std::string_view AddressState(Algorithm algorithm);

// Whether a caller may name this key, and why not.
bool IsValidKey(std::string_view key);
Error InvalidKey(std::string_view key);

// /api/v1/rate-limit: one limit, chosen by its algorithm, and one key.
class RateLimitApi {
 public:
  RateLimitApi(service::Engine& engine, const Instruments& instruments,
               const ClientOptions& clients, OnStoreFailure on_store_failure)
      : engine_(engine),
        instruments_(instruments),
        clients_(clients),
        on_store_failure_(on_store_failure) {}

  // Anonymous callers may not name a key.
  void Check(const http::Request& request, http::Exchange exchange, Caller caller) const;
  void Remaining(const http::Request& request, http::Exchange exchange, Caller caller) const;
  // Not for anonymous callers.
  void Reset(const http::Request& request, http::Exchange exchange) const;

 private:
  struct Call;

  // Reads the query; answers, and returns null, if it is wrong.
  std::unique_ptr<Call> Read(const http::Request& request, http::Exchange exchange,
                             Caller caller) const;
  void Answer(Call& call) const;

  service::Engine& engine_;
  const Instruments& instruments_;
  const ClientOptions& clients_;
  const OnStoreFailure on_store_failure_;
};

}  // namespace sluice::api
