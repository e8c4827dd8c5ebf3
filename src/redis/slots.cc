// SPDX-License-Identifier: Apache-2.0
#include "redis/slots.h"

#include <algorithm>

#include "base/text.h"

namespace sluice::redis {
namespace {

// CRC-16/XMODEM.
constexpr std::array<std::uint16_t, 256> kCrcTable = [] {
  std::array<std::uint16_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte << 8;
    for (int bit = 0; bit < 8; ++bit) crc = crc << 1 ^ ((crc & 0x8000) != 0 ? 0x1021 : 0);
    table[byte] = static_cast<std::uint16_t>(crc);
  }
  return table;
}();

std::uint16_t Crc16(std::string_view text) {
  std::uint32_t crc = 0;
  for (const char c : text) {
    crc = (crc << 8 ^ kCrcTable[(crc >> 8 ^ static_cast<unsigned char>(c)) & 0xff]) & 0xffff;
  }
  return static_cast<std::uint16_t>(crc);
}

// Reads nodes one value at a time.
class Cursor {
 public:
  explicit Cursor(std::span<const RespNode> nodes) : nodes_(nodes) {}

  bool done() const { return nodes_.empty(); }

  const RespNode& Next() {
    const RespNode& node = nodes_.front();
    nodes_ = nodes_.subspan(1);
    return node;
  }

  // How many elements follow, or -1 if this is not an array.
  std::int64_t Enter() {
    if (done() || nodes_.front().type != RespType::kArray) return -1;
    return Next().number;
  }

  // Skips a value and everything in it.
  void Skip() {
    for (std::int64_t due = 1; due > 0 && !done(); --due) {
      const RespNode& node = Next();
      if (node.type >= RespType::kArray) due += node.number;
    }
  }

 private:
  std::span<const RespNode> nodes_;
};

bool IsKnown(std::string_view host) { return !host.empty() && host != "?"; }

// endpoint, port, id and, since Redis 7, a list of names and values.
std::optional<Address> ReadNode(Cursor& cursor, const Address& asked) {
  const std::int64_t elements = cursor.Enter();
  if (elements < 2 || cursor.done()) return std::nullopt;
  std::string_view host = cursor.Next().text;
  if (cursor.done()) return std::nullopt;
  const std::int64_t port = cursor.Next().number;
  for (std::int64_t i = 2; i < elements; ++i) {
    const std::int64_t values = cursor.Enter();
    if (values < 0) {
      cursor.Skip();
      continue;
    }
    for (std::int64_t j = 0; j + 1 < values && !cursor.done(); j += 2) {
      const std::string_view name = cursor.Next().text;
      if (cursor.done()) return std::nullopt;
      const std::string_view value = cursor.Next().text;
      if (name == "ip" && !IsKnown(host)) host = value;
    }
  }
  if (port < 1 || port > 65'535) return std::nullopt;
  return Address{.host = IsKnown(host) ? std::string(host) : asked.host,
                 .port = static_cast<std::uint16_t>(port)};
}

}  // namespace

std::uint16_t SlotOf(std::string_view key) {
  const std::size_t open = key.find('{');
  if (open != std::string_view::npos) {
    const std::size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) {
      key = key.substr(open + 1, close - open - 1);
    }
  }
  return Crc16(key) % kSlots;
}

Expected<SlotMap> ParseSlots(std::span<const RespNode> reply, const Address& asked) {
  const auto fail = [] {
    return std::unexpected(
        Error{ErrorCode::kStoreError, "the reply to CLUSTER SLOTS is not as expected"});
  };
  SlotMap map;
  map.owner.fill(SlotMap::kNobody);
  Cursor cursor(reply);
  const std::int64_t ranges = cursor.Enter();
  if (ranges < 0) return fail();
  for (std::int64_t i = 0; i < ranges; ++i) {
    const std::int64_t elements = cursor.Enter();
    if (elements < 3 || cursor.done()) return fail();
    const std::int64_t first = cursor.Next().number;
    if (cursor.done()) return fail();
    const std::int64_t last = cursor.Next().number;
    if (first < 0 || last < first || last >= static_cast<std::int64_t>(kSlots)) return fail();
    const auto master = ReadNode(cursor, asked);
    if (!master) return fail();
    for (std::int64_t j = 3; j < elements; ++j) cursor.Skip();  // The replicas.
    auto known = std::ranges::find(map.masters, *master);
    if (known == map.masters.end()) {
      if (map.masters.size() == SlotMap::kMastersMax) return fail();
      known = map.masters.insert(known, *master);
    }
    std::fill(map.owner.begin() + first, map.owner.begin() + last + 1,
              static_cast<std::uint16_t>(known - map.masters.begin()));
  }
  if (map.masters.empty()) {
    return std::unexpected(
        Error{ErrorCode::kUnavailable,
              text::Cat("Redis at ", asked.ToString(), ": no master of the Cluster has slots")});
  }
  return map;
}

std::optional<Redirect> ParseRedirect(std::string_view error, std::string_view word,
                                      const Address& asked) {
  if (!error.starts_with(word) || !error.substr(word.size()).starts_with(' ')) return std::nullopt;
  error.remove_prefix(word.size() + 1);
  const std::size_t blank = error.find(' ');
  const std::size_t colon = error.rfind(':');
  if (blank == std::string_view::npos || colon == std::string_view::npos || colon < blank) {
    return std::nullopt;
  }
  const auto slot = text::ParseNumber<std::uint16_t>(error.substr(0, blank));
  const auto port = text::ParseNumber<std::uint16_t>(error.substr(colon + 1));
  const std::string_view host = error.substr(blank + 1, colon - blank - 1);
  if (!slot || *slot >= kSlots || !port || *port == 0) return std::nullopt;
  return Redirect{.slot = *slot,
                  .to = {.host = IsKnown(host) ? std::string(host) : asked.host, .port = *port}};
}

}  // namespace sluice::redis
