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

// Whose headers are believed, which of them, and how clients are told apart.
struct ClientOptions {
  net::CidrSet trusted_proxies;
  net::TrustedHeaders trusted_headers = {};
  std::vector<std::string> attribute_headers = {};  // Of net::ParseAttributeHeaders.
  int ipv6_prefix = 64;
};

// Who asks. Only headers that are trusted count, and only if the peer is: anybody can write them.
struct Identity {
  std::string ip;            // As budgets are kept under it: an address or an IPv6 network.
  std::string_view user_id;  // In the request; empty if it is not known.
  std::string_view api_key;
};

// Fails with kInvalidRequest if the user or the API key is named twice: one of them may be the
// client's own. Passing such a request on without them would let it escape the rules for both.
Expected<Identity> Identify(const http::Request& request, const ClientOptions& options);

// The address alone, as in Identity.
std::string ClientAddress(const http::Request& request, const ClientOptions& options);

// Adds what the headers say that are attributes. They may decide whose budget it is, so that they
// are believed, and refused if they are given twice, as those of Identify are. Points into the
// request and the options.
Expected<void> AddAttributes(const http::Request& request, const ClientOptions& options,
                             std::vector<rules::Attribute>& attributes);

// The request that a proxy asks about; empty is what it does not say.
struct ForwardedRequest {
  std::string_view method;  // X-Forwarded-Method or X-Original-Method.
  std::string_view uri;     // X-Forwarded-Uri, X-Original-URI or X-Original-URL.
  std::string_view host;    // X-Forwarded-Host.
};

// Believes whoever asks: it is the question. But a proxy writes one of the names and may pass the
// others on as the client wrote them, so that two which say different things are kInvalidRequest.
Expected<ForwardedRequest> ReadForwardedRequest(const http::Request& request);

}  // namespace sluice::api
