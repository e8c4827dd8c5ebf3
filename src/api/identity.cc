// SPDX-License-Identifier: Apache-2.0
#include "api/identity.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/text.h"

namespace sluice::api {
namespace {

constexpr std::size_t kLinesMax = 32;

// The lines of one field, as many as fit. The first ones are dropped, because the walk begins at
// the last.
class Lines {
 public:
  void Add(std::string_view line) {
    if (count_ == lines_.size()) {
      std::shift_left(lines_.begin(), lines_.end(), 1);
      --count_;
    }
    lines_[count_++] = line;
  }
  std::span<const std::string_view> get() const { return std::span(lines_).first(count_); }

 private:
  std::array<std::string_view, kLinesMax> lines_;
  std::size_t count_ = 0;
};

net::IpAddress AddressOf(const boost::asio::ip::address& peer) {
  if (peer.is_v4()) return net::IpAddress::V4(peer.to_v4().to_bytes());
  return net::IpAddress::V6(peer.to_v6().to_bytes());
}

std::unexpected<Error> Ambiguous(std::string_view names) {
  return std::unexpected(Error{
      ErrorCode::kInvalidRequest,
      text::Cat(names, " is given twice; expected that the proxy removes what clients write")});
}

// Keeps the only value of a request; fails if there is another.
class OneValue {
 public:
  bool Add(std::string_view value) {
    const bool same = !given_ || value == value_;
    value_ = value;
    given_ = true;
    return same;
  }
  std::string_view get() const { return value_; }

 private:
  std::string_view value_;
  bool given_ = false;
};

bool IsTrusted(const net::IpAddress& peer, const ClientOptions& options) {
  return !options.trusted_proxies.empty() && options.trusted_proxies.Contains(peer);
}

std::string ForwardedAddress(const http::Request& request, const net::IpAddress& peer,
                             const ClientOptions& options) {
  Lines forwarded_for;
  Lines forwarded;
  Lines real_ip;
  for (const http::Header& header : request.headers) {
    if (text::EqualsIgnoreCase(header.name, "X-Forwarded-For")) {
      forwarded_for.Add(header.value);
    } else if (text::EqualsIgnoreCase(header.name, "Forwarded")) {
      forwarded.Add(header.value);
    } else if (text::EqualsIgnoreCase(header.name, "X-Real-IP")) {
      real_ip.Add(header.value);
    }
  }
  const net::Client client = net::FindClient(peer, options.trusted_proxies,
                                             {.x_forwarded_for = forwarded_for.get(),
                                              .forwarded = forwarded.get(),
                                              .x_real_ip = real_ip.get()},
                                             options.trusted_headers.address);
  return net::ClientKey(client.address, options.ipv6_prefix);
}

}  // namespace

std::string ClientAddress(const http::Request& request, const ClientOptions& options) {
  const net::IpAddress peer = AddressOf(request.peer);
  if (!IsTrusted(peer, options)) return net::ClientKey(peer, options.ipv6_prefix);
  return ForwardedAddress(request, peer, options);
}

Expected<Identity> Identify(const http::Request& request, const ClientOptions& options) {
  Identity identity{.ip = ClientAddress(request, options), .user_id = {}, .api_key = {}};
  const net::TrustedHeaders& trusted = options.trusted_headers;
  if (!trusted.user_id && !trusted.api_key) return identity;
  if (!IsTrusted(AddressOf(request.peer), options)) return identity;
  OneValue user_id;
  OneValue api_key;
  for (const http::Header& header : request.headers) {
    if (trusted.user_id && text::EqualsIgnoreCase(header.name, "X-User-Id")) {
      if (!user_id.Add(header.value)) return Ambiguous("X-User-Id");
    } else if (trusted.api_key && text::EqualsIgnoreCase(header.name, "X-API-Key")) {
      if (!api_key.Add(header.value)) return Ambiguous("X-API-Key");
    }
  }
  identity.user_id = user_id.get();
  identity.api_key = api_key.get();
  return identity;
}

Expected<void> AddAttributes(const http::Request& request, const ClientOptions& options,
                             std::vector<rules::Attribute>& attributes) {
  if (options.attribute_headers.empty()) return {};
  if (!IsTrusted(AddressOf(request.peer), options)) return {};
  for (const std::string& name : options.attribute_headers) {
    OneValue value;
    for (const http::Header& header : request.headers) {
      if (!text::EqualsIgnoreCase(header.name, name)) continue;
      if (!value.Add(header.value)) return Ambiguous(name);
    }
    if (!value.get().empty()) attributes.push_back({.name = name, .value = value.get()});
  }
  return {};
}

Expected<ForwardedRequest> ReadForwardedRequest(const http::Request& request) {
  OneValue method;
  OneValue uri;
  OneValue host;
  for (const auto& [name, value] : request.headers) {
    // An empty one counts: it says that there is no path, and another may be the client's own.
    if (text::EqualsIgnoreCase(name, "X-Forwarded-Uri") ||
        text::EqualsIgnoreCase(name, "X-Original-URI") ||
        text::EqualsIgnoreCase(name, "X-Original-URL")) {
      if (!uri.Add(value)) return Ambiguous("X-Forwarded-Uri, X-Original-URI or X-Original-URL");
      continue;
    }
    if (value.empty()) continue;
    if (text::EqualsIgnoreCase(name, "X-Forwarded-Method") ||
        text::EqualsIgnoreCase(name, "X-Original-Method")) {
      if (!method.Add(value)) return Ambiguous("X-Forwarded-Method or X-Original-Method");
    } else if (text::EqualsIgnoreCase(name, "X-Forwarded-Host")) {
      if (!host.Add(value)) return Ambiguous("X-Forwarded-Host");
    }
  }
  return ForwardedRequest{.method = method.get(), .uri = uri.get(), .host = host.get()};
}

}  // namespace sluice::api
