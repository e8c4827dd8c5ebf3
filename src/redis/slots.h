// SPDX-License-Identifier: Apache-2.0
// Which master of a Cluster holds which keys. No I/O.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "redis/resp.h"
#include "redis/uri.h"
#include "sluice/error.h"

namespace sluice::redis {

inline constexpr std::size_t kSlots = 16'384;

// The slot of a key, by the text between its first braces unless that is empty.
std::uint16_t SlotOf(std::string_view key);

struct SlotMap {
  static constexpr std::size_t kMastersMax = 1'000;
  static constexpr std::uint16_t kNobody = 0xffff;

  std::vector<Address> masters;
  std::array<std::uint16_t, kSlots> owner;  // In `masters`, or kNobody.
};

// Reads the reply to CLUSTER SLOTS. If a node does not know its own name, its IP address is used,
// or else `asked`, the address of the node that answered.
Expected<SlotMap> ParseSlots(std::span<const RespNode> reply, const Address& asked);

// "MOVED 3999 host:port" and "ASK 3999 host:port".
struct Redirect {
  std::uint16_t slot;
  Address to;
};

// Nothing if it is another error. An empty host means the node that answered.
std::optional<Redirect> ParseRedirect(std::string_view error, std::string_view word,
                                      const Address& asked);

}  // namespace sluice::redis
