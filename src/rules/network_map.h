// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "net/address.h"
#include "rules/rule.h"

namespace sluice::rules {

// Overrides by networks of clients. A look-up takes one step for each prefix length in use, however
// many networks have it.
class NetworkMap {
 public:
  // If a network is added twice, the first counts.
  void Add(const net::Cidr& network, const Override& override);

  bool empty() const { return networks_.empty(); }

  // The override of the smallest network that contains the client, which is an address or, for
  // IPv6, a network; null if there is none.
  const Override* Find(std::string_view client) const;

 private:
  struct Network {
    std::array<std::uint8_t, 16> bytes = {};  // Zero beyond the prefix.
    std::uint8_t prefix = 0;
    bool is_v4 = false;

    friend bool operator==(const Network&, const Network&) = default;
  };
  struct Hash {
    std::size_t operator()(const Network& network) const;
  };

  static Network NetworkOf(const net::IpAddress& address, int prefix);

  std::unordered_map<Network, const Override*, Hash> networks_;
  std::vector<int> v4_prefixes_;  // Descending, each once.
  std::vector<int> v6_prefixes_;
};

}  // namespace sluice::rules
