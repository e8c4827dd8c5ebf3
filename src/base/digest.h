// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Appends the SHA-256 of a text as 64 hexadecimal digits. Allocates only if `out` must grow.
void AppendSha256(std::string& out, std::string_view text);

}  // namespace sluice
