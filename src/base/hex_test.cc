// SPDX-License-Identifier: Apache-2.0
#include "base/hex.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::text {
namespace {

TEST(HexDigits, AreThoseOfEachHalfByteTheLowestFirst) {
  const auto digits = HexDigits(0x0f9a3c71);
  EXPECT_EQ(std::string(digits.begin(), digits.end()), "17c3a9f0");
  for (std::uint32_t value = 0; value < 16; ++value) {
    for (std::size_t at = 0; at < 8; ++at) {
      std::string expected(8, '0');
      expected[at] = kLowerHex[value];
      const auto one = HexDigits(value << (4 * at));
      EXPECT_EQ(std::string(one.begin(), one.end()), expected);
    }
  }
}

}  // namespace
}  // namespace sluice::text
