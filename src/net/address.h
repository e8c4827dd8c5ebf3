// SPDX-License-Identifier: Apache-2.0
// IP addresses and networks, as text and as numbers. No I/O.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"

namespace sluice::net {

// An IPv4 or IPv6 address. An IPv4 address inside IPv6 (::ffff:192.0.2.1) is that IPv4 address, so
// that a client is the same client whichever socket it came through.
class IpAddress {
 public:
  IpAddress() = default;  // 0.0.0.0
  static IpAddress V4(const std::array<std::uint8_t, 4>& bytes);
  static IpAddress V6(const std::array<std::uint8_t, 16>& bytes);

  // Nothing unless it is exactly an address: four decimal numbers without leading zeros, or IPv6
  // without brackets and without a zone.
  static std::optional<IpAddress> Parse(std::string_view text);

  // The same, with an optional port that is ignored: 192.0.2.1:80, [2001:db8::1]:80, [2001:db8::1].
  static std::optional<IpAddress> ParseWithPort(std::string_view text);

  bool IsV4() const { return is_v4_; }
  std::span<const std::uint8_t> bytes() const { return std::span(bytes_).first(is_v4_ ? 4 : 16); }

  // The shortest form, as in RFC 5952. Parse(ToString()) is equal.
  std::string ToString() const;

  friend auto operator<=>(const IpAddress&, const IpAddress&) = default;

 private:
  bool is_v4_ = true;
  std::array<std::uint8_t, 16> bytes_ = {};
};

// A network: all addresses that share its first bits.
class Cidr {
 public:
  // "10.0.0.0/8", "2001:db8::/32", or a single address, which is a network of one. Bits beyond the
  // prefix must be zero: "10.1.2.3/8" is more likely a mistake than a network. Error:
  // kInvalidInput.
  static Expected<Cidr> Parse(std::string_view text);

  // A network contains only addresses of its own family: ::/0 has no IPv4 address in it.
  bool Contains(const IpAddress& address) const;

  std::string ToString() const;  // Always with the prefix.

  const IpAddress& address() const { return address_; }
  int prefix() const { return prefix_; }

  friend bool operator==(const Cidr&, const Cidr&) = default;

 private:
  Cidr(const IpAddress& address, int prefix) : address_(address), prefix_(prefix) {}

  IpAddress address_;
  int prefix_;
};

// A few networks, such as those of trusted proxies. Each lookup visits all of them.
class CidrSet {
 public:
  static constexpr std::size_t kCidrsMax = 1024;

  CidrSet() = default;  // Contains nothing.

  // Error: kInvalidInput, for the first text that is not a network, or if there are too many.
  static Expected<CidrSet> Parse(std::span<const std::string> texts);

  bool Contains(const IpAddress& address) const;
  bool empty() const { return cidrs_.empty(); }

 private:
  std::vector<Cidr> cidrs_;
};

// The key of a client's budget. Whoever has an IPv6 address has a whole network of them, so IPv6
// clients are identified by its prefix: "192.0.2.1", "2001:db8:1:2::/64". With a prefix of 128 it
// is the address alone. `v6_prefix` is 1 to 128.
std::string ClientKey(const IpAddress& address, int v6_prefix = 64);
// The same for an address that somebody wrote, with or without a port, which is ignored. Text that
// is not an address, such as a prefix taken from an answer, stays as it is.
std::string ClientKey(std::string_view text, int v6_prefix = 64);

}  // namespace sluice::net
