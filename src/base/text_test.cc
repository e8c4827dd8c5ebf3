// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>

namespace sluice::text {
namespace {

TEST(Trim, RemovesBlanksAtBothEnds) {
  EXPECT_EQ(Trim(" \t a b \t"), "a b");
  EXPECT_EQ(Trim(" \t "), "");
  EXPECT_EQ(Trim(""), "");
}

TEST(EqualsIgnoreCase, ComparesAsciiLettersAlone) {
  EXPECT_TRUE(EqualsIgnoreCase("TOKEN_bucket", "token_BUCKET"));
  EXPECT_FALSE(EqualsIgnoreCase("token", "token_bucket"));
  EXPECT_FALSE(EqualsIgnoreCase("[", "{")) << "these differ by the bit that folds letters";
}

TEST(Quote, EscapesWhatATerminalOrALogMightObey) {
  EXPECT_EQ(Quote("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(Quote(std::string_view("\x1b[31m\n\0", 7)), R"("\x1b[31m\x0a\x00")");
  EXPECT_EQ(Quote("\xc3\xa9"), R"("\xc3\xa9")");
}

TEST(Quote, CutsLongText) { EXPECT_EQ(Quote(std::string(1000, 'x')).size(), 64u + 5u); }

TEST(Cat, JoinsTextsAndNumbers) { EXPECT_EQ(Cat("a", -1, std::string("b"), 2u), "a-1b2"); }

}  // namespace
}  // namespace sluice::text
