// SPDX-License-Identifier: Apache-2.0
// What is known about a request when its rules are chosen.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace sluice::rules {

inline constexpr std::size_t kValueBytesMax = 16'384;  // Of all that a context holds but the path.

struct Attribute {
  std::string_view name;
  std::string_view value;
};

// An empty text means that it is not known. Nothing is owned.
struct Context {
  std::string_view ip = {};
  std::string_view user_id = {};
  std::string_view api_key = {};
  std::string_view method = {};

  // As the client sent it: still percent-encoded, perhaps with a query, which is ignored. Any
  // request target is one, also an empty text, which is `/`.
  std::optional<std::string_view> path = {};

  // Of two with one name the first counts.
  std::span<const Attribute> attributes = {};
};

}  // namespace sluice::rules
