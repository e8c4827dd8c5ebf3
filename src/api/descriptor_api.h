// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "api/reply.h"
#include "api/router.h"
#include "http/message.h"
#include "http/server.h"
#include "net/access.h"
#include "service/engine.h"

namespace sluice::api {

// The admin API of the Rate Limit Service: the limits in force, and the budget of a descriptor. Its
// parts outlive it.
class DescriptorApi {
 public:
  DescriptorApi(service::Engine& engine, const Instruments& instruments, const net::Access& access)
      : engine_(engine), instruments_(instruments), access_(access) {}

  void AddRoutes(Router& router) const;

 private:
  // As text, one line per limit, like the debug port of envoyproxy/ratelimit.
  void ReadConfig(const http::Request& request, http::Exchange exchange) const;

  // The query has the entries of the descriptor, in order: ?area=login&remote_address=192.0.2.1
  void Inspect(const http::Request& request, http::Exchange exchange,
               std::string_view domain) const;
  void Reset(const http::Request& request, http::Exchange exchange, std::string_view domain) const;

  service::Engine& engine_;
  const Instruments& instruments_;
  const net::Access& access_;
};

}  // namespace sluice::api
