// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace sluice {

// Rules have none that is longer, and a longer one matches nothing.
inline constexpr std::size_t kGlobBytesMax = 1024;

// Whether the text is what the pattern says, in which each `*` stands for any characters, also
// none. Takes time for the sum of both lengths, whatever they hold, and allocates nothing.
bool GlobMatch(std::string_view pattern, std::string_view text);

}  // namespace sluice
