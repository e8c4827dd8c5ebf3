// SPDX-License-Identifier: Apache-2.0
#include "rules/path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/glob.h"
#include "rules/path_pattern.h"

namespace sluice::rules {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Texts = std::vector<std::string>;

std::vector<Texts> ReadAll(std::string_view target) {
  PathReadings readings;
  const auto read = readings.Read(target);
  EXPECT_TRUE(read) << target;
  std::vector<Texts> all;
  for (std::size_t i = 0; i < readings.size(); ++i) {
    all.emplace_back(readings[i].begin(), readings[i].end());
  }
  return all;
}

// The segments of a path with one reading.
Texts Read(std::string_view target) {
  const auto all = ReadAll(target);
  EXPECT_EQ(all.size(), 1U) << target;
  return all.empty() ? Texts() : all.front();
}

TEST(Glob, StarsStandForAnyText) {
  EXPECT_TRUE(GlobMatch("*", ""));
  EXPECT_TRUE(GlobMatch("*", "anything"));
  EXPECT_TRUE(GlobMatch("", ""));
  EXPECT_FALSE(GlobMatch("", "a"));
  EXPECT_TRUE(GlobMatch("*.json", ".json"));
  EXPECT_TRUE(GlobMatch("*.json", "a.json.json"));
  EXPECT_FALSE(GlobMatch("*.json", "a.json.gz"));
  EXPECT_TRUE(GlobMatch("a*b*c", "abbbcbc"));
  EXPECT_FALSE(GlobMatch("a*b*c", "abbbcb"));
  EXPECT_TRUE(GlobMatch("192.0.2.*", "192.0.2.7"));
  EXPECT_FALSE(GlobMatch("192.0.2.*", "192.0.20.7"));
  EXPECT_TRUE(GlobMatch("**a**", "xay"));
}

// What almost matches everywhere must not be retried everywhere: then these would take a thousand
// times as long.
TEST(Glob, TakesTimeForTheSumOfLengths) {
  const std::string text(std::size_t{8} << 20U, 'a');
  const std::string piece = std::string(kGlobBytesMax - 3, 'a') + "b";
  EXPECT_FALSE(GlobMatch("*" + piece + "*", text));
  EXPECT_FALSE(GlobMatch("*a*" + piece.substr(3) + "*", text));
  EXPECT_TRUE(GlobMatch("*" + piece + "*", text + "bc"));
  EXPECT_TRUE(GlobMatch("*abab*aba*", "xxabaabababa"));
  EXPECT_FALSE(GlobMatch("a*a", "a"));
  EXPECT_FALSE(GlobMatch("*" + std::string(kGlobBytesMax, 'a'), text));
}

TEST(Path, DropsWhatDoesNotTellPathsApart) {
  EXPECT_THAT(Read("/v1/items"), ElementsAre("v1", "items"));
  EXPECT_THAT(Read("/v1/items/"), ElementsAre("v1", "items"));
  EXPECT_THAT(Read("/v1///items//"), ElementsAre("v1", "items"));
  EXPECT_THAT(Read("/v1/items?a/../b;c%2F#d"), ElementsAre("v1", "items"));
  EXPECT_THAT(Read("/a.b/.c/..d/x y"), ElementsAre("a.b", ".c", "..d", "x y"));
  EXPECT_THAT(Read("/"), IsEmpty());
}

TEST(Path, DecodesAtLeastOnce) {
  EXPECT_THAT(Read("/v1/%69tem%73"), ElementsAre("v1", "items"));
  EXPECT_THAT(Read("/%40me/%c3%A4\xC3\xA4"), ElementsAre("@me", "\xC3\xA4\xC3\xA4"));
  EXPECT_THAT(ReadAll("/%C3\xA4"), Contains(Texts{"\xC3\xA4"}));
  EXPECT_THAT(Read("/%28a%29b/(c)d/e(f)"), ElementsAre("(a)b", "(c)d", "e(f)"));
  EXPECT_THAT(Read("/a%20b/%E0%A4%85/%F0%9F%98%80"),
              ElementsAre("a b", "\xE0\xA4\x85", "\xF0\x9F\x98\x80"));
  EXPECT_THAT(Read("/100%/%zz/%4"), ElementsAre("100%", "%zz", "%4"));
  EXPECT_THAT(ReadAll("/%2569"), UnorderedElementsAre(Texts{"%69"}, Texts{"i"}));
  EXPECT_THAT(ReadAll("/%%369"), UnorderedElementsAre(Texts{"%69"}, Texts{"i"}));
}

TEST(Path, HasEveryReadingThatServersMayHave) {
  EXPECT_THAT(ReadAll("/a%2Fb"), UnorderedElementsAre(Texts{"a/b"}, Texts{"a", "b"}));
  EXPECT_THAT(ReadAll("/a\\b"), UnorderedElementsAre(Texts{"a\\b"}, Texts{"a", "b"}));
  EXPECT_THAT(ReadAll("/a/../b"), UnorderedElementsAre(Texts{"a", "..", "b"}, Texts{"b"}));
  EXPECT_THAT(ReadAll("/a;x/b"),
              UnorderedElementsAre(Texts{"a;x", "b"}, Texts{"a", "b"}, Texts{"a"}));
  EXPECT_THAT(ReadAll("/a//../b"),
              UnorderedElementsAre(Texts{"a", "..", "b"}, Texts{"a", "b"}, Texts{"b"}));
  EXPECT_THAT(ReadAll("/a;1%2Fb"),
              UnorderedElementsAre(Texts{"a;1/b"}, Texts{"a;1", "b"}, Texts{"a", "b"}, Texts{"a"}));
  EXPECT_THAT(ReadAll("/a%3Fb"), UnorderedElementsAre(Texts{"a?b"}, Texts{"a"}));
  EXPECT_THAT(ReadAll("/a#b"), UnorderedElementsAre(Texts{"a#b"}, Texts{"a"}));
  EXPECT_THAT(ReadAll("/a%00b"), UnorderedElementsAre(Texts{std::string("a\0b", 3)}, Texts{"a"}));
  EXPECT_THAT(ReadAll("/a./b"), UnorderedElementsAre(Texts{"a.", "b"}, Texts{"a", "b"}));
  EXPECT_THAT(ReadAll("/a%20"), UnorderedElementsAre(Texts{"a "}, Texts{"a"}));
  EXPECT_THAT(ReadAll("/%u0061%u002Fb"), Contains(Texts{"a", "b"}));
  EXPECT_THAT(ReadAll("/a/%C0%AE%C0%AE%c0%afb"), Contains(Texts{"b"}));
  EXPECT_THAT(ReadAll("/\xE0\x81\xA1/\xF0\x80\x81\xA2"), Contains(Texts{"a", "b"}));
  EXPECT_THAT(ReadAll("/%F8%80%80%81%A1/%FC%80%80%80%81%A2"), Contains(Texts{"a", "b"}));
  EXPECT_THAT(ReadAll("/a%FF"), UnorderedElementsAre(Texts{"a\xFF"}, Texts{"a"}));
  EXPECT_THAT(ReadAll("/\xE2\x82"
                      "a\xE2\x82\xAC\x80"),
              UnorderedElementsAre(Texts{"\xE2\x82"
                                         "a\xE2\x82\xAC\x80"},
                                   Texts{"a\xE2\x82\xAC"}));
  EXPECT_THAT(ReadAll("/a%C3/b"), UnorderedElementsAre(Texts{"a\xC3", "b"}, Texts{"a", "b"}));
  EXPECT_THAT(ReadAll("/a%0A"), UnorderedElementsAre(Texts{"a\n"}, Texts{"a"}));
  EXPECT_THAT(ReadAll("/%09a%0A"), UnorderedElementsAre(Texts{"\ta\n"}, Texts{"\ta"}, Texts{"a"}));
  EXPECT_THAT(ReadAll("/\ta%0A/"), Contains(Texts{"\ta"}));
  EXPECT_THAT(ReadAll("/a\tb\r"), UnorderedElementsAre(Texts{"a\tb\r"}, Texts{"ab"}));
  EXPECT_THAT(ReadAll("/(S(x))/a"), UnorderedElementsAre(Texts{"(S(x))", "a"}, Texts{"a"}));
  EXPECT_THAT(ReadAll("/a/%28S(x))"), UnorderedElementsAre(Texts{"a", "(S(x))"}, Texts{"a"}));
}

TEST(Path, IsFoundInEveryRequestTarget) {
  EXPECT_THAT(Read("http://host:80/a/b?c"), ElementsAre("a", "b"));
  EXPECT_THAT(Read("HTTPS://u:p@[::1]:80/a//b"), ElementsAre("a", "b"));
  EXPECT_THAT(Read("a+b.c-1://h/a"), ElementsAre("a"));
  for (const std::string_view root : {"", "?x", "?/a", "http://h", "http://h?x", "http://h?/..",
                                      "http://h?a#b", "HTTP://u@h:1?", "http://[::1]?/x"}) {
    EXPECT_THAT(Read(root), IsEmpty()) << root;
  }
  for (const std::string_view target : {"//h?x", "//h", "#x", "http://h#x", "h:443",
                                        "http:", "http:?x", "http:/", "///", "\\\\h"}) {
    EXPECT_THAT(ReadAll(target), Contains(IsEmpty())) << target;
  }
  for (const std::string_view target :
       {"a/b", "//h/a/b", "///h/a/b", "/\\h/a/b", "\\\\h\\a\\b", "http:/a/b", "http:a/b",
        "http:/h/a/b", "http:h/a/b", "http:\\\\h\\a\\b", "http://h\\a\\b", "//h\\a/b", "x:a/b"}) {
    EXPECT_THAT(ReadAll(target), Contains(Texts{"a", "b"})) << target;
  }
  EXPECT_THAT(ReadAll("//v1/items"), UnorderedElementsAre(Texts{"v1", "items"}, Texts{"items"}));
  EXPECT_THAT(Read("/redirect/http://host/a"), ElementsAre("redirect", "http:", "host", "a"));
  EXPECT_THAT(Read("a/http://host"), ElementsAre("a", "http:", "host"));
  EXPECT_THAT(Read("*"), ElementsAre("*"));
}

TEST(Path, WhatHasTooManyReadingsIsRefused) {
  PathReadings readings;
  const auto refused = [&](const std::string& target) {
    const auto read = readings.Read(target);
    return !read && read.error().code == ErrorCode::kInvalidRequest;
  };
  EXPECT_FALSE(refused("/" + std::string(kPathBytesMax - 1, 'a') + "?" + std::string(99999, 'b')));
  EXPECT_TRUE(refused("/" + std::string(kPathBytesMax, 'a')));
  EXPECT_FALSE(refused("http://h/" + std::string(kPathBytesMax - 1, 'a')));
  EXPECT_TRUE(refused("http://h/" + std::string(kPathBytesMax, 'a')));
  std::string encoded = "%";
  for (int i = 0; i < 2'000; ++i) encoded += "25";
  EXPECT_TRUE(refused("/" + encoded));
  EXPECT_TRUE(refused("/" + std::string(kPathBytesMax - 20, 'a') + "/..;%2F%3B%5C"));
  EXPECT_TRUE(refused("/a;b%2F%3Bc%255C..%2500/%252e./%253Bd%23e%3Ff/. /g"));
  EXPECT_FALSE(refused("/next"));
  EXPECT_EQ(readings.size(), 1U);
}

TEST(PathPattern, ReadsItsSegments) {
  using Kind = PatternSegment::Kind;
  const auto pattern = PathPattern::Parse("/v1//%69tems/{id}/*/*.json/**/**/{last}/");
  ASSERT_TRUE(pattern) << pattern.error().message;
  std::vector<Kind> kinds;
  for (const PatternSegment& segment : pattern->segments) kinds.push_back(segment.kind);
  EXPECT_THAT(kinds, ElementsAre(Kind::kLiteral, Kind::kLiteral, Kind::kAny, Kind::kAny,
                                 Kind::kGlob, Kind::kAnyDepth, Kind::kAny));
  EXPECT_EQ(pattern->segments[1].text, "items");
  EXPECT_EQ(pattern->segments[2].capture, "id");
  EXPECT_EQ(pattern->segments[4].text, "*.json");
  EXPECT_EQ(pattern->segments[6].capture, "last");
  EXPECT_TRUE(PathPattern::Parse("/")->segments.empty());
  EXPECT_EQ(PathPattern::Parse("/%2A")->segments[0].kind, Kind::kLiteral);
}

TEST(PathPattern, RefusesWhatCouldNeverMatch) {
  const auto message = [](std::string_view text) {
    const auto pattern = PathPattern::Parse(text);
    return pattern ? std::string("accepted") : pattern.error().message;
  };
  EXPECT_THAT(message("v1"), HasSubstr("start with /"));
  EXPECT_THAT(message(""), HasSubstr("start with /"));
  EXPECT_THAT(message("/a?b"), HasSubstr("query"));
  EXPECT_THAT(message("/a/../b"), HasSubstr("segments left"));
  EXPECT_THAT(message("/a/%2e"), HasSubstr("segments left"));
  EXPECT_THAT(message("/a**"), HasSubstr("** to be a whole segment"));
  EXPECT_THAT(message("/a{b}"), HasSubstr("{name} to be a whole segment"));
  EXPECT_THAT(message("/{}"), HasSubstr("{name}"));
  EXPECT_THAT(message("/{a}/{a}"), HasSubstr("each {name} once"));
  EXPECT_THAT(message("/**/{a}/**"), HasSubstr("between two **"));
  EXPECT_THAT(message("/%2A*"), HasSubstr("%2A"));
  EXPECT_THAT(message("/" + std::string(kPathPatternBytesMax, 'a')), HasSubstr("at most"));
  std::string deep;
  for (std::size_t i = 0; i <= kPatternSegmentsMax; ++i) deep += "/a";
  EXPECT_THAT(message(deep), HasSubstr("segments"));
}

}  // namespace
}  // namespace sluice::rules
