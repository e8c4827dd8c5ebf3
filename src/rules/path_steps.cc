// SPDX-License-Identifier: Apache-2.0
#include "rules/path_steps.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/hex.h"
#include "base/utf8.h"

namespace sluice::rules {
namespace {

using Text = std::u16string_view;

constexpr std::size_t kEscapeSize = 3;         // %XX
constexpr std::size_t kUnicodeEscapeSize = 6;  // %uXXXX

int HexOf(char16_t unit) { return unit < 0x80 ? text::HexValue(static_cast<char>(unit)) : -1; }

// The value of these hexadecimal digits, or -1.
int HexNumber(Text digits) {
  int number = 0;
  for (const char16_t digit : digits) {
    const int value = HexOf(digit);
    if (value < 0) return -1;
    number = number * 16 + value;
  }
  return number;
}

// The value of the %XX that the text begins with, or -1.
int EscapeValue(Text text) {
  const bool starts = text.size() >= kEscapeSize && text[0] == '%';
  return starts ? HexNumber(text.substr(1, 2)) : -1;
}

// The value of the %uXXXX that the text begins with, or -1. IIS accepts it.
int UnicodeEscapeValue(Text text) {
  const bool starts =
      text.size() >= kUnicodeEscapeSize && text[0] == '%' && (text[1] == 'u' || text[1] == 'U');
  return starts ? HexNumber(text.substr(2, 4)) : -1;
}

bool IsContinuation(char16_t unit) { return unit >= 0x80 && unit < 0xC0; }

// The size of the character that the text begins with, if it is UTF-8 of more bytes than needed;
// otherwise 0.
std::size_t OverlongSize(Text text) {
  const auto begins = [&](std::size_t size, Text zeros, char16_t end) {
    return text.size() >= size && text.starts_with(zeros) && text[zeros.size()] < end &&
           std::ranges::all_of(text.substr(1, size - 1), IsContinuation);
  };
  if (begins(2, u"\xC0", 0xC0) || begins(2, u"\xC1", 0xC0)) return 2;
  if (begins(3, u"\xE0", 0xA0)) return 3;
  if (begins(4, u"\xF0", 0x90)) return 4;
  if (begins(5, u"\xF8\x80", 0x90)) return 5;
  if (begins(6, u"\xFC\x80\x80", 0x90)) return 6;
  return 0;
}

// The size in units of the well-formed character that the text begins with; otherwise 0.
std::size_t CharacterSize(Text text) {
  if (text[0] < 0x80 || text[0] == kInnerSlash) return 1;
  std::array<char, 4> bytes{};
  const std::size_t size = std::min(text.size(), bytes.size());
  for (std::size_t i = 0; i < size && text[i] != kInnerSlash; ++i) {
    bytes[i] = static_cast<char>(text[i]);
  }
  return text::Utf8Length(std::string_view(bytes.data(), size));
}

bool IsDots(Text segment) { return segment == u"." || segment == u".."; }

bool IsInParentheses(Text segment) { return segment.starts_with(u'(') && segment.ends_with(u')'); }

bool IsLineBreak(char16_t unit) { return unit == '\t' || unit == '\n' || unit == '\r'; }

char16_t Byte(int value) { return value == '/' ? kInnerSlash : static_cast<char16_t>(value); }

void AppendUtf8(std::u16string& to, int character) {
  if (character < 0x80) {
    to += Byte(character);
  } else if (character < 0x800) {
    to += static_cast<char16_t>(0xC0 | (character >> 6));
    to += static_cast<char16_t>(0x80 | (character & 0x3F));
  } else {
    to += static_cast<char16_t>(0xE0 | (character >> 12));
    to += static_cast<char16_t>(0x80 | ((character >> 6) & 0x3F));
    to += static_cast<char16_t>(0x80 | (character & 0x3F));
  }
}

// Appends the text with each escape decoded: `value` of the text from there, unless it is negative,
// replaces `size` units.
template <auto value, std::size_t size>
void AppendUnescaped(Text text, std::u16string& to) {
  while (true) {
    const std::size_t percent = std::min(text.find('%'), text.size());
    to += text.substr(0, percent);
    text.remove_prefix(percent);
    if (text.empty()) return;
    const int character = value(text);
    if (character < 0) {
      to += u'%';
    } else if constexpr (size == kEscapeSize) {
      to += Byte(character);
    } else {
      AppendUtf8(to, character);
    }
    text.remove_prefix(character < 0 ? 1 : size);
  }
}

void Decode(Text text, std::u16string& to) { AppendUnescaped<EscapeValue, kEscapeSize>(text, to); }

void DecodeUnicode(Text text, std::u16string& to) {
  AppendUnescaped<UnicodeEscapeValue, kUnicodeEscapeSize>(text, to);
}

// Like decoders before overlong forms were forbidden.
void DecodeOverlong(Text text, std::u16string& to) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t size = OverlongSize(text.substr(i));
    if (size == 0) {
      to += text[i];
      continue;
    }
    // In a two-byte form, the first byte has five bits of the character; in longer ones, all of its
    // bits are 0.
    int character = size == 2 ? text[i] & 0x1F : 0;
    for (std::size_t j = 1; j < size; ++j) character = character * 64 + (text[i + j] & 0x3F);
    AppendUtf8(to, character);
    i += size - 1;
  }
}

// Like decoders that ignore errors.
void DropMalformed(Text text, std::u16string& to) {
  while (!text.empty()) {
    const std::size_t size = CharacterSize(text);
    to += text.substr(0, size);
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
}

// Like URL parsers.
void DropLineBreaks(Text text, std::u16string& to) {
  std::ranges::copy_if(text, std::back_inserter(to),
                       [](char16_t unit) { return !IsLineBreak(unit); });
}

// `$` in a regular expression also matches before it. Slashes after it may be gone by then.
void DropFinalLineFeed(Text text, std::u16string& to) {
  const Text path = text.substr(0, text.find_last_not_of('/') + 1);
  to += path.ends_with(u'\n') ? path.substr(0, path.size() - 1) : text;
}

template <char16_t kWhat>
void MakeSeparator(Text text, std::u16string& to) {
  to = text;
  std::ranges::replace(to, kWhat, u'/');
}

template <char16_t kEnd>
void CutAt(Text text, std::u16string& to) {
  to += text.substr(0, text.find(kEnd));
}

// Calls `take` with each segment.
template <typename Take>
void ForEachSegment(Text text, Take take) {
  for (std::size_t begin = 1; begin <= text.size();) {
    const std::size_t end = std::min(text.find('/', begin), text.size());
    take(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

void DropParameters(Text text, std::u16string& to) {
  ForEachSegment(text, [&](Text segment) {
    to += '/';
    to += segment.substr(0, segment.find(';'));
  });
}

// ASP.NET keeps cookieless sessions in the first such segment: `/(S(x))/a` is `/a`.
void DropParentheses(Text text, std::u16string& to) {
  bool dropped = false;
  ForEachSegment(text, [&](Text segment) {
    if (!dropped && IsInParentheses(segment)) {
      dropped = true;
      return;
    }
    to += '/';
    to += segment;
  });
  if (to.empty()) to = u'/';
}

// From the last segment only, as in RFC 1808.
void DropLastParameters(Text text, std::u16string& to) {
  const std::size_t end = text.find_last_not_of('/') + 1;
  const std::size_t begin = text.rfind('/', end);
  to += text.substr(0, std::min(text.find(';', begin), end));
}

// Windows drops them from file names. A server that does so before it resolves `..` finds more of
// those.
enum class Trailing : std::uint8_t { kSpaces, kDotsAndSpaces };

template <Trailing kWhat>
void TrimSegments(Text text, std::u16string& to) {
  ForEachSegment(text, [&](Text segment) {
    const Text trimmed = kWhat == Trailing::kSpaces ? u" " : u". ";
    to += '/';
    to += IsDots(segment) ? segment : segment.substr(0, segment.find_last_not_of(trimmed) + 1);
  });
}

// What ends an authority besides a slash.
enum class AuthorityEnds : std::uint8_t { kSlash, kBackslashToo };

// As in a relative reference, two slashes may precede an authority. Some servers treat more than
// two the same way.
template <AuthorityEnds kEnds>
void DropAuthority(Text text, std::u16string& to) {
  const Text ends = kEnds == AuthorityEnds::kSlash ? u"/" : u"/\\#";
  const std::size_t begin = std::min(text.find_first_not_of(u"/\\"), text.size());
  const Text rest = text.substr(std::min(text.find_first_of(ends, begin), text.size()));
  if (!rest.starts_with(u'/')) to += u'/';
  to += rest;
}

enum class EmptySegments : std::uint8_t {
  kDropped,  // `/a//../b` is `/b`.
  kCounted,  // `/a//../b` is `/a/b`, as in RFC 3986.
};

template <EmptySegments kEmpty>
void ResolveDots(Text text, std::u16string& to) {
  ForEachSegment(text, [&](Text segment) {
    if (segment == u".") return;
    if (segment.empty() && kEmpty == EmptySegments::kDropped) return;
    if (segment == u"..") {
      if (!to.empty()) to.resize(to.rfind('/'));
      return;
    }
    to += '/';
    to += segment;
  });
  if (to.empty()) to = u'/';
}

// To support a server that does something else to paths, add a row here; all its combinations with
// the others follow.
constexpr std::array<PathStep, 21> kSteps = {{
    {kEscape, Decode},
    {kUnicodeEscape, DecodeUnicode},
    {kOverlong, DecodeOverlong},
    {kInner, MakeSeparator<kInnerSlash>},
    {kBackslash, MakeSeparator<u'\\'>},
    {kSemicolon, DropParameters},
    {kSemicolon, DropLastParameters},
    {kSemicolon, CutAt<u';'>},
    {kQuestionMark, CutAt<u'?'>},
    {kNumberSign, CutAt<u'#'>},
    {kNul, CutAt<u'\0'>},
    {kDots, ResolveDots<EmptySegments::kDropped>},
    {kDots | kEmptySegment, ResolveDots<EmptySegments::kCounted>},
    {kAuthority, DropAuthority<AuthorityEnds::kSlash>},
    {kAuthority, DropAuthority<AuthorityEnds::kBackslashToo>},
    {kTrailing, TrimSegments<Trailing::kSpaces>},
    {kTrailing, TrimSegments<Trailing::kDotsAndSpaces>},
    {kLineBreak, DropLineBreaks},
    {kLineBreak, DropFinalLineFeed},
    {kMalformed, DropMalformed},
    {kParentheses, DropParentheses},
}};

// By unit: whether it may be one of the features.
constexpr auto kMayBeFeature = [] {
  std::array<bool, kInnerSlash + 1> may{};
  for (const char16_t unit :
       {u'%', u'\\', u';', u'?', u'#', u'\0', u'\t', u'\n', u'\r', kInnerSlash}) {
    may[unit] = true;
  }
  std::fill(may.begin() + 0x80, may.begin() + kInnerSlash, true);
  return may;
}();

std::uint32_t FeatureOf(Text text, std::size_t i) {
  switch (text[i]) {
    case '%':
      if (EscapeValue(text.substr(i)) >= 0) return kEscape;
      return UnicodeEscapeValue(text.substr(i)) >= 0 ? std::uint32_t{kUnicodeEscape} : 0;
    case '\\':
      return kBackslash;
    case ';':
      return kSemicolon;
    case '?':
      return kQuestionMark;
    case '#':
      return kNumberSign;
    case '\0':
      return kNul;
    case '\t':
    case '\n':
    case '\r':
      return kLineBreak;
    case kInnerSlash:
      return kInner;
    default:
      return OverlongSize(text.substr(i)) != 0 ? kOverlong | kMalformed : std::uint32_t{kMalformed};
  }
}

}  // namespace

std::uint32_t FeaturesOf(Text text) {
  std::uint32_t features = 0;
  if (text.size() > 1 && (text[1] == '/' || text[1] == '\\')) features |= kAuthority;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!kMayBeFeature[text[i]]) continue;
    const std::size_t size = CharacterSize(text.substr(i));
    if (size > 1) {
      i += size - 1;
    } else {
      features |= FeatureOf(text, i);
    }
  }
  ForEachSegment(text, [&](Text segment) {
    if (segment.empty()) {
      features |= kEmptySegment;
    } else if (IsDots(segment)) {
      features |= kDots;
    } else if (segment.back() == '.' || segment.back() == ' ') {
      features |= kTrailing;
    } else if (IsInParentheses(segment)) {
      features |= kParentheses;
    }
  });
  return features;
}

std::span<const PathStep> PathSteps() { return kSteps; }

}  // namespace sluice::rules
