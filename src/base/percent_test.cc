// SPDX-License-Identifier: Apache-2.0
#include "base/percent.h"

#include <gtest/gtest.h>

namespace sluice::text {
namespace {

TEST(Percent, EncodesAllButWhatIsKept) {
  std::string out = "as it was, ";
  AppendPercentEncoded(out, "a-B~1 /%\n\xC3", IsUnreserved);
  EXPECT_EQ(out, "as it was, a-B~1%20%2F%25%0A%C3");
  out.clear();
  AppendPercentEncoded(out, "a/\n", [](char c) { return c == '/'; }, kLowerHex);
  EXPECT_EQ(out, "%61/%0a");
}

TEST(Percent, DecodesWhatItEncodes) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    for (const std::string_view digits : {kLowerHex, kUpperHex}) {
      std::string out;
      AppendPercentEncoded(out, {&c, 1}, [](char) { return false; }, digits);
      EXPECT_EQ(DecodePercent(out + "41"), c);
    }
  }
}

TEST(Percent, DecodesNothingElse) {
  for (const std::string_view text : {"", "%", "%4", "%4g", "%g4", "%%41", "% 41", "%-1", "41%"}) {
    EXPECT_EQ(DecodePercent(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace sluice::text
