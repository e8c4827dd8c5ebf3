// SPDX-License-Identifier: Apache-2.0
// Logs who changed what through the admin API.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "http/message.h"
#include "net/access.h"
#include "reload/keeper.h"
#include "sluice/store.h"
#include "telemetry/log.h"

namespace sluice::api {

// Who asks for a change.
struct Author {
  std::string caller;   // The token's name; "token" if it has none, "local" without tokens.
  std::string address;  // The other end of the connection.

  static Author Of(const http::Request& request, const net::Access& access);
};

struct AuditedChange {
  std::string_view action;  // "replaced"
  std::string_view target;  // "rule set api"
  std::string_view before;
  std::string_view after;
};

// Logs at level info. The caller must leave secrets out of targets and states.
void LogChange(telemetry::Logger& logger, const Author& author, std::string_view request_id,
               const AuditedChange& change);

// Logs a reset: how many of the budgets were used, as far as known.
void LogReset(telemetry::Logger& logger, const Author& author, std::string_view request_id,
              std::string_view target, std::span<const Request> resets);

// Logs a change of a rule set: hash, number of rules, and the rules that differ with their bands.
// Overrides are not shown: they may contain secrets.
void LogChange(telemetry::Logger& logger, const Author& author, std::string_view request_id,
               std::string_view action, std::string_view id,
               const reload::Keeper::Outcome& outcome);

}  // namespace sluice::api
