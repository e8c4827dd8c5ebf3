// SPDX-License-Identifier: Apache-2.0
#include "service/hold_ticket.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "base/base64url.h"
#include "base/digest.h"
#include "base/text.h"
#include "core/algorithms.h"

namespace sluice::service {
namespace {

// The format:
//   version id expires ttl held
//   count of keys, keys
//   count of parts, and for each: its key's number, name, algorithm, amount, refill, span, held,
//     units per permit, shadow
//   the first bytes of the SHA-256 of all this
// Texts have their length before them; numbers are in base 128, the lowest digits first, and all
// but the last byte of a number have the highest bit set.
constexpr char kVersion = 1;
constexpr std::size_t kCheckBytes = 4;

std::string CheckOf(std::string_view bytes) {
  std::string hex;
  AppendSha256(hex, bytes);
  return hex.substr(0, kCheckBytes);
}

void AppendVarint(std::string& out, std::int64_t number) {
  auto rest = static_cast<std::uint64_t>(number);
  for (; rest >= 0x80; rest >>= 7) out += static_cast<char>(rest | 0x80);
  out += static_cast<char>(rest);
}

void AppendText(std::string& out, std::string_view text) {
  AppendVarint(out, static_cast<std::int64_t>(text.size()));
  out += text;
}

// Reads what the functions above wrote. After a failure everything is empty.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  bool at_end() const { return !failed_ && rest_.empty(); }

  std::int64_t Number(std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
    std::uint64_t number = 0;
    for (int shift = 0; shift < 63; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      number |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte >= 0x80) continue;
      if (std::cmp_less_equal(number, most)) return static_cast<std::int64_t>(number);
      break;
    }
    failed_ = true;
    rest_ = {};
    return 0;
  }

  std::string Text(std::size_t bytes_max) {
    const auto size = static_cast<std::size_t>(Number(static_cast<std::int64_t>(bytes_max)));
    if (size > rest_.size()) {
      failed_ = true;
      rest_ = {};
      return {};
    }
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }

  bool Flag() { return Number(1) != 0; }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

std::unexpected<Error> NotOne() {
  return std::unexpected(
      Error{ErrorCode::kInvalidRequest,
            "this is not the id of a hold; expected one that was returned when a hold was made"});
}

std::optional<HoldTicket::Part> ReadPart(Reader& reader, const std::vector<std::string>& keys) {
  const auto key = static_cast<std::size_t>(reader.Number());
  std::string name = reader.Text(kNameBytesMax);
  const auto algorithm =
      static_cast<Algorithm>(reader.Number(static_cast<std::int64_t>(core::kAlgorithmCount) - 1));
  const std::int64_t amount = reader.Number();
  const std::int64_t refill = reader.Number();
  const Micros span{reader.Number()};
  const auto limit = Limit::Make(algorithm, amount, refill, span);
  if (!limit || key >= keys.size()) return std::nullopt;
  HoldTicket::Part part{.key = keys[key], .limit = *limit, .name = std::move(name)};
  part.held = reader.Number();
  part.units_per_permit = reader.Number();
  part.shadow = reader.Flag();
  return part;
}

}  // namespace

Expected<std::string> HoldTicket::ToText() const {
  std::vector<std::string_view> keys;
  const auto number_of = [&](std::string_view key) {
    return static_cast<std::int64_t>(std::ranges::find(keys, key) - keys.begin());
  };
  for (const Part& part : parts) {
    if (std::ranges::find(keys, part.key) == keys.end()) keys.emplace_back(part.key);
  }
  std::string bytes(1, kVersion);
  AppendText(bytes, id);
  AppendVarint(bytes, expires.time_since_epoch().count());
  AppendVarint(bytes, ttl.count());
  AppendVarint(bytes, held ? 1 : 0);
  AppendVarint(bytes, static_cast<std::int64_t>(keys.size()));
  for (const std::string_view key : keys) AppendText(bytes, key);
  AppendVarint(bytes, static_cast<std::int64_t>(parts.size()));
  for (const Part& part : parts) {
    AppendVarint(bytes, number_of(part.key));
    AppendText(bytes, part.name);
    AppendVarint(bytes, std::to_underlying(part.limit.algorithm()));
    AppendVarint(bytes, part.limit.amount());
    AppendVarint(bytes, part.limit.refill());
    AppendVarint(bytes, part.limit.span().count());
    AppendVarint(bytes, part.held);
    AppendVarint(bytes, part.units_per_permit);
    AppendVarint(bytes, part.shadow ? 1 : 0);
  }
  bytes += CheckOf(bytes);
  std::string text;
  text::AppendBase64Url(text, bytes);
  if (text.size() <= kBytesMax) return text;
  return std::unexpected(
      Error{ErrorCode::kInvalidRequest,
            text::Cat("the hold would be on so many budgets, or on keys so long, that its id has ",
                      text.size(), " bytes; expected at most ", kBytesMax)});
}

Expected<HoldTicket> HoldTicket::Parse(std::string_view text) {
  if (text.size() > kBytesMax) return NotOne();
  const auto bytes = text::ParseBase64Url(text);
  if (!bytes || bytes->size() <= kCheckBytes) return NotOne();
  const std::string_view all = *bytes;
  const std::string_view body = all.substr(0, all.size() - kCheckBytes);
  if (all.substr(body.size()) != CheckOf(body) || body.front() != kVersion) return NotOne();

  Reader reader(body.substr(1));
  HoldTicket ticket;
  ticket.id = reader.Text(kHoldIdBytesMax);
  ticket.expires = TimePoint{Micros{reader.Number(kTimeMax.time_since_epoch().count())}};
  ticket.ttl = Micros{reader.Number(kHoldTtlMax.count())};
  ticket.held = reader.Flag();
  std::vector<std::string> keys(static_cast<std::size_t>(reader.Number(kPartsMax)));
  for (std::string& key : keys) key = reader.Text(kKeyBytesMax);
  const std::int64_t count = reader.Number(kPartsMax);
  for (std::int64_t i = 0; i < count; ++i) {
    auto part = ReadPart(reader, keys);
    if (!part) return NotOne();
    ticket.parts.push_back(*std::move(part));
  }
  // What was not written by ToText is nothing that was returned.
  if (!reader.at_end() || ticket.ToText() != text) return NotOne();
  return ticket;
}

}  // namespace sluice::service
