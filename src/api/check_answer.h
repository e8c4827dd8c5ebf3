// SPDX-License-Identifier: Apache-2.0
// What POST /api/v1/check answers.
#pragma once

#include <string_view>

#include "base/json_writer.h"
#include "service/rule_check.h"

namespace sluice::api {

// "Request allowed" and so on; the check has decided.
std::string_view MessageOf(const service::RuleCheck& check);

// The whole answer, inside an object; the check has decided.
void AppendCheck(JsonWriter& json, const service::RuleCheck& check);

}  // namespace sluice::api
