// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace sluice {

// No rule has a longer pattern, and a longer one matches nothing.
inline constexpr std::size_t kGlobBytesMax = 1024;

// Returns whether the text matches the pattern, in which each `*` matches any characters, or none.
// Takes time linear in the sum of both lengths, whatever they hold, and allocates nothing.
bool GlobMatch(std::string_view pattern, std::string_view text);

}  // namespace sluice
