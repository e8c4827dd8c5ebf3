// SPDX-License-Identifier: Apache-2.0
#include "base/json_writer.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace sluice {
namespace {

std::string Escaped(std::string_view text) {
  std::string out;
  AppendJsonEscaped(out, text);
  return out;
}

TEST(JsonWriter, PlacesCommasBetweenValuesAtEveryDepth) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject().Field("a", 1).Field("b", "x").Field("c", true);
  json.Key("d").BeginArray().Number(-1).String("y").Bool(false).Null();
  json.BeginObject().EndObject().BeginArray().EndArray().EndArray();
  json.Key("e").Raw("{\"f\":2}").Field("g", std::string("z")).EndObject();
  EXPECT_EQ(out, R"({"a":1,"b":"x","c":true,"d":[-1,"y",false,null,{},[]],"e":{"f":2},"g":"z"})");
}

TEST(JsonWriter, WritesTheExtremesOfIntegers) {
  std::string out;
  JsonWriter json(out);
  json.BeginArray();
  json.Number(std::numeric_limits<std::int64_t>::min());
  json.Number(std::numeric_limits<std::uint64_t>::max());
  json.EndArray();
  EXPECT_EQ(out, "[-9223372036854775808,18446744073709551615]");
}

TEST(JsonEscape, EscapesQuotesBackslashesAndControlBytes) {
  EXPECT_EQ(Escaped("plain text /"), "plain text /");
  EXPECT_EQ(Escaped("a\"b\\c\nd"), R"(a\"b\\c\nd)");
  EXPECT_EQ(Escaped(std::string_view("\0\x1b\x7f", 3)), "\\u0000\\u001b\x7f");
}

// Plain text is looked at eight bytes at a time.
TEST(JsonEscape, TreatsEachByteAlikeWhereverItStands) {
  for (int value = 0; value < 256; ++value) {
    const std::string alone = Escaped(std::string(1, static_cast<char>(value)));
    for (std::size_t at = 0; at < 20; ++at) {
      std::string text(20, 'x');
      text[at] = static_cast<char>(value);
      EXPECT_EQ(Escaped(text), std::string(at, 'x') + alone + std::string(19 - at, 'x'))
          << "byte " << value << " at " << at;
    }
  }
}

TEST(JsonEscape, KeepsUtf8) {
  EXPECT_EQ(Escaped("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"),
            "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
}

TEST(JsonEscape, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(Escaped("a\x80z"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(Escaped("\xC3"), "\xEF\xBF\xBD") << "cut short";
  EXPECT_EQ(Escaped("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD") << "overlong";
  EXPECT_EQ(Escaped("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD") << "a surrogate";
  EXPECT_EQ(Escaped("\xF4\x90\x80\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(Escaped("\xE2\x82\""), "\xEF\xBF\xBD\xEF\xBF\xBD\\\"") << "the quote is not eaten";
}

TEST(Utf8Length, AcceptsExactlyTheEncodedCodePoints) {
  const auto encode = [](std::uint32_t c) {
    std::string out;
    const auto add = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
    if (c < 0x80) {
      add(c);
    } else if (c < 0x800) {
      add(0xC0 | c >> 6), add(0x80 | (c & 63));
    } else if (c < 0x10000) {
      add(0xE0 | c >> 12), add(0x80 | (c >> 6 & 63)), add(0x80 | (c & 63));
    } else {
      add(0xF0 | c >> 18), add(0x80 | (c >> 12 & 63)), add(0x80 | (c >> 6 & 63));
      add(0x80 | (c & 63));
    }
    return out;
  };
  for (std::uint32_t c = 0; c < 0x120000; ++c) {
    const std::string text = encode(c);
    const bool valid = c < 0xD800 || (c > 0xDFFF && c < 0x110000);
    ASSERT_EQ(text::Utf8Length(text), valid ? text.size() : 0) << std::hex << c;
  }
  // There are no other sequences: all pairs of bytes that claim to be one character.
  int pairs = 0;
  for (unsigned a = 0x80; a < 0x100; ++a) {
    for (unsigned b = 0; b < 0x100; ++b) {
      const std::string text = {static_cast<char>(a), static_cast<char>(b)};
      if (text::Utf8Length(text) == 2) ++pairs;
    }
  }
  EXPECT_EQ(pairs, 0x800 - 0x80);
}

TEST(AppendJsonBytes, ToldApartIsWhatIsNotUtf8) {
  const auto shown = [](std::string_view bytes) {
    std::string out;
    AppendJsonBytes(out, bytes);
    return out;
  };
  EXPECT_EQ(shown("user:caf\xC3\xA9\n\"\\"), "user:caf\xC3\xA9\\n\\\"\\\\");
  EXPECT_EQ(shown("a\xFFz"),
            "a\xEF\xBF\xBD"
            "FFz");
  EXPECT_EQ(shown("a\xFEz"),
            "a\xEF\xBF\xBD"
            "FEz");
  // Nor can a text imitate it.
  EXPECT_EQ(shown("\xEF\xBF\xBD"
                  "FF"),
            "\xEF\xBF\xBD"
            "EF"
            "\xEF\xBF\xBD"
            "BF"
            "\xEF\xBF\xBD"
            "BD"
            "FF");
}

TEST(CutUtf8, DoesNotSplitACharacter) {
  EXPECT_EQ(text::CutUtf8("abc", 3), "abc");
  EXPECT_EQ(text::CutUtf8("abcd", 3), "abc");
  EXPECT_EQ(text::CutUtf8("ab\xE2\x82\xAC", 4), "ab");
  EXPECT_EQ(text::CutUtf8("ab\xE2\x82\xAC", 5), "ab\xE2\x82\xAC");
  EXPECT_EQ(text::CutUtf8("\x80\x80\x80\x80\x80\x80", 5).size(), 5u);
  EXPECT_EQ(text::CutUtf8("\xE2\x82\xAC", 0), "");
}

}  // namespace
}  // namespace sluice
