// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "net/forwarded.h"
#include "sluice/error.h"

namespace sluice::net {

// Which client headers are believed from trusted proxies. Each is set on its own: a proxy that
// writes X-Forwarded-For may well pass on the X-User-Id that its client wrote.
struct TrustedHeaders {
  ForwardedOptions address = {};
  bool user_id = false;
  bool api_key = false;

  // By name, in any case: X-Forwarded-For, X-Real-IP, Forwarded, X-User-Id and X-API-Key. Headers
  // not named are not believed. Fails with kInvalidInput.
  static Expected<TrustedHeaders> Parse(std::span<const std::string> names);
};

inline constexpr std::size_t kAttributeHeadersMax = 32;

// Headers that are attributes of a request, believed from trusted proxies as well. Returns their
// names in lower case, each once. Host is refused: it is an attribute already. Fails with
// kInvalidInput.
Expected<std::vector<std::string>> ParseAttributeHeaders(std::span<const std::string> names);

}  // namespace sluice::net
