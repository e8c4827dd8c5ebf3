// SPDX-License-Identifier: Apache-2.0
// Who the client is when proxies stand between it and us. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "net/address.h"

namespace sluice::net {

// Entries of one field that are looked at, from the right; the client is then whoever was reached.
inline constexpr std::size_t kForwardedHopsMax = 64;

// The lines of each field, in the order in which they were received.
struct ForwardedFields {
  std::span<const std::string_view> x_forwarded_for = {};
  std::span<const std::string_view> forwarded = {};
  std::span<const std::string_view> x_real_ip = {};
};

// Which fields the trusted proxies write. Every field that is used must be written or removed by
// all of them: one that a proxy passes on is one that its client wrote. Most proxies pass Forwarded
// on as it came, which is why it has to be asked for.
struct ForwardedOptions {
  bool x_forwarded_for = true;
  bool forwarded = false;
  bool x_real_ip = true;
};

enum class ClientFrom : std::uint8_t { kPeer, kXForwardedFor, kForwarded, kXRealIp };

struct Client {
  IpAddress address;
  ClientFrom from = ClientFrom::kPeer;  // Which field was used, even if it led back to the peer.

  friend bool operator==(const Client&, const Client&) = default;
};

// The peer, unless it is a trusted proxy. Then the first of these fields that is present decides:
//
// X-Forwarded-For, then Forwarded (RFC 7239, its `for`): all lines joined, from the right, past the
// addresses of trusted proxies to the first address that is not one. If all are trusted, the
// leftmost. An entry that is not an address ("unknown", "_hidden", garbage) ends the walk: what
// stands left of it was vouched for by nobody, so that the client is the trusted proxy that was
// reached last. That proxy's budget is shared by all who hide behind it, which is the safe side:
// nobody gains a fresh budget by writing garbage. Ports are ignored, empty entries skipped.
//
// X-Real-IP: its address. If it is not one address, the peer.
//
// Does not allocate.
Client FindClient(const IpAddress& peer, const CidrSet& trusted, const ForwardedFields& fields,
                  const ForwardedOptions& options = {});

}  // namespace sluice::net
