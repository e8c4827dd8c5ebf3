// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "net/forwarded.h"
#include "sluice/error.h"

namespace sluice::net {

// Which headers that say who the client is are believed from trusted proxies, each on its own: a
// proxy that writes X-Forwarded-For may well pass on the X-User-Id that its client wrote.
struct TrustedHeaders {
  ForwardedOptions address = {};
  bool user_id = false;
  bool api_key = false;

  // By name, in either case: X-Forwarded-For, X-Real-IP, Forwarded, X-User-Id and X-API-Key. Those
  // that are not named are not believed. Fails with kInvalidInput.
  static Expected<TrustedHeaders> Parse(std::span<const std::string> names);
};

}  // namespace sluice::net
