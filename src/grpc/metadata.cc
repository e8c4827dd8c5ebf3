// SPDX-License-Identifier: Apache-2.0
#include "grpc/metadata.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/text.h"

namespace sluice::grpc {

std::optional<std::chrono::nanoseconds> ParseTimeout(std::string_view text) {
  static constexpr std::size_t kDigitsMax = 8;
  // Eight digits can express more than nanoseconds can count.
  static constexpr std::int64_t kHoursMax = 24 * 365;
  if (text.size() < 2 || text.size() > kDigitsMax + 1) return std::nullopt;
  std::int64_t count = 0;
  for (const char digit : text.substr(0, text.size() - 1)) {
    if (digit < '0' || digit > '9') return std::nullopt;
    count = count * 10 + (digit - '0');
  }
  switch (text.back()) {
    case 'H':
      return std::chrono::hours(std::min(count, kHoursMax));
    case 'M':
      return std::chrono::minutes(count);
    case 'S':
      return std::chrono::seconds(count);
    case 'm':
      return std::chrono::milliseconds(count);
    case 'u':
      return std::chrono::microseconds(count);
    case 'n':
      return std::chrono::nanoseconds(count);
    default:
      return std::nullopt;
  }
}

bool IsGrpcContentType(std::string_view text) {
  static constexpr std::string_view kPrefix = "application/grpc";
  if (!text::EqualsIgnoreCase(text.substr(0, kPrefix.size()), kPrefix)) return false;
  std::string_view rest = text.substr(kPrefix.size());
  if (rest.starts_with('+')) {
    const std::string_view format = rest.substr(1, rest.find(';') - 1);
    if (!text::EqualsIgnoreCase(text::Trim(format), "proto")) return false;
    rest.remove_prefix(1 + format.size());
  }
  rest = text::Trim(rest);
  return rest.empty() || rest.starts_with(';');
}

}  // namespace sluice::grpc
