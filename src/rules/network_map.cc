// SPDX-License-Identifier: Apache-2.0
#include "rules/network_map.h"

#include <algorithm>
#include <functional>

namespace sluice::rules {

std::size_t NetworkMap::Hash::operator()(const Network& network) const {
  // Bytes as characters, to be hashed as text.
  std::array<char, sizeof network.bytes + 1> text{};
  std::ranges::copy(network.bytes, text.begin());
  text.back() = static_cast<char>(network.prefix);
  return std::hash<std::string_view>{}({text.data(), text.size()});
}

NetworkMap::Network NetworkMap::NetworkOf(const net::IpAddress& address, int prefix) {
  Network network{.prefix = static_cast<std::uint8_t>(prefix), .is_v4 = address.IsV4()};
  const auto bytes = address.bytes();
  const auto whole = static_cast<std::size_t>(prefix / 8);
  std::ranges::copy(bytes.first(whole), network.bytes.begin());
  if (const int rest = prefix % 8; rest != 0) {
    network.bytes[whole] = static_cast<std::uint8_t>(bytes[whole] & (0xffU << (8 - rest)));
  }
  return network;
}

void NetworkMap::Add(const net::Cidr& network, const Override& override) {
  networks_.emplace(NetworkOf(network.address(), network.prefix()), &override);
  auto& prefixes = network.address().IsV4() ? v4_prefixes_ : v6_prefixes_;
  const auto place = std::ranges::lower_bound(prefixes, network.prefix(), std::greater{});
  if (place == prefixes.end() || *place != network.prefix()) {
    prefixes.insert(place, network.prefix());
  }
}

const Override* NetworkMap::Find(std::string_view client) const {
  const auto known = net::Cidr::Parse(client);
  if (!known) return nullptr;
  for (const int prefix : known->address().IsV4() ? v4_prefixes_ : v6_prefixes_) {
    if (prefix > known->prefix()) continue;  // It holds only a part of the client's network.
    const auto found = networks_.find(NetworkOf(known->address(), prefix));
    if (found != networks_.end()) return found->second;
  }
  return nullptr;
}

}  // namespace sluice::rules
