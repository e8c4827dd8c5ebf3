// SPDX-License-Identifier: Apache-2.0
// The answer of POST /api/v1/check.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "service/rate_limit_fields.h"
#include "service/rule_check.h"

namespace sluice::api {

// "Request allowed" and so on; call it after Run.
std::string_view MessageOf(const service::RuleCheck& check);

// The limits that counted, for the header fields; call it after Run.
std::vector<service::Policy> PoliciesOf(const service::RuleCheck& check);

// The header fields of the answer; call it after Run.
void AppendFields(std::string& headers, const service::RuleCheck& check,
                  std::span<const service::Policy> policies, TimePoint now,
                  service::BandFields band_fields);

// The whole answer, inside an object; call it after Run.
void AppendCheck(JsonWriter& json, const service::RuleCheck& check);

}  // namespace sluice::api
