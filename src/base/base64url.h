// SPDX-License-Identifier: Apache-2.0
// Base64 with the alphabet for URLs and without padding: RFC 4648, section 5.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice::text {

void AppendBase64Url(std::string& out, std::string_view bytes);

// Nothing if the text is not exactly what AppendBase64Url writes.
std::optional<std::string> ParseBase64Url(std::string_view text);

}  // namespace sluice::text
