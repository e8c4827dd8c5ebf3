// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"

namespace sluice::api {

inline constexpr std::string_view kPermitsExpected =
    "expected a whole number from 0 to 9223372036854775807";

// The permits in a query, 1 by default; or what is wrong with them.
inline std::expected<std::int64_t, std::string> ReadPermits(std::optional<std::string_view> text) {
  if (!text) return 1;
  const auto permits = text::ParseInteger(*text);
  if (permits && *permits >= 0) return *permits;
  return std::unexpected(text::Cat("permits ", text::Quote(*text), ": ", kPermitsExpected));
}

}  // namespace sluice::api
