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

// What the admin API shows and changes of single keys. Its parts outlive it.
class KeyApi {
 public:
  KeyApi(service::Engine& engine, const Instruments& instruments, const net::Access& access)
      : engine_(engine), instruments_(instruments), access_(access) {}

  void AddRoutes(Router& router) const;

 private:
  void Inspect(const http::Request& request, http::Exchange exchange,
               std::string_view rule_set) const;
  void Reset(const http::Request& request, http::Exchange exchange,
             std::string_view rule_set) const;
  void Find(const http::Request& request, http::Exchange exchange) const;
  void ReleaseHold(const http::Request& request, http::Exchange exchange) const;

  service::Engine& engine_;
  const Instruments& instruments_;
  const net::Access& access_;
};

}  // namespace sluice::api
