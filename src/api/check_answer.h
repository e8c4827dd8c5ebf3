// SPDX-License-Identifier: Apache-2.0
// The answer of POST /api/v1/check.
#pragma once

#include <string_view>

#include "base/json_writer.h"
#include "service/rule_check.h"

namespace sluice::api {

// "Request allowed" and so on; call it after Run.
std::string_view MessageOf(const service::RuleCheck& check);

// The whole answer, inside an object; call it after Run.
void AppendCheck(JsonWriter& json, const service::RuleCheck& check);

}  // namespace sluice::api
