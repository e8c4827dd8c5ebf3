// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "http/message.h"
#include "net/address.h"
#include "net/trusted_headers.h"
#include "rules/context.h"
#include "sluice/error.h"

namespace sluice::api {

// Whose headers are believed, which of them, and how clients are identified.
struct ClientOptions {
  net::CidrSet trusted_proxies;
  net::TrustedHeaders trusted_headers = {};
  std::vector<std::string> attribute_headers = {};  // From net::ParseAttributeHeaders.
  int ipv6_prefix = 64;
};

// Who asks. Only trusted headers count, and only from a trusted peer: anybody can write them.
struct Identity {
  std::string ip;            // The key of the budget: an address or an IPv6 network.
  std::string_view user_id;  // Points into the request; empty if unknown.
  std::string_view api_key;
};

// Fails with kInvalidRequest if the user or the API key is given twice: one of them may be the
// client's own. Passing such a request on without them would let it escape the rules for both.
Expected<Identity> Identify(const http::Request& request, const ClientOptions& options);

// The address alone, as in Identity.
std::string ClientAddress(const http::Request& request, const ClientOptions& options);

// Adds the headers that are attributes. They may decide whose budget is used, so they are believed,
// and refused if they are given twice, like those of Identify. Points into the request and the
// options.
Expected<void> AddAttributes(const http::Request& request, const ClientOptions& options,
                             std::vector<rules::Attribute>& attributes);

// The request that a proxy asks about; what it does not say is empty.
struct ForwardedRequest {
  std::string_view method;  // X-Forwarded-Method or X-Original-Method.
  std::string_view uri;     // X-Forwarded-Uri, X-Original-URI or X-Original-URL.
  std::string_view host;    // X-Forwarded-Host.
};

// Believes every caller: the headers are its question. But a proxy writes one of the names and may
// pass the others on from its client, so two that differ are kInvalidRequest.
Expected<ForwardedRequest> ReadForwardedRequest(const http::Request& request);

}  // namespace sluice::api
