// SPDX-License-Identifier: Apache-2.0
#include "rules/path.h"

#include <algorithm>
#include <array>
#include <functional>

#include "base/percent.h"
#include "base/text.h"
#include "base/utf8.h"
#include "rules/path_steps.h"

namespace sluice::rules {
namespace {

std::unexpected<Error> Refuse(std::string message) {
  return std::unexpected(Error{ErrorCode::kInvalidRequest, std::move(message)});
}

// The kinds of bytes in a path that has only one reading.
enum class ByteKind : std::uint8_t {
  kPlain,
  kSlash,
  kEnd,      // Of the path: the query follows.
  kEscape,   // See PlainEscapeSize.
  kUtf8,     // Part of a UTF-8 character, if well-formed.
  kSpecial,  // Such a path may have several readings.
};

constexpr std::array<ByteKind, 256> MakeKinds() {
  std::array<ByteKind, 256> kinds{};
  const auto set = [&](std::string_view bytes, ByteKind kind) {
    for (const char c : bytes) kinds[static_cast<unsigned char>(c)] = kind;
  };
  set("/", ByteKind::kSlash);
  set("?", ByteKind::kEnd);
  set("%", ByteKind::kEscape);
  set(std::string_view("\\;#\t\n\r\0", 7), ByteKind::kSpecial);
  std::fill(kinds.begin() + 0x80, kinds.end(), ByteKind::kUtf8);
  return kinds;
}
constexpr std::array<ByteKind, 256> kKinds = MakeKinds();

constexpr ByteKind KindOf(char c) { return kKinds[static_cast<unsigned char>(c)]; }

constexpr bool IsAlphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// The size of the escaped character that the text begins with, if every server reads it in the same
// way; otherwise 0.
std::size_t PlainEscapeSize(std::string_view text) {
  const auto byte = text::DecodePercent(text);
  if (!byte || *byte == '.' || *byte == '(' || *byte == ')') return 0;
  // A space at the end of a segment may be dropped.
  if (*byte == ' ') return text.size() > 3 && IsAlphanumeric(text[3]) ? 3 : 0;
  if (KindOf(*byte) == ByteKind::kPlain) return 3;
  if (KindOf(*byte) != ByteKind::kUtf8) return 0;
  std::array<char, 4> bytes{};
  for (char& each : bytes) {
    each = text::DecodePercent(text).value_or('\0');
    text.remove_prefix(std::min<std::size_t>(text.size(), 3));
  }
  return 3 * text::Utf8Length(std::string_view(bytes.data(), bytes.size()));
}

// For a target in absolute form, where its authority ends; 0 for any other, and where servers may
// disagree.
std::size_t AuthorityEnd(std::string_view target) {
  if (target.starts_with('/')) return 0;
  const auto scheme = target.find("://");
  if (scheme == std::string_view::npos || scheme > target.find_first_of("/\\?#")) return 0;
  const auto end = std::min(target.find_first_of("/\\?#", scheme + 3), target.size());
  const bool disputed = end < target.size() && (target[end] == '\\' || target[end] == '#');
  return disputed ? 0 : end;
}

}  // namespace

void AppendDecoded(std::string& out, std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = text::DecodePercent(text.substr(i));
    out += byte.value_or(text[i]);
    if (byte) i += 2;
  }
}

std::span<const std::string_view> PathReadings::operator[](std::size_t reading) const {
  const std::size_t begin = reading == 0 ? 0 : ends_[reading - 1];
  return std::span(segments_).subspan(begin, ends_[reading] - begin);
}

Expected<void> PathReadings::Read(std::string_view target) {
  segments_.clear();
  ends_.clear();
  bytes_.clear();
  const std::size_t authority = AuthorityEnd(target);
  const std::string_view rest = target.substr(authority);
  // Two slashes may precede an authority.
  if (rest.starts_with('/') && !rest.starts_with("//") && ReadPlain(rest)) return {};

  target = target.substr(0, target.find('?'));
  if (target.size() - authority > kPathBytesMax) {
    return Refuse(text::Cat("a path of ", target.size() - authority, " bytes; expected at most ",
                            kPathBytesMax));
  }
  segments_.clear();
  variants_.clear();
  units_.clear();
  work_ = 0;
  if (authority != 0) {
    AddForm(target.substr(authority));
  } else {
    AddForms(target);
  }
  if (auto found = FindVariants(); !found) return found;
  // Views into it must stay valid.
  bytes_.reserve(units_.size());
  for (const Variant& variant : variants_) {
    if (variant.decoded) Split(TextOf(variant));
  }
  return {};
}

// Returns false if the path may have several readings, or is too long.
bool PathReadings::ReadPlain(std::string_view path) {
  bool encoded = false;
  std::size_t begin = 1;
  std::size_t end = 1;
  const auto add = [&] {
    const std::string_view segment = path.substr(begin, end - begin);
    begin = end + 1;
    if (segment.empty()) return true;
    segments_.push_back(segment);
    const char last = segment.back();
    return last != '.' && last != ' ' && (last != ')' || segment.front() != '(');
  };
  for (bool in_path = true; in_path;) {
    while (end < path.size() && KindOf(path[end]) == ByteKind::kPlain) ++end;
    if (end >= path.size()) break;
    std::size_t size = 1;
    switch (KindOf(path[end])) {
      case ByteKind::kPlain:
        break;
      case ByteKind::kSlash:
        if (!add()) return false;
        break;
      case ByteKind::kEnd:
        in_path = false;
        size = 0;
        break;
      case ByteKind::kEscape:
        size = PlainEscapeSize(path.substr(end));
        if (size == 0) return false;
        encoded = true;
        break;
      case ByteKind::kUtf8:
        size = text::Utf8Length(path.substr(end));
        if (size == 0) return false;
        break;
      case ByteKind::kSpecial:
        return false;
    }
    end += size;
  }
  if (!add() || end > kPathBytesMax) return false;
  if (encoded) DecodeSegments(end);
  ends_.push_back(segments_.size());
  return true;
}

void PathReadings::DecodeSegments(std::size_t bytes) {
  // Views into it must stay valid; decoding never makes a text longer.
  bytes_.reserve(bytes);
  for (std::string_view& segment : segments_) {
    if (segment.find('%') == std::string_view::npos) continue;
    const std::size_t begin = bytes_.size();
    AppendDecoded(bytes_, segment);
    segment = std::string_view(bytes_).substr(begin);
  }
}

// The paths that a target that is not in absolute form may mean. There is always at least one.
void PathReadings::AddForms(std::string_view target) {
  AddForm(target);
  const auto colon = target.find(':');
  if (colon == std::string_view::npos || colon > target.find_first_of("/\\#")) return;
  const std::string_view rest = target.substr(colon + 1);
  AddForm(rest);
  // However many slashes follow a scheme, some servers read an authority after them.
  AddAfterAuthority(rest.substr(std::min(rest.find_first_not_of("/\\"), rest.size())));
}

// Servers disagree on what ends it besides a slash.
void PathReadings::AddAfterAuthority(std::string_view text) {
  for (const std::string_view ends : {"/", "/#", "/\\#"}) {
    AddForm(text.substr(std::min(text.find_first_of(ends), text.size())));
  }
}

void PathReadings::AddForm(std::string_view path) {
  made_.clear();
  if (!path.starts_with('/')) made_ += '/';
  for (const char c : path) made_ += static_cast<unsigned char>(c);
  Keep(made_, false);
}

// Adds the text to the variants unless it is already there.
void PathReadings::Keep(std::u16string_view text, bool decoded) {
  work_ += text.size();
  const std::size_t hash = std::hash<std::u16string_view>{}(text);
  const bool known = std::ranges::any_of(variants_, [&](const Variant& other) {
    return other.hash == hash && (other.decoded || !decoded) && TextOf(other) == text;
  });
  if (known) return;
  const std::uint32_t features = FeaturesOf(text);
  variants_.push_back({.begin = units_.size(),
                       .size = text.size(),
                       .hash = hash,
                       .features = features,
                       .decoded = decoded || (features & kEscape) == 0});
  units_ += text;
}

// Takes every step from every variant, until there is nothing new.
Expected<void> PathReadings::FindVariants() {
  for (std::size_t i = 0; i < variants_.size(); ++i) {
    const Variant from = variants_[i];
    for (const PathStep& step : PathSteps()) {
      if ((from.features & step.needs) != step.needs) continue;
      made_.clear();
      step.take(TextOf(from), made_);
      Keep(made_, from.decoded || step.needs == kEscape);
      if (variants_.size() > kPathVariantsMax || work_ > kPathWorkMax) {
        return Refuse("a path that can be read in too many ways");
      }
    }
  }
  return {};
}

void PathReadings::Split(std::u16string_view text) {
  for (std::size_t begin = 1; begin < text.size();) {
    const std::size_t end = std::min(text.find('/', begin), text.size());
    const std::size_t start = bytes_.size();
    for (const char16_t unit : text.substr(begin, end - begin)) {
      bytes_ += unit == kInnerSlash ? '/' : static_cast<char>(unit);
    }
    if (end > begin) segments_.push_back(std::string_view(bytes_).substr(start));
    begin = end + 1;
  }
  ends_.push_back(segments_.size());
}

std::u16string_view PathReadings::TextOf(const Variant& variant) const {
  return std::u16string_view(units_).substr(variant.begin, variant.size);
}

}  // namespace sluice::rules
