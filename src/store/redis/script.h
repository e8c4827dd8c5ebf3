// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace sluice::redis {

// sluice.lua, put into the program when it is built.
extern const std::string_view kScript;

}  // namespace sluice::redis
