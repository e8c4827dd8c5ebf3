// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace sluice::redis {

// sluice.lua, put into the program when it is built.
extern const std::string_view kScript;

// What SCRIPT LOAD answers to it.
std::string ScriptSha();

}  // namespace sluice::redis
