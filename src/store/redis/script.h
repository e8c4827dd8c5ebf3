// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace sluice::redis {

// sluice.lua, embedded at build time.
extern const std::string_view kScript;

// The reply of SCRIPT LOAD to it.
std::string ScriptSha();

}  // namespace sluice::redis
