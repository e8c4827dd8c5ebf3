// SPDX-License-Identifier: Apache-2.0
#include "net/url.h"

#include <algorithm>
#include <utility>

#include "base/percent.h"
#include "base/text.h"

namespace sluice::net {
namespace {

bool IsEncoded(std::string_view query) {
  // Not find_first_of, which looks each byte up in the set by a call.
  return std::ranges::any_of(query, [](char c) { return c == '%' || c == '+'; });
}

// The text itself if there is nothing to decode, otherwise a part of `scratch`.
std::optional<std::string_view> DecodedView(std::string_view raw, std::string& scratch) {
  if (!IsEncoded(raw)) return raw;
  const std::size_t begin = scratch.size();
  if (!AppendDecoded(scratch, raw, Plus::kSpace)) return std::nullopt;
  return std::string_view(scratch).substr(begin);
}

std::unexpected<Error> Fail(std::string message) {
  return std::unexpected(Error{ErrorCode::kInvalidInput, std::move(message)});
}

}  // namespace

bool AppendDecoded(std::string& out, std::string_view text, Plus plus) {
  const std::string_view special = plus == Plus::kSpace ? "%+" : "%";
  for (;;) {
    const std::size_t at = text.find_first_of(special);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return true;
    text.remove_prefix(at);
    if (text[0] == '+') {
      out += ' ';
      text.remove_prefix(1);
      continue;
    }
    const auto byte = text::DecodePercent(text);
    if (!byte) return false;
    out += *byte;
    text.remove_prefix(3);
  }
}

std::string HostName(std::string_view host) {
  // The colons of an IPv6 address are inside brackets.
  const auto address_end = host.starts_with('[') ? host.find(']') : 0;
  host = host.substr(0, host.find(':', address_end));
  while (host.ends_with('.')) host.remove_suffix(1);
  std::string name(host);
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return name;
}

std::optional<RawParameter> QueryReader::Next() {
  while (!rest_.empty()) {
    const std::string_view piece = rest_.substr(0, rest_.find('&'));
    rest_.remove_prefix(std::min(piece.size() + 1, rest_.size()));
    if (piece.empty()) continue;
    const std::size_t equals = piece.find('=');
    if (equals == std::string_view::npos) return RawParameter{piece, {}};
    return RawParameter{piece.substr(0, equals), piece.substr(equals + 1)};
  }
  return std::nullopt;
}

Expected<void> ReadQuery(std::string_view query, std::span<WantedParameter> wanted,
                         std::string& scratch) {
  scratch.clear();
  // Decoding never makes a text longer. With room for all of it, views into it stay valid.
  const bool is_encoded = IsEncoded(query);
  if (is_encoded) scratch.reserve(query.size());
  std::size_t count = 0;
  QueryReader reader(query);
  while (const auto parameter = reader.Next()) {
    if (++count > kQueryParametersMax) {
      return Fail(text::Cat("query: expected at most ", kQueryParametersMax, " parameters"));
    }
    const auto decoded = [&](std::string_view raw) {
      return is_encoded ? DecodedView(raw, scratch) : raw;
    };
    const std::optional<std::string_view> name = decoded(parameter->name);
    const std::optional<std::string_view> value = decoded(parameter->value);
    if (!name || !value) {
      return Fail(text::Cat("query parameter ", text::Quote(parameter->name),
                            ": expected two hexadecimal digits after each %"));
    }
    for (WantedParameter& one : wanted) {
      if (one.name != *name) continue;
      if (one.value) {
        return Fail(text::Cat("query parameter ", text::Quote(*name),
                              ": expected once, but it is given more than once"));
      }
      one.value = value;
    }
  }
  return {};
}

}  // namespace sluice::net
