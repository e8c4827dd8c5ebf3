// SPDX-License-Identifier: Apache-2.0
#include "rules/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/text.h"

namespace sluice::rules {
namespace {

using ::testing::HasSubstr;
using Kind = YamlNode::Kind;

std::string Problem(std::string_view text) {
  Problems problems;
  if (YamlDocument::Load(text, "f", problems)) return "accepted";
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
  EXPECT_THAT(Problem("a: &a [*a]\n"), HasSubstr("inside of what it repeats"));
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
}  // namespace sluice::rules
