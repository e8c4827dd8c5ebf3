// SPDX-License-Identifier: Apache-2.0
#include "telemetry/trace.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

namespace sluice::telemetry {
namespace {

constexpr std::string_view kValid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(Traceparent, IsReadInLaterVersionsAsFarAsTheyAreKnown) {
  EXPECT_TRUE(IsTraceparent(kValid));
  const std::string later = "cc" + std::string(kValid.substr(2));
  EXPECT_TRUE(IsTraceparent(later));
  EXPECT_TRUE(IsTraceparent(later + "-what-the-future-holds"));
  EXPECT_FALSE(IsTraceparent(later + "x"));
  EXPECT_FALSE(IsTraceparent("ff" + std::string(kValid.substr(2))));
}

TEST(Traceparent, MayHaveFlagsThatAreNotDefined) {
  EXPECT_TRUE(IsTraceparent(std::string(kValid.substr(0, 53)) + "fe"));
}

TEST(Traceparent, IsRefusedIfItIsNotValid) {
  EXPECT_FALSE(IsTraceparent(""));
  EXPECT_FALSE(IsTraceparent(std::string(kValid) + "-00")) << "version 00 ends here";
  EXPECT_FALSE(IsTraceparent(std::string(kValid) + " "));
  EXPECT_FALSE(IsTraceparent("00-00000000000000000000000000000000-00f067aa0ba902b7-01"));
  EXPECT_FALSE(IsTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"));
  for (std::size_t i = 0; i < kValid.size(); ++i) {
    for (const char c : {'G', 'A', ' ', '\0', '_'}) {
      std::string text(kValid);
      text[i] = c;
      EXPECT_FALSE(IsTraceparent(text)) << text;
    }
    EXPECT_FALSE(IsTraceparent(kValid.substr(0, i)));
  }
}

TEST(RequestId, AcceptsSafeTextAlone) {
  EXPECT_EQ(RequestId::Parse("f3a1-B_2.c:d/e+f=g@h~")->text(), "f3a1-B_2.c:d/e+f=g@h~");
  EXPECT_TRUE(RequestId::Parse(std::string(RequestId::kBytesMax, 'x')));
  EXPECT_FALSE(RequestId::Parse(std::string(RequestId::kBytesMax + 1, 'x')));
  for (const char* bad : {"", "a b", "a\r\nSet-Cookie: x", "a\"", "<b>", "\xC3\xA9", "a,b"}) {
    EXPECT_FALSE(RequestId::Parse(bad)) << bad;
  }
}

TEST(IdSource, MakesDistinctValidIds) {
  IdSource& source = IdSource::OfThisThread();
  std::set<std::string> seen;
  for (int i = 0; i < 10'000; ++i) {
    const RequestId id = source.NewRequestId();
    EXPECT_EQ(id.text().size(), 32u);
    ASSERT_TRUE(RequestId::Parse(id.text()));
    ASSERT_TRUE(seen.emplace(id.text()).second);
  }
}

TEST(IdSource, DiffersAmongThreadsAndRepeatsWithItsSeed) {
  std::uint64_t other = 0;
  std::jthread([&] { other = IdSource::OfThisThread().Next(); }).join();
  EXPECT_NE(IdSource::OfThisThread().Next(), other);
  EXPECT_EQ(IdSource(7).Next(), IdSource(7).Next());
  EXPECT_NE(IdSource(7).Next(), IdSource(8).Next());
}

TEST(IdSource, PrefersTheClientsRequestId) {
  IdSource source(1);
  EXPECT_EQ(source.RequestIdFor("mine").text(), "mine");
  EXPECT_EQ(source.RequestIdFor("not mine").text().size(), 32u);
}

}  // namespace
}  // namespace sluice::telemetry
