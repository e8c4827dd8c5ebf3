// SPDX-License-Identifier: Apache-2.0
// Path patterns: `/v1/items/{id}`, `/static/**`, `/reports/*.json`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"

namespace sluice::rules {

inline constexpr std::size_t kPathPatternBytesMax = 1024;
inline constexpr std::size_t kPatternSegmentsMax = 64;

struct PatternSegment {
  enum class Kind : std::uint8_t {
    kLiteral,   // The text itself.
    kGlob,      // The text, in which each `*` matches any characters.
    kAny,       // `*` or `{name}`: any one segment.
    kAnyDepth,  // `**`: any number of segments, or none.
  };
  Kind kind;
  std::string text;     // Percent-decoded. Empty for kAny and kAnyDepth.
  std::string capture;  // The name in `{name}`.
};
using SegmentKind = PatternSegment::Kind;

struct PathPattern {
  std::string text;  // As written.
  std::vector<PatternSegment> segments;

  // Error: kInvalidInput.
  static Expected<PathPattern> Parse(std::string_view text);
};

}  // namespace sluice::rules
