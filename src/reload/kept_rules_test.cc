// SPDX-License-Identifier: Apache-2.0
#include "reload/kept_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/digest.h"
#include "support/temporary_folder.h"

namespace sluice::reload {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

KeptRules Some() {
  return {.revision = {.lineage = std::string(32, 'a'), .number = 7},
          .stored = {{"one", "{id: one}\n"}, {std::string("a b\n\0c", 6), ""}, {"two", "bad: ["}},
          .good = {{"two", "{id: two}"}}};
}

TEST(KeptRules, AreReadAsTheyWereWritten) {
  for (const KeptRules& kept : {Some(), KeptRules{}}) {
    const auto again = Decode(Encode(kept));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, kept);
  }
}

TEST(KeptRules, AreRefusedIfAByteIsNotAsItWasWritten) {
  const std::string text = Encode(Some());
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_FALSE(Decode(text.substr(0, i))) << i;
    std::string flipped = text;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    EXPECT_FALSE(Decode(flipped)) << i;
  }
  EXPECT_FALSE(Decode(text + "\n"));
}

TEST(KeptRules, AreRefusedIfTheirLengthsLieUnderARightChecksum) {
  for (const std::string body :
       {"", "x", "x\n", "\nstored 1 1\na", "\nstored 1 1\nab", "\nstored 9999999999999 1\nab\n",
        "\nstored 1 9999999999999\nab\n", "\nstored -1 3\nab\n", "\nother 1 1\nab\n",
        "\nstored 1 1\nab\nstored 1 1\nac\n", "\nstored 1\n"}) {
    std::string text = "sluice-rules 1 ";
    AppendSha256(text, body);
    EXPECT_FALSE(Decode(text + "\n" + body)) << body;
  }
}

TEST(KeptRules, ReplaceTheirFileWholeAndLeaveNothingBeside) {
  const testing_support::TemporaryFolder folder;
  const std::string file = (folder.path() / "kept").string();
  EXPECT_EQ(reload::Read(file).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(Write(KeptRules{}, file));
  ASSERT_TRUE(Write(Some(), file));
  EXPECT_EQ(reload::Read(file).value(), Some());
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  // A file that cannot be put in place leaves the old one and no trace.
  fs::create_directory(folder.path() / "taken");
  EXPECT_FALSE(Write(Some(), (folder.path() / "taken").string()));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 2);
}

TEST(KeptRules, AreSetAsideIfTheyAreDamaged) {
  const testing_support::TemporaryFolder folder;
  const std::string file = (folder.path() / "kept").string();
  std::ofstream(file) << "something else";
  const auto refused = reload::Read(file);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(refused.error().message, HasSubstr("set aside as " + file + ".damaged"));
  EXPECT_FALSE(fs::exists(file));
  EXPECT_TRUE(fs::exists(file + ".damaged"));
}

}  // namespace
}  // namespace sluice::reload
