// SPDX-License-Identifier: Apache-2.0
#include "api/identity.h"

#include <algorithm>
#include <array>
#include <span>

#include "core/text.h"

namespace sluice::api {
namespace {

constexpr std::size_t kLinesMax = 32;

// The lines of one field, as many as there is room for. Those that are left out are the first: the
// walk begins at the last.
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

}  // namespace

Identity Identify(const http::Request& request, const ClientOptions& options) {
  Identity identity;
  const net::IpAddress peer = AddressOf(request.peer);
  if (options.trusted_proxies.empty() || !options.trusted_proxies.Contains(peer)) {
    identity.ip = net::ClientKey(peer, options.ipv6_prefix);
    return identity;
  }
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
    } else if (text::EqualsIgnoreCase(header.name, "X-User-Id")) {
      identity.user_id = header.value;
    } else if (text::EqualsIgnoreCase(header.name, "X-API-Key")) {
      identity.api_key = header.value;
    }
  }
  const net::Client client = net::FindClient(peer, options.trusted_proxies,
                                             {.x_forwarded_for = forwarded_for.get(),
                                              .forwarded = forwarded.get(),
                                              .x_real_ip = real_ip.get()},
                                             {.forwarded = options.forwarded});
  identity.ip = net::ClientKey(client.address, options.ipv6_prefix);
  return identity;
}

}  // namespace sluice::api
