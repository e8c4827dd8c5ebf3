// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sluice/error.h"

namespace sluice::net {

struct ListenAddress {
  std::string host;        // A name, or an IP address without brackets; empty: all addresses.
  std::uint16_t port = 0;  // 0: a free one, chosen by the system.

  // 127.0.0.1:8080, [::1]:8080, localhost:8080, or :8080 for every address. Errors are
  // kInvalidInput.
  static Expected<ListenAddress> Parse(std::string_view text);
  std::string ToString() const;

  bool IsLoopback() const;  // Only this machine can connect to it.

  friend bool operator==(const ListenAddress&, const ListenAddress&) = default;
};

}  // namespace sluice::net
