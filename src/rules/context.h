// SPDX-License-Identifier: Apache-2.0
// What is known about a request when its rules are chosen.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace sluice::rules {

inline constexpr std::size_t kValueBytesMax = 16'384;  // Each value in a context, except the path.
inline constexpr std::size_t kAttributesMax = 64;      // That a client may name.

struct Attribute {
  std::string_view name;
  std::string_view value;
};

// An empty text means unknown. Nothing is owned.
struct Context {
  std::string_view ip = {};
  std::string_view user_id = {};
  std::string_view api_key = {};
  std::string_view method = {};

  // As the client sent it: still percent-encoded, perhaps with a query, which is ignored. Any
  // request target is valid, even an empty text, which means `/`.
  std::optional<std::string_view> path = {};

  // If two have the same name, the first counts.
  std::span<const Attribute> attributes = {};
};

}  // namespace sluice::rules
