// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace sluice::service {

// Stands for an API key where people read: a secret of whoever has it.
inline constexpr std::string_view kHiddenApiKey = "apikey:***";

inline constexpr std::string_view kApiKeyPrefix = "apikey:";

}  // namespace sluice::service
