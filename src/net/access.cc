// SPDX-License-Identifier: Apache-2.0
#include "net/access.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace sluice::net {
namespace {

// Takes as long for a nearly right guess as for any other. Compares words: CRYPTO_memcmp goes byte
// by byte, and every request is compared with every token of the same length.
bool IsSame(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  std::uint64_t different = 0;
  std::size_t i = 0;
  for (; i + sizeof different <= a.size(); i += sizeof different) {
    std::uint64_t of_a = 0;
    std::uint64_t of_b = 0;
    std::memcpy(&of_a, a.data() + i, sizeof of_a);
    std::memcpy(&of_b, b.data() + i, sizeof of_b);
    different |= of_a ^ of_b;
    // Hides the intermediate result from the compiler, which could stop early otherwise.
    asm volatile("" : "+r"(different));
  }
  for (; i < a.size(); ++i) different |= static_cast<unsigned char>(a[i] ^ b[i]);
  return different == 0;
}

// What a header can carry: others strip blanks around a value.
bool IsVisible(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

std::string_view TrimLine(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t first = line.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(kBlanks) - first + 1);
}

}  // namespace

Expected<Tokens> Tokens::Parse(std::string_view text) {
  Tokens tokens;
  std::size_t number = 0;
  const auto invalid = [&](std::string_view message) {
    return std::unexpected(
        Error{ErrorCode::kInvalidInput, text::Cat("line ", number, ": ", message)});
  };
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = TrimLine(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.starts_with('#')) continue;
    const std::size_t blank = line.find_first_of(" \t");
    const bool named = blank != std::string_view::npos;
    const std::string_view name = named ? line.substr(0, blank) : std::string_view{};
    const std::string_view token = named ? TrimLine(line.substr(blank)) : line;
    if (!IsVisible(name) || !IsVisible(token)) {
      return invalid(
          "expected a token of visible ASCII characters without blanks, or a name and a token");
    }
    if (name.size() > kNameBytesMax || token.size() > kTokenBytesMax) {
      return invalid(text::Cat("expected a name of at most ", kNameBytesMax,
                               " bytes and a token of at most ", kTokenBytesMax));
    }
    if (tokens.Find(token)) return invalid("the token is already there; expected it once");
    if (tokens.size() == kCountMax) return invalid(text::Cat("expected at most ", kCountMax));
    tokens.Add(name, token);
  }
  if (tokens.size() == 0) {
    return std::unexpected(
        Error{ErrorCode::kInvalidInput, "there is no token; expected at least one"});
  }
  return tokens;
}

void Tokens::Add(std::string_view name, std::string_view token) {
  all_.push_back({.name = std::string(name), .secret = std::string(token)});
}

std::optional<std::string_view> Tokens::Find(std::string_view token) const {
  std::optional<std::string_view> name;
  // Visits all of them, so that the time does not reveal where it was found, either.
  for (const Token& known : all_) {
    if (IsSame(known.secret, token)) name = known.name;
  }
  return name;
}

void Access::SetTokens(Tokens tokens) {
  tokens_.store(std::make_shared<const Tokens>(std::move(tokens)), std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
}

std::optional<std::string> Access::Find(std::string_view token) const {
  const auto tokens = tokens_.load(std::memory_order_acquire);
  const auto name = tokens ? tokens->Find(token) : std::nullopt;
  if (!name) return std::nullopt;
  return std::string(*name);
}

bool Access::Knows(std::string_view token) const {
  if (token.empty()) return false;
  const auto tokens = tokens_.load(std::memory_order_acquire);
  return tokens && tokens->Find(token).has_value();
}

std::string_view BearerToken(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (!text::EqualsIgnoreCase(authorization.substr(0, kScheme.size()), kScheme)) return {};
  return text::Trim(authorization.substr(kScheme.size()));
}

}  // namespace sluice::net
