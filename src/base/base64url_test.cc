// SPDX-License-Identifier: Apache-2.0
#include "base/base64url.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice::text {
namespace {

std::string Encode(std::string_view bytes) {
  std::string text;
  AppendBase64Url(text, bytes);
  return text;
}

TEST(Base64Url, WritesWhatTheStandardSays) {
  EXPECT_EQ(Encode(""), "");
  EXPECT_EQ(Encode("f"), "Zg");
  EXPECT_EQ(Encode("fo"), "Zm8");
  EXPECT_EQ(Encode("foo"), "Zm9v");
  EXPECT_EQ(Encode("foob"), "Zm9vYg");
  EXPECT_EQ(Encode("fooba"), "Zm9vYmE");
  EXPECT_EQ(Encode("foobar"), "Zm9vYmFy");
  EXPECT_EQ(Encode("\xFB\xFF\xBF"), "-_-_");
}

TEST(Base64Url, ReadsWhatItWrites) {
  std::mt19937 random(7);
  for (int round = 0; round < 1000; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    EXPECT_EQ(ParseBase64Url(Encode(bytes)), bytes);
  }
}

TEST(Base64Url, ReadsNothingElse) {
  for (const std::string_view text :
       {"Zg==", "Zm9v\n", "+/+/", "Z", "Zm9vZ", "Zh", "Zm9", "Zm 9v"}) {
    EXPECT_EQ(ParseBase64Url(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace sluice::text
