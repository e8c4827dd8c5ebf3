// SPDX-License-Identifier: Apache-2.0
#include "base/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = YamlNode::Kind;

std::string Problem(std::string_view text, YamlMerges merges = YamlMerges::kKeep) {
  Problems problems;
  if (YamlDocument::Load(text, "f", problems, merges)) return "accepted";
  return problems.front().ToString();
}

TEST(Yaml, KnowsWhereThingsStand) {
  Problems problems;
  const auto document = YamlDocument::Load("a:\n  - x\n  - {k: ~, q: \"~\"}\n", "f", problems);
  ASSERT_TRUE(document);
  const YamlNode& list = *document->root().items[1];
  EXPECT_EQ(list.items[0]->text, "x");
  EXPECT_EQ(list.items[0]->line, 2);
  EXPECT_EQ(list.items[0]->column, 5);
  EXPECT_EQ(list.items[1]->items[1]->kind, Kind::kNull);
  EXPECT_EQ(list.items[1]->items[3]->kind, Kind::kScalar);
  EXPECT_EQ(list.items[1]->items[3]->text, "~");
}

TEST(Yaml, EmptyTextIsNull) {
  Problems problems;
  EXPECT_EQ(YamlDocument::Load("", "f", problems)->root().kind, Kind::kNull);
  EXPECT_EQ(YamlDocument::Load("# nothing\n", "f", problems)->root().kind, Kind::kNull);
}

TEST(Yaml, SaysWhereItIsBroken) {
  EXPECT_THAT(Problem("a: [1, 2\nb: 3\n"), HasSubstr("f:2:"));
  EXPECT_THAT(Problem("a: b: c\n"), HasSubstr("f:1:"));
  EXPECT_THAT(Problem("a: 1\n---\nb: 2\n"), HasSubstr("second document"));
  EXPECT_THAT(Problem("a: *nowhere\n"), HasSubstr("f:1:"));
  EXPECT_THAT(Problem("\xc3\xa4: b: c\n"), HasSubstr("f:1:6:"));
}

TEST(Yaml, AliasesRepeatButNeverExplode) {
  Problems problems;
  const auto document = YamlDocument::Load("a: &x [1, 2]\nb: *x\n", "f", problems);
  ASSERT_TRUE(document);
  EXPECT_EQ(document->root().items[3]->items.size(), 2U);

  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += text::Cat("a", i, ": &a", i, " [");
    for (int j = 0; j < 10; ++j) bomb += text::Cat(j == 0 ? "" : ", ", "*a", i - 1);
    bomb += "]\n";
  }
  EXPECT_THAT(Problem(bomb), HasSubstr("more than 2000000 values"));
  std::string texts = "a: &a " + std::string(1'000'000, 'x') + "\nb: [";
  for (int i = 0; i < 200; ++i) texts += "*a, ";
  EXPECT_THAT(Problem(texts + "]\n"), HasSubstr("more than 2000000 values"));
  EXPECT_THAT(Problem("a: &a [*a]\n"), HasSubstr("inside what it repeats"));
}

// The last value of the text, which is a mapping of texts, with its merges resolved.
std::vector<std::string> Merged(std::string_view text) {
  Problems problems;
  const auto document = YamlDocument::Load(text, "f", problems, YamlMerges::kResolve);
  if (!document) return {problems.front().ToString()};
  std::vector<std::string> entries;
  const auto& items = document->root().items.back()->items;
  for (std::size_t i = 0; i < items.size(); i += 2) {
    entries.push_back(text::Cat(items[i]->text, "=", items[i + 1]->text, ":", items[i]->line));
  }
  return entries;
}

TEST(Yaml, MergesKeepTheirPlaces) {
  const std::string given = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\n";
  EXPECT_THAT(Merged(given + "c: {<<: *a, x: 5}"), ElementsAre("x=5:3", "y=2:1"));
  EXPECT_THAT(Merged(given + "c: {x: 5, <<: *a}"), ElementsAre("x=5:3", "y=2:1"));
  EXPECT_THAT(Merged(given + "c:\n  <<: [*a, *b]\n"), ElementsAre("x=1:1", "y=2:1", "z=4:2"));
  EXPECT_THAT(Merged(given + "c: {<<: [*b, {y: 6, x: 7}]}"),
              ElementsAre("y=3:2", "z=4:2", "x=7:3"));
  EXPECT_THAT(Merged(given + "c: &c {<<: *a, w: 0}\nd: {<<: *c}"),
              ElementsAre("w=0:3", "x=1:1", "y=2:1"));
  EXPECT_THAT(Merged("c: {<<: {}, x: 1, x: 2}"), ElementsAre("x=1:1", "x=2:1"));
  EXPECT_THAT(Merged("c: {\"<<\": x, y: <<}"), ElementsAre("<<=x:1", "y=<<:1"));
  for (const std::string_view wrong : {"x", "~", "[x]", "[[]]"}) {
    EXPECT_THAT(Merged(text::Cat("c: {<<: ", wrong, "}")),
                ElementsAre(HasSubstr("expected a mapping, or a list of mappings")));
  }
  EXPECT_EQ(Problem("c: {<<: x}"), "accepted");
}

TEST(Yaml, MergesNeverExplode) {
  std::string doubled = "a0: &a0 {x: 1}\n";
  for (int i = 1; i < 100; ++i) {
    doubled += text::Cat("a", i, ": &a", i, " {<<: [*a", i - 1, ", *a", i - 1, "]}\n");
  }
  EXPECT_THAT(Problem(doubled, YamlMerges::kResolve), HasSubstr("more than 2000000 values"));

  // Each level merges almost as much as is allowed, before any of them is complete.
  std::string nested = "a: &a {";
  for (int i = 0; i < 100'000; ++i) nested += text::Cat("k", i, ": 1, ");
  nested += "}\nb: ";
  for (int i = 0; i < 50; ++i) nested += "{x: {<<: [*a, *a, *a, *a, *a, *a, *a, *a]}, y: ";
  EXPECT_THAT(Problem(nested, YamlMerges::kResolve), HasSubstr("more than 2000000 values"));
}

TEST(Yaml, DepthAndSizeAreBounded) {
  EXPECT_THAT(Problem(std::string(100'000, '[')), HasSubstr("levels deep"));
  EXPECT_THAT(Problem(std::string(100'000, '{')), HasSubstr("levels deep"));
  std::string dashes;
  while (dashes.size() < 100'000) dashes += "- ";
  EXPECT_THAT(Problem(dashes), HasSubstr("levels deep"));
  std::string questions;
  while (questions.size() < 100'000) questions += "? ";
  EXPECT_THAT(Problem(questions), HasSubstr("levels deep"));
  EXPECT_THAT(Problem(std::string(kYamlBytesMax + 1, ' ')), HasSubstr("expected at most 8388608"));
}

TEST(YamlScalar, IsReadBackAsTheSameText) {
  for (const std::string_view text : {"plain",
                                      "",
                                      "null",
                                      "NULL",
                                      "~",
                                      "- x",
                                      "-",
                                      "a: b",
                                      "a #b",
                                      "\"",
                                      "\\",
                                      "'",
                                      "[",
                                      "{x}",
                                      "*x",
                                      "&x",
                                      "!x",
                                      "%",
                                      "@",
                                      "`",
                                      "|",
                                      ">",
                                      "true",
                                      "1.5",
                                      " x ",
                                      "x\ny",
                                      "\t",
                                      "\x01\x7f",
                                      "\xc3\xbc \xf0\x9f\x98\x80",
                                      "redis://h:1/?a=b"}) {
    Problems problems;
    const auto document = YamlDocument::Load("k: " + YamlScalar(text) + "\n", "f", problems);
    ASSERT_TRUE(document) << text;
    EXPECT_EQ(document->root().items[1]->kind, Kind::kScalar) << text;
    EXPECT_EQ(document->root().items[1]->text, text);
  }
}

}  // namespace
}  // namespace sluice
