// SPDX-License-Identifier: Apache-2.0
// Who changed what through the admin API, as lines of the log.
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

// Whoever asks for a change.
struct Author {
  std::string caller;   // The name of the token; "token" if it has none, "local" without tokens.
  std::string address;  // Where the connection comes from.

  static Author Of(const http::Request& request, const net::Access& access);
};

struct AuditedChange {
  std::string_view action;  // "replaced"
  std::string_view target;  // "rule set api"
  std::string_view before;
  std::string_view after;
};

// At info, and whatever it takes it says no secret: targets and states are given without any.
void LogChange(telemetry::Logger& logger, const Author& author, std::string_view request_id,
               const AuditedChange& change);

// Of budgets that were reset: for each, whether anything was used, if that is known.
void LogReset(telemetry::Logger& logger, const Author& author, std::string_view request_id,
              std::string_view target, std::span<const Request> resets);

// Of a rule set: hash, number of rules and, of rules that differ, what they are and their bands.
// Overrides are not shown: they may name secrets.
void LogChange(telemetry::Logger& logger, const Author& author, std::string_view request_id,
               std::string_view action, std::string_view id,
               const reload::Keeper::Outcome& outcome);

}  // namespace sluice::api
