// SPDX-License-Identifier: Apache-2.0
#include "rules/path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rules/glob.h"
#include "rules/path_pattern.h"

namespace sluice::rules {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Texts = std::vector<std::string>;

Texts Read(std::string_view path, Reading reading = Reading::kPlain) {
  PathSegments segments;
  const auto views = segments.Read(RequestPath::Of(path), reading);
  return {views.begin(), views.end()};
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

TEST(Path, DropsWhatDoesNotTellPathsApart) {
  EXPECT_THAT(Read("/v1/items"), ElementsAre("v1", "items"));
  EXPECT_THAT(Read("/v1/items/"), ElementsAre("v1", "items"));
  EXPECT_THAT(Read("//v1///items//"), ElementsAre("v1", "items"));
  EXPECT_THAT(Read("v1/items"), ElementsAre("v1", "items"));
  EXPECT_THAT(Read("/v1/./x/../items/."), ElementsAre("v1", "items"));
  EXPECT_THAT(Read("/../../v1"), ElementsAre("v1"));
  EXPECT_THAT(Read("/"), IsEmpty());
  EXPECT_THAT(Read(""), IsEmpty());
}

TEST(Path, DecodesOnce) {
  EXPECT_THAT(Read("/v1/%69tem%73"), ElementsAre("v1", "items"));
  EXPECT_THAT(Read("/%40me/%e4%C3"), ElementsAre("@me", "\xe4\xc3"));
  EXPECT_THAT(Read("/a/%2e%2E/b"), ElementsAre("b"));
  EXPECT_THAT(Read("/%2569"), ElementsAre("%69"));
  EXPECT_THAT(Read("/100%/%zz/%4"), ElementsAre("100%", "%zz", "%4"));
}

TEST(Path, HasTwoReadingsWhereServersDisagree) {
  for (const std::string_view path : {"/a%2Fb", "/a%2fb", "/a\\b", "/a%5cb", "/a/b;x"}) {
    EXPECT_TRUE(RequestPath::Of(path).ambiguous) << path;
    EXPECT_THAT(Read(path, Reading::kLenient), ElementsAre("a", "b")) << path;
  }
  EXPECT_FALSE(RequestPath::Of("/a/b%20c").ambiguous);
  EXPECT_THAT(Read("/a%2Fb"), ElementsAre("a/b"));
  EXPECT_THAT(Read("/a\\b"), ElementsAre("a\\b"));
  EXPECT_THAT(Read("/a;x=1/b"), ElementsAre("a;x=1", "b"));
  EXPECT_THAT(Read("/a/..;x/b", Reading::kLenient), ElementsAre("b"));
  EXPECT_THAT(Read("/a/..%2Fb", Reading::kLenient), ElementsAre("b"));
}

TEST(Path, IsFoundInRequestTargets) {
  EXPECT_EQ(RequestPath::Of("/a/b?c=/d").text, "/a/b");
  EXPECT_EQ(RequestPath::Of("/a#b").text, "/a");
  EXPECT_EQ(RequestPath::Of("http://host:80/a/b?c").text, "/a/b");
  EXPECT_EQ(RequestPath::Of("http://host?c").text, "");
  EXPECT_EQ(RequestPath::Of("http://host").text, "");
  EXPECT_EQ(RequestPath::Of("/redirect/http://host/a").text, "/redirect/http://host/a");
  EXPECT_EQ(RequestPath::Of("a/http://host").text, "a/http://host");
  EXPECT_EQ(RequestPath::Of("*").text, "*");
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
