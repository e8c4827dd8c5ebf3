// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace sluice::rules {

// Appends the SHA-256 of a text, in hexadecimal digits.
void AppendDigest(std::string& out, std::string_view text);

}  // namespace sluice::rules
