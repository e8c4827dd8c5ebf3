// SPDX-License-Identifier: Apache-2.0
#include "rules/path_pattern.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "rules/path.h"

namespace sluice::rules {
namespace {

std::unexpected<Error> Invalid(std::string_view text, std::string_view why) {
  return std::unexpected(
      Error{ErrorCode::kInvalidInput, text::Cat("path ", text::Quote(text), ": ", why)});
}

bool IsName(std::string_view text) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  return !text.empty() && text.find_first_not_of(kLetters) == std::string_view::npos;
}

Expected<PatternSegment> ParseSegment(std::string_view pattern, std::string_view text) {
  if (text == "**")
    return PatternSegment{.kind = SegmentKind::kAnyDepth, .text = {}, .capture = {}};
  if (text == "*") return PatternSegment{.kind = SegmentKind::kAny, .text = {}, .capture = {}};
  if (text.starts_with('{') && text.ends_with('}') && IsName(text.substr(1, text.size() - 2))) {
    return PatternSegment{.kind = SegmentKind::kAny,
                          .text = {},
                          .capture = std::string(text.substr(1, text.size() - 2))};
  }
  if (text.find_first_of("{}") != std::string_view::npos) {
    return Invalid(pattern,
                   "expected {name} to be a whole segment and its name to be of letters, digits, _ "
                   "and -; a brace itself is written %7B or %7D");
  }
  if (text.find("**") != std::string_view::npos) {
    return Invalid(pattern, "expected ** to be a whole segment");
  }
  PatternSegment segment{.kind = SegmentKind::kLiteral, .text = {}, .capture = {}};
  if (text.find('*') == std::string_view::npos) {
    AppendDecoded(segment.text, text);
    if (segment.text == "." || segment.text == "..") {
      return Invalid(pattern, "requests have no . and .. segments left when they are compared");
    }
    return segment;
  }
  segment.kind = SegmentKind::kGlob;
  AppendDecoded(segment.text, text);
  if (std::ranges::count(segment.text, '*') != std::ranges::count(text, '*')) {
    return Invalid(pattern, "expected %2A not to be in one segment with *");
  }
  return segment;
}

// A name after `**` is found by counting from the end, so it cannot be between two of them.
bool IsCaptureBetweenDepths(const std::vector<PatternSegment>& segments) {
  const auto is_depth = [](const PatternSegment& s) { return s.kind == SegmentKind::kAnyDepth; };
  const auto first = std::ranges::find_if(segments, is_depth);
  const auto last = std::find_if(segments.rbegin(), segments.rend(), is_depth).base();
  return first < last &&
         std::any_of(first, last, [](const PatternSegment& s) { return !s.capture.empty(); });
}

bool HasNameTwice(const std::vector<PatternSegment>& segments) {
  for (auto it = segments.begin(); it != segments.end(); ++it) {
    if (it->capture.empty()) continue;
    if (std::find_if(it + 1, segments.end(), [&](const PatternSegment& other) {
          return other.capture == it->capture;
        }) != segments.end()) {
      return true;
    }
  }
  return false;
}

}  // namespace

Expected<PathPattern> PathPattern::Parse(std::string_view text) {
  if (!text.starts_with('/')) return Invalid(text, "expected it to start with /");
  if (text.size() > kPathPatternBytesMax) {
    return Invalid(text, text::Cat("expected at most ", kPathPatternBytesMax, " bytes"));
  }
  if (text.find_first_of("?#") != std::string_view::npos) {
    return Invalid(text, "expected no query or fragment; a ? itself is written %3F");
  }
  PathPattern pattern{.text = std::string(text), .segments = {}};
  for (std::string_view rest = text; !rest.empty();) {
    rest.remove_prefix(1);
    const auto slash = std::min(rest.find('/'), rest.size());
    const std::string_view part = rest.substr(0, slash);
    rest.remove_prefix(slash);
    if (part.empty()) continue;
    auto segment = ParseSegment(text, part);
    if (!segment) return std::unexpected(std::move(segment.error()));
    auto& segments = pattern.segments;
    const bool repeats_depth = segment->kind == SegmentKind::kAnyDepth && !segments.empty() &&
                               segments.back().kind == SegmentKind::kAnyDepth;
    if (!repeats_depth) segments.push_back(*std::move(segment));
  }
  if (pattern.segments.size() > kPatternSegmentsMax) {
    return Invalid(text, text::Cat("expected at most ", kPatternSegmentsMax, " segments"));
  }
  if (HasNameTwice(pattern.segments)) return Invalid(text, "expected each {name} once");
  if (IsCaptureBetweenDepths(pattern.segments)) {
    return Invalid(text, "a {name} between two ** could be any of several segments; use * there");
  }
  return pattern;
}

}  // namespace sluice::rules
