// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sluice::text {

// "did you mean B? " if one of the names is nearly the same; otherwise empty. There is at least
// one.
std::string Suggestion(std::string_view given, std::span<const std::string_view> known);

}  // namespace sluice::text
