// SPDX-License-Identifier: Apache-2.0
#include "net/trusted_headers.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace sluice::net {

Expected<TrustedHeaders> TrustedHeaders::Parse(std::span<const std::string> names) {
  TrustedHeaders headers{
      .address = {.x_forwarded_for = false, .forwarded = false, .x_real_ip = false}};
  const std::array<std::pair<std::string_view, bool*>, 5> known = {
      {{"X-Forwarded-For", &headers.address.x_forwarded_for},
       {"X-Real-IP", &headers.address.x_real_ip},
       {"Forwarded", &headers.address.forwarded},
       {"X-User-Id", &headers.user_id},
       {"X-API-Key", &headers.api_key}}};
  for (const std::string& name : names) {
    const auto found = std::ranges::find_if(
        known, [&](const auto& each) { return text::EqualsIgnoreCase(each.first, name); });
    if (found == known.end()) {
      return std::unexpected(
          Error{ErrorCode::kInvalidInput,
                text::Cat(text::Quote(name),
                          ": expected X-Forwarded-For, X-Real-IP, Forwarded, X-User-Id or "
                          "X-API-Key")});
    }
    *found->second = true;
  }
  return headers;
}

Expected<std::vector<std::string>> ParseAttributeHeaders(std::span<const std::string> names) {
  const auto invalid = [](std::string message) {
    return std::unexpected(Error{ErrorCode::kInvalidInput, std::move(message)});
  };
  if (names.size() > kAttributeHeadersMax) {
    return invalid(text::Cat(names.size(), " headers; expected at most ", kAttributeHeadersMax));
  }
  std::vector<std::string> lower;
  for (const std::string& name : names) {
    std::string attribute;
    for (const char c : name) attribute += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    const auto is_token = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
             std::string_view("!#$%&'*+-.^_`|~").contains(c);
    };
    if (attribute.empty() || !std::ranges::all_of(attribute, is_token) || attribute == "host") {
      return invalid(text::Cat(text::Quote(name), ": expected the name of a header, but not Host"));
    }
    if (std::ranges::find(lower, attribute) == lower.end()) lower.push_back(std::move(attribute));
  }
  return lower;
}

}  // namespace sluice::net
