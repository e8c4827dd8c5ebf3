// SPDX-License-Identifier: Apache-2.0
#include "net/listen_address.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "net/address.h"

namespace sluice::net {
namespace {

constexpr std::size_t kHostBytesMax = 253;

std::unexpected<Error> Invalid(std::string_view what, std::string_view text) {
  return std::unexpected(
      Error{ErrorCode::kInvalidInput,
            text::Cat("the address ", text::Quote(text), " ", what,
                      "; expected HOST:PORT such as 127.0.0.1:8080, [::1]:8080 or :8080")});
}

bool IsHost(std::string_view host, std::string_view also) {
  return host.size() <= kHostBytesMax && std::ranges::all_of(host, [&](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  also.find(c) != std::string_view::npos;
         });
}

std::optional<std::uint16_t> ParsePort(std::string_view text) {
  const auto number = text::ParseInteger(text);
  if (!number || text.starts_with('-') || *number > 65'535) return std::nullopt;
  return static_cast<std::uint16_t>(*number);
}

}  // namespace

Expected<ListenAddress> ListenAddress::Parse(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Invalid("has no port", text);
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) {
    host = host.substr(1, host.size() - 2);
    if (host.empty()) return Invalid("has no host in its brackets", text);
  }
  if (!IsHost(host, bracketed ? ":.%_-" : ".-_")) return Invalid("has a host that is none", text);
  const auto port = ParsePort(text.substr(colon + 1));
  if (!port) return Invalid("has a port that is not a number from 0 to 65535", text);
  return ListenAddress{.host = std::string(host), .port = *port};
}

std::string ListenAddress::ToString() const {
  const bool brackets = host.find(':') != std::string::npos;
  return text::Cat(brackets ? "[" : "", host, brackets ? "]" : "", ":", port);
}

bool ListenAddress::IsLoopback() const {
  if (text::EqualsIgnoreCase(host, "localhost")) return true;
  const auto ip = IpAddress::Parse(host);
  if (!ip) return false;
  return ip->IsV4() ? ip->bytes().front() == 127 : ip->ToString() == "::1";
}

}  // namespace sluice::net
