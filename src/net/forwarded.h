// SPDX-License-Identifier: Apache-2.0
// Finds the client behind proxies. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "net/address.h"

namespace sluice::net {

// How many entries of one field are read, from the right; the client is then the last one reached.
inline constexpr std::size_t kForwardedHopsMax = 64;

// The lines of each field, in the order in which they were received.
struct ForwardedFields {
  std::span<const std::string_view> x_forwarded_for = {};
  std::span<const std::string_view> forwarded = {};
  std::span<const std::string_view> x_real_ip = {};
};

// The fields that the trusted proxies write. Each enabled field must be written or removed by all
// of them: if a proxy passes it on, its client wrote it. Most proxies pass Forwarded on unchanged,
// so it is off by default.
struct ForwardedOptions {
  bool x_forwarded_for = true;
  bool forwarded = false;
  bool x_real_ip = true;
};

enum class ClientFrom : std::uint8_t { kPeer, kXForwardedFor, kForwarded, kXRealIp };

struct Client {
  IpAddress address;
  ClientFrom from = ClientFrom::kPeer;  // The field used, even if it led back to the peer.

  friend bool operator==(const Client&, const Client&) = default;
};

// The peer, unless it is a trusted proxy. Then the first of these fields that is present decides:
//
// X-Forwarded-For, then Forwarded (RFC 7239, its `for`): all lines joined, from the right, past the
// addresses of trusted proxies to the first address that is not one. If all are trusted, the
// leftmost. An entry that is not an address ("unknown", "_hidden", garbage) ends the walk: nobody
// vouched for what is left of it, so the client is the trusted proxy that was reached last. All who
// hide behind that proxy share its budget, which is the safe side: nobody gains a fresh budget by
// writing garbage. Ports are ignored, empty entries skipped.
//
// X-Real-IP: its address. If it is not exactly one address, the peer.
//
// Does not allocate.
Client FindClient(const IpAddress& peer, const CidrSet& trusted, const ForwardedFields& fields,
                  const ForwardedOptions& options = {});

}  // namespace sluice::net
