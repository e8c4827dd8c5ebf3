// SPDX-License-Identifier: Apache-2.0
// The bodies of requests about holds.
#pragma once

#include <boost/json/value.hpp>
#include <optional>
#include <string_view>

#include "api/check_document.h"
#include "service/hold_call.h"
#include "sluice/error.h"
#include "sluice/store.h"

namespace sluice::api {

// POST /api/v1/holds: a check of a rule set, or a limit and a key, and what the hold is like. Views
// into a JSON document.
struct HoldDocument {
  CheckDocument check;  // Its rule set is empty if a limit is named.
  std::string_view limit;
  std::string_view key;
  std::string_view id;
  std::optional<Micros> ttl;
  std::optional<OnExpiry> on_expiry;

  // Errors: as CheckDocument::Read.
  static Expected<HoldDocument> Read(boost::json::value& json);
};

// POST /api/v1/holds/{id}/settle: {"permits": 250}, {"permits": {"tokens": 250}}, or nothing: what
// was held. Errors: as above, and those of HoldCall::Settle.
Expected<void> ReadSettle(service::HoldCall& call, std::string_view body);

// POST /api/v1/holds/{id}/extend: {"ttl": "30s"}, or nothing: as long as it was made for.
Expected<void> ReadExtend(service::HoldCall& call, std::string_view body);

// "30s", from kHoldTtlMin to kHoldTtlMax; nothing for null. Error: kInvalidInput.
Expected<std::optional<Micros>> ReadTtl(const boost::json::value& value);

}  // namespace sluice::api
