// SPDX-License-Identifier: Apache-2.0
// The path of a request, split into segments so that different spellings of one path are equal.
// Whoever spells a path differently must not escape the rules for it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::rules {

// Percent-decodes; a `%` that no two hexadecimal digits follow stays as it is.
void AppendDecoded(std::string& out, std::string_view text);

// Servers disagree on some spellings. A rule applies if it matches either reading.
enum class Reading : std::uint8_t {
  kPlain,    // `%2F` and `\` are characters of a segment, and so is all that follows a `;`.
  kLenient,  // `%2F`, `\` and `%5C` separate segments; what follows a `;` in a segment is dropped.
};

// The path of a request target: without scheme, authority, query and fragment.
struct RequestPath {
  std::string_view text;
  bool encoded = false;    // A `%` is in it.
  bool ambiguous = false;  // Its readings may differ.

  static RequestPath Of(std::string_view target);
};

// Used again and again, it allocates nothing.
class PathSegments {
 public:
  // Empty segments and `.` are dropped, `..` drops the one before it, and each is percent-decoded
  // once. The views point into the path or into this object.
  std::span<const std::string_view> Read(const RequestPath& path, Reading reading);

  std::span<const std::string_view> get() const { return segments_; }

 private:
  void Add(std::string_view segment, bool encoded, Reading reading);

  std::vector<std::string_view> segments_;
  std::string decoded_;
};

}  // namespace sluice::rules
