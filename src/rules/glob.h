// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace sluice::rules {

// Whether the text is what the pattern says, in which each `*` stands for any characters, also
// none. Takes time for the product of both lengths at most, and allocates nothing.
bool GlobMatch(std::string_view pattern, std::string_view text);

}  // namespace sluice::rules
