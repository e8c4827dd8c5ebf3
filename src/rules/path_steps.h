// SPDX-License-Identifier: Apache-2.0
// What servers do to a path before they look up what it names, one step at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sluice::rules {

// An encoded slash that is part of a segment. All other units of a text are bytes, and a `/` among
// them separates segments.
inline constexpr char16_t kInnerSlash = 0x100;

// What a text has that a step may change. Bits.
enum PathFeature : std::uint32_t {
  kEscape = 1U << 0U,         // %XX
  kUnicodeEscape = 1U << 1U,  // %uXXXX
  kOverlong = 1U << 2U,       // A character as UTF-8 of more bytes than needed.
  kInner = 1U << 3U,          // kInnerSlash
  kBackslash = 1U << 4U,
  kSemicolon = 1U << 5U,
  kQuestionMark = 1U << 6U,
  kNumberSign = 1U << 7U,
  kNul = 1U << 8U,
  kDots = 1U << 9U,  // A segment `.` or `..`.
  kEmptySegment = 1U << 10U,
  kAuthority = 1U << 11U,    // Two slashes of either kind at the start.
  kTrailing = 1U << 12U,     // Another segment that ends with a dot or a space.
  kLineBreak = 1U << 13U,    // Or a tab.
  kMalformed = 1U << 14U,    // A byte that is not part of UTF-8.
  kParentheses = 1U << 15U,  // A segment in parentheses.
};

// The text must start with a slash.
std::uint32_t FeaturesOf(std::u16string_view text);

struct PathStep {
  std::uint32_t needs;  // It changes nothing unless all of these are present.

  // Writes the result to `to`, which is empty. It is never longer, and starts with a slash.
  void (*take)(std::u16string_view text, std::u16string& to);
};

std::span<const PathStep> PathSteps();

}  // namespace sluice::rules
