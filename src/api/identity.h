// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "http/message.h"
#include "net/address.h"
#include "net/forwarded.h"

namespace sluice::api {

// Whose headers are believed, and how clients are told apart.
struct ClientOptions {
  net::CidrSet trusted_proxies;
  bool forwarded = false;  // They write Forwarded (RFC 7239), or remove it.
  int ipv6_prefix = 64;
};

// Who asks. X-User-Id and X-API-Key count only if the peer is trusted: anybody can write them.
struct Identity {
  std::string ip;            // As budgets are kept under it: an address or an IPv6 network.
  std::string_view user_id;  // In the request; empty if it is not known.
  std::string_view api_key;
};

Identity Identify(const http::Request& request, const ClientOptions& options);

}  // namespace sluice::api
