// SPDX-License-Identifier: Apache-2.0
#include "rules/path_trie.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>
#include <set>

#include "base/glob.h"
#include "rules/path.h"

namespace sluice::rules {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Segments = std::span<const std::string_view>;
using Parts = std::span<const PatternSegment>;

class Patterns {
 public:
  explicit Patterns(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) patterns_.push_back(PathPattern::Parse(text).value());
    std::vector<PathTrie::Source> sources;
    for (std::uint32_t i = 0; i < patterns_.size(); ++i) sources.push_back({&patterns_[i], {i, 0}});
    trie_.emplace(sources);
  }

  std::set<std::uint32_t> Match(std::string_view path) {
    PathReadings readings;
    EXPECT_TRUE(readings.Read(path));
    EXPECT_EQ(readings.size(), 1U) << path;
    targets_.clear();
    trie_->Match(readings[0], scratch_, targets_);
    std::set<std::uint32_t> rules;
    for (const PathTrie::Target& target : targets_) rules.insert(target.rule);
    return rules;
  }

  // Of the last Match.
  std::size_t targets() const { return targets_.size(); }

  const std::vector<PathPattern>& patterns() const { return patterns_; }

 private:
  std::vector<PathPattern> patterns_;
  std::optional<PathTrie> trie_;
  PathTrie::Scratch scratch_;
  std::vector<PathTrie::Target> targets_;
};

TEST(PathTrie, FindsAllThatMatch) {
  Patterns patterns({"/v1/items", "/v1/items/{id}", "/v1/**", "/v1/*", "/**/comments", "/*/items",
                     "/", "/v1/*.json", "/**"});
  EXPECT_THAT(patterns.Match("/v1/items"), ElementsAre(0, 2, 3, 5, 8));
  EXPECT_THAT(patterns.Match("/v1/items/7"), ElementsAre(1, 2, 8));
  EXPECT_THAT(patterns.Match("/v1/items/7/comments"), ElementsAre(2, 4, 8));
  EXPECT_THAT(patterns.Match("/v1"), ElementsAre(2, 8));
  EXPECT_THAT(patterns.Match("/v1/a.json/"), ElementsAre(2, 3, 7, 8));
  EXPECT_THAT(patterns.Match("/comments"), ElementsAre(4, 8));
  EXPECT_THAT(patterns.Match("/"), ElementsAre(6, 8));
  EXPECT_THAT(Patterns({"/a/b"}).Match("/c"), IsEmpty());
  EXPECT_THAT(Patterns({"/a/b"}).Match("/a"), IsEmpty());
  EXPECT_THAT(Patterns({"/a/**/z"}).Match("/a/z"), ElementsAre(0));
  EXPECT_THAT(Patterns({"/a/**/z"}).Match("/a/b/z/c"), IsEmpty());
}

// Without care, the ways to divide a path between many `**` multiply.
TEST(PathTrie, NestedDepthsTakeNoMoreThanTheirProduct) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += "/**/a";
  Patterns patterns({text + "/**/b"});
  std::string path;
  for (int i = 0; i < 2'000; ++i) path += "/a";
  EXPECT_THAT(patterns.Match(path), IsEmpty());
  EXPECT_THAT(patterns.Match(path + "/b"), ElementsAre(0));
  EXPECT_LE(patterns.targets(), 2U);
}

// According to the reference, one pattern at a time.
bool Matches(Parts parts, Segments segments) {
  using Kind = PatternSegment::Kind;
  if (parts.empty()) return segments.empty();
  const PatternSegment& part = parts.front();
  if (part.kind == Kind::kAnyDepth) {
    return Matches(parts.subspan(1), segments) ||
           (!segments.empty() && Matches(parts, segments.subspan(1)));
  }
  if (segments.empty()) return false;
  const bool same = part.kind == Kind::kAny ||
                    (part.kind == Kind::kLiteral && part.text == segments.front()) ||
                    (part.kind == Kind::kGlob && GlobMatch(part.text, segments.front()));
  return same && Matches(parts.subspan(1), segments.subspan(1));
}

TEST(PathTrie, AgreesWithOnePatternAtATime) {
  const char* const given = std::getenv("SLUICE_TEST_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::cout << "SLUICE_TEST_SEED=" << seed << '\n';
  std::mt19937_64 random(seed);
  const std::vector<std::string> parts = {"a", "b", "ab", "*", "**", "a*", "*b", "{x}", "a*b"};
  const std::vector<std::string> words = {"a", "b", "ab", "aab", "c"};
  const auto join = [&](const std::vector<std::string>& from, std::size_t size_max) {
    std::string text = "/";
    for (std::size_t size = random() % (size_max + 1); size > 0; --size) {
      const std::string& part = from[random() % from.size()];
      // A name may occur once, and not between two `**`.
      text += (part == "{x}" && text.find_first_of("{*") != std::string::npos ? "*" : part) + "/";
      if (part == "{x}" && text.find("**") == std::string::npos) continue;
    }
    return text;
  };
  int matched = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> texts;
    while (texts.size() < 1 + round % 40U) texts.push_back(join(parts, 6));
    Patterns patterns(texts);
    for (int i = 0; i < 50; ++i) {
      const std::string path = join(words, 7);
      PathReadings readings;
      ASSERT_TRUE(readings.Read(path));
      const auto views = readings[0];
      std::set<std::uint32_t> expected;
      for (std::uint32_t j = 0; j < texts.size(); ++j) {
        if (Matches(patterns.patterns()[j].segments, views)) expected.insert(j);
      }
      matched += expected.empty() ? 0 : 1;
      ASSERT_EQ(patterns.Match(path), expected)
          << path << " under " << ::testing::PrintToString(texts);
    }
  }
  EXPECT_GT(matched, 1'000);
}

}  // namespace
}  // namespace sluice::rules
