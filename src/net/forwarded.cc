// SPDX-License-Identifier: Apache-2.0
#include "net/forwarded.h"

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace sluice::net {
namespace {

// Goes through the entries of a list, which may have several lines, from the right. Commas inside
// quotes do not count. Scanning from the right matters for quotes, too: a client may leave one
// open, and what a trusted proxy appended after it must be read as the proxy meant it.
class EntriesFromTheRight {
 public:
  enum class Quotes { kPlain, kQuoted };

  EntriesFromTheRight(std::span<const std::string_view> lines, Quotes quotes)
      : lines_(lines), quotes_(quotes) {}

  // The next entry that is not empty; nothing at the end of the list.
  std::optional<std::string_view> Next() {
    for (;;) {
      if (!rest_) {
        if (lines_.empty()) return std::nullopt;
        rest_ = lines_.back();
        lines_ = lines_.first(lines_.size() - 1);
      }
      const std::size_t comma = LastComma(*rest_);
      const std::string_view entry = text::Trim(comma == kNone ? *rest_ : rest_->substr(comma + 1));
      rest_ = comma == kNone ? std::nullopt : std::optional(rest_->substr(0, comma));
      if (!entry.empty()) return entry;
    }
  }

 private:
  static constexpr std::size_t kNone = std::string_view::npos;

  std::size_t LastComma(std::string_view line) const {
    if (quotes_ == Quotes::kPlain) return line.rfind(',');
    bool quoted = false;
    for (std::size_t i = line.size(); i-- > 0;) {
      if (line[i] == '"') quoted = !quoted;
      if (line[i] == ',' && !quoted) return i;
    }
    return kNone;
  }

  std::span<const std::string_view> lines_;  // Those not started.
  Quotes quotes_;
  std::optional<std::string_view> rest_;  // Of the current line.
};

bool IsTokenByte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

// A token, or the text between quotes. Backslashes, which no address needs, are refused.
std::optional<std::string_view> TakeValue(std::string_view& rest) {
  if (rest.starts_with('"')) {
    const std::size_t end = rest.find('"', 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view value = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
    if (value.find('\\') != std::string_view::npos) return std::nullopt;
    return value;
  }
  // Colons and brackets should be quoted, but not everybody does that.
  const auto end = std::ranges::find_if_not(
      rest, [](char c) { return IsTokenByte(c) || c == ':' || c == '[' || c == ']'; });
  const auto size = static_cast<std::size_t>(end - rest.begin());
  const std::string_view value = rest.substr(0, size);
  rest.remove_prefix(size);
  return value;
}

// The address in the only `for` of a Forwarded entry: name=value pairs separated by semicolons.
// Nothing if there is none, if it is a name ("unknown", "_hidden"), or if the entry is malformed.
std::optional<IpAddress> ForOf(std::string_view entry) {
  std::optional<std::string_view> found;
  for (std::string_view rest = entry;;) {
    rest = text::Trim(rest);
    const std::size_t equals = rest.find('=');
    if (equals == std::string_view::npos || equals == 0) return std::nullopt;
    const std::string_view name = rest.substr(0, equals);
    if (!std::ranges::all_of(name, IsTokenByte)) return std::nullopt;
    rest.remove_prefix(equals + 1);
    const auto value = TakeValue(rest);
    if (!value) return std::nullopt;
    if (text::EqualsIgnoreCase(name, "for")) {
      if (found) return std::nullopt;
      found = value;
    }
    rest = text::Trim(rest);
    if (rest.empty()) break;
    if (rest[0] != ';') return std::nullopt;
    rest.remove_prefix(1);
    if (text::Trim(rest).empty()) break;
  }
  return found ? IpAddress::ParseWithPort(*found) : std::nullopt;
}

// Skips trusted addresses, up to the first that is not trusted or to where nobody can be trusted.
// Nothing if the list has no entries: then it counts as absent.
template <typename ParseEntry>
std::optional<IpAddress> Walk(EntriesFromTheRight entries, const IpAddress& peer,
                              const CidrSet& trusted, ParseEntry parse) {
  std::optional<IpAddress> reached;
  for (std::size_t hop = 0; hop < kForwardedHopsMax; ++hop) {
    const auto entry = entries.Next();
    if (!entry) break;
    if (!reached) reached = peer;
    const std::optional<IpAddress> address = parse(*entry);
    if (!address) break;
    reached = address;
    if (!trusted.Contains(*address)) break;
  }
  return reached;
}

}  // namespace

Client FindClient(const IpAddress& peer, const CidrSet& trusted, const ForwardedFields& fields,
                  const ForwardedOptions& options) {
  using Quotes = EntriesFromTheRight::Quotes;
  if (!trusted.Contains(peer)) return {peer, ClientFrom::kPeer};

  if (options.x_forwarded_for && !fields.x_forwarded_for.empty()) {
    const auto address = Walk(EntriesFromTheRight(fields.x_forwarded_for, Quotes::kPlain), peer,
                              trusted, IpAddress::ParseWithPort);
    if (address) return {*address, ClientFrom::kXForwardedFor};
  }
  if (options.forwarded && !fields.forwarded.empty()) {
    const auto address =
        Walk(EntriesFromTheRight(fields.forwarded, Quotes::kQuoted), peer, trusted, ForOf);
    if (address) return {*address, ClientFrom::kForwarded};
  }
  if (options.x_real_ip && !fields.x_real_ip.empty()) {
    const bool one = fields.x_real_ip.size() == 1;
    const auto address =
        one ? IpAddress::ParseWithPort(text::Trim(fields.x_real_ip[0])) : std::nullopt;
    return {address.value_or(peer), ClientFrom::kXRealIp};
  }
  return {peer, ClientFrom::kPeer};
}

}  // namespace sluice::net
