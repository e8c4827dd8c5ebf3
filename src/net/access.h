// SPDX-License-Identifier: Apache-2.0
// Who may use a door: callers that show one of its tokens or, over TLS, a certificate.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"

namespace sluice::net {

// Secrets, each with a name that may be shown. Constant after construction.
class Tokens {
 public:
  static constexpr std::size_t kCountMax = 256;
  static constexpr std::size_t kNameBytesMax = 64;
  static constexpr std::size_t kTokenBytesMax = 4096;
  static constexpr std::size_t kFileBytesMax = 1 << 20;

  Tokens() = default;

  // One token per line, or its name and the token separated by blanks; blank lines and lines that
  // begin with '#' are skipped. Both are visible ASCII. Several tokens may share a name, while a
  // caller's old token is being replaced. Errors are kInvalidInput, give the line number, and never
  // show the line's content.
  static Expected<Tokens> Parse(std::string_view text);

  // Added as it is, whatever characters it has; not empty.
  void Add(std::string_view name, std::string_view token);

  // The name of a token, which may be empty; nothing if the token is unknown. The time that this
  // takes reveals only how many tokens are as long as this one.
  std::optional<std::string_view> Find(std::string_view token) const;

  std::size_t size() const { return all_.size(); }

 private:
  struct Token {
    std::string name;
    std::string secret;
  };

  std::vector<Token> all_;
};

// The tokens of a door, which may be replaced while it is open. Every method may be called from any
// thread.
class Access {
 public:
  enum class Door : std::uint8_t { kOpen, kGuarded };

  // An open door asks for no credentials, and has no tokens.
  explicit Access(Door door) : door_(door) {}

  bool open() const { return door_ == Door::kOpen; }

  void SetTokens(Tokens tokens);

  // Goes up whenever tokens are set, so that callers know when to look up a token again.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // As Tokens::Find, for the current tokens.
  std::optional<std::string> Find(std::string_view token) const;
  bool Knows(std::string_view token) const;

 private:
  const Door door_;
  std::atomic<std::shared_ptr<const Tokens>> tokens_;
  std::atomic<std::uint64_t> generation_ = 0;
};

// The token in the value of an Authorization field; empty if the scheme is another one.
std::string_view BearerToken(std::string_view authorization);

}  // namespace sluice::net
