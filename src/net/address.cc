// SPDX-License-Identifier: Apache-2.0
#include "net/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace sluice::net {
namespace {

constexpr std::array<std::uint8_t, 12> kMappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr int kV4Bits = 32;
constexpr int kV6Bits = 128;
constexpr int kMappedBits = 96;

bool IsMapped(const std::array<std::uint8_t, 16>& bytes) {
  return std::ranges::equal(kMappedPrefix, std::span(bytes).first(kMappedPrefix.size()));
}

// Decimal digits without a sign or leading zeros.
std::optional<int> ParsePlain(std::string_view text, int max) {
  const auto number = text::ParseNumber<std::uint16_t>(text);
  if (!number || *number > max || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  return *number;
}

// Reads an address without turning a mapped one into IPv4: a prefix may end inside the mapped part.
std::optional<std::array<std::uint8_t, 16>> ParseV6(const char* text) {
  std::array<std::uint8_t, 16> bytes;
  if (::inet_pton(AF_INET6, text, bytes.data()) != 1) return std::nullopt;
  return bytes;
}

// What inet_pton needs: the text followed by a NUL, with no other NUL in it.
std::optional<std::array<char, INET6_ADDRSTRLEN>> Terminated(std::string_view text) {
  std::array<char, INET6_ADDRSTRLEN> copy{};
  if (text.size() >= copy.size() || text.find('\0') != std::string_view::npos) return std::nullopt;
  std::ranges::copy(text, copy.begin());
  return copy;
}

bool IsPort(std::string_view text) { return ParsePlain(text, 65'535).has_value(); }

// The first `prefix` bits, followed by zeros.
IpAddress Masked(const IpAddress& address, int prefix) {
  std::array<std::uint8_t, 16> bytes{};
  std::ranges::copy(address.bytes(), bytes.begin());
  for (int i = 0; i < 16; ++i) {
    const int kept = std::clamp(prefix - 8 * i, 0, 8);
    bytes[static_cast<std::size_t>(i)] &= static_cast<std::uint8_t>(0xff00 >> kept);
  }
  if (address.IsV4()) return IpAddress::V4({bytes[0], bytes[1], bytes[2], bytes[3]});
  return IpAddress::V6(bytes);
}

}  // namespace

IpAddress IpAddress::V4(const std::array<std::uint8_t, 4>& bytes) {
  IpAddress address;
  std::ranges::copy(bytes, address.bytes_.begin());
  return address;
}

IpAddress IpAddress::V6(const std::array<std::uint8_t, 16>& bytes) {
  if (IsMapped(bytes)) return V4({bytes[12], bytes[13], bytes[14], bytes[15]});
  IpAddress address;
  address.is_v4_ = false;
  address.bytes_ = bytes;
  return address;
}

std::optional<IpAddress> IpAddress::Parse(std::string_view text) {
  const auto copy = Terminated(text);
  if (!copy) return std::nullopt;
  std::array<std::uint8_t, 4> v4;
  if (::inet_pton(AF_INET, copy->data(), v4.data()) == 1) return V4(v4);
  const auto v6 = ParseV6(copy->data());
  return v6 ? std::optional(V6(*v6)) : std::nullopt;
}

std::optional<IpAddress> IpAddress::ParseWithPort(std::string_view text) {
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view after = text.substr(end + 1);
    if (!after.empty() && (after[0] != ':' || !IsPort(after.substr(1)))) return std::nullopt;
    const std::string_view inside = text.substr(1, end - 1);
    return inside.find(':') != std::string_view::npos ? Parse(inside) : std::nullopt;
  }
  // A single colon precedes a port; more belong to an IPv6 address.
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon != text.rfind(':')) return Parse(text);
  return IsPort(text.substr(colon + 1)) ? Parse(text.substr(0, colon)) : std::nullopt;
}

std::string IpAddress::ToString() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return ::inet_ntop(is_v4_ ? AF_INET : AF_INET6, bytes_.data(), text.data(), text.size());
}

Expected<Cidr> Cidr::Parse(std::string_view text) {
  const auto fail = [&](std::string_view why) {
    return std::unexpected(
        Error{ErrorCode::kInvalidInput, text::Cat("network ", text::Quote(text), ": ", why)});
  };
  const std::size_t slash = text.find('/');
  const auto address = IpAddress::Parse(text.substr(0, slash));
  if (!address) return fail("expected an address, or a network such as 10.0.0.0/8");

  const bool written_as_v6 = text.substr(0, slash).find(':') != std::string_view::npos;
  const int bits = written_as_v6 ? kV6Bits : kV4Bits;
  int prefix = bits;
  if (slash != std::string_view::npos) {
    const auto number = ParsePlain(text.substr(slash + 1), bits);
    if (!number) return fail(text::Cat("expected a prefix from 0 to ", bits));
    prefix = *number;
  }
  if (address->IsV4() && written_as_v6) {
    if (prefix < kMappedBits) return fail("expected a prefix of at least 96 for IPv4 inside IPv6");
    prefix -= kMappedBits;
  }
  const IpAddress network = Masked(*address, prefix);
  if (network != *address) {
    return fail(
        text::Cat("bits are set beyond the prefix; expected ", network.ToString(), "/", prefix));
  }
  return Cidr(network, prefix);
}

bool Cidr::Contains(const IpAddress& address) const {
  if (address.IsV4() != address_.IsV4()) return false;
  const auto whole = static_cast<std::size_t>(prefix_ / 8);
  const auto a = address.bytes();
  const auto b = address_.bytes();
  if (std::memcmp(a.data(), b.data(), whole) != 0) return false;
  const int rest = prefix_ % 8;
  return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

std::string Cidr::ToString() const { return text::Cat(address_.ToString(), "/", prefix_); }

Expected<CidrSet> CidrSet::Parse(std::span<const std::string> texts) {
  if (texts.size() > kCidrsMax) {
    return std::unexpected(
        Error{ErrorCode::kInvalidInput,
              text::Cat(texts.size(), " networks: expected at most ", kCidrsMax)});
  }
  CidrSet set;
  for (const std::string& text : texts) {
    const auto cidr = Cidr::Parse(text);
    if (!cidr) return std::unexpected(cidr.error());
    set.cidrs_.push_back(*cidr);
  }
  return set;
}

bool CidrSet::Contains(const IpAddress& address) const {
  return std::ranges::any_of(cidrs_, [&](const Cidr& cidr) { return cidr.Contains(address); });
}

std::string ClientKey(const IpAddress& address, int v6_prefix) {
  if (address.IsV4() || v6_prefix >= kV6Bits) return address.ToString();
  return text::Cat(Masked(address, v6_prefix).ToString(), "/", v6_prefix);
}

std::string ClientKey(std::string_view text, int v6_prefix) {
  const auto address = IpAddress::ParseWithPort(text);
  return address ? ClientKey(*address, v6_prefix) : std::string(text);
}

}  // namespace sluice::net
