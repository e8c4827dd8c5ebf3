// SPDX-License-Identifier: Apache-2.0
#include "net/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::net {
namespace {

using ::testing::HasSubstr;

TEST(ListenAddress, ReadsWhatPeopleWrite) {
  EXPECT_EQ(ListenAddress::Parse("127.0.0.1:8080"), (ListenAddress{"127.0.0.1", 8080}));
  EXPECT_EQ(ListenAddress::Parse("[::1]:8080"), (ListenAddress{"::1", 8080}));
  EXPECT_EQ(ListenAddress::Parse(":8080"), (ListenAddress{"", 8080}));
  EXPECT_EQ(ListenAddress::Parse("localhost:80"), (ListenAddress{"localhost", 80}));
  EXPECT_EQ(ListenAddress::Parse("0.0.0.0:0"), (ListenAddress{"0.0.0.0", 0}));
  EXPECT_EQ(ListenAddress::Parse("a:65535"), (ListenAddress{"a", 65'535}));
}

TEST(ListenAddress, IsWrittenAsItWasRead) {
  for (const char* text : {"127.0.0.1:8080", "[::1]:8080", ":8080", "localhost:80", "[::]:0"}) {
    EXPECT_EQ(ListenAddress::Parse(text)->ToString(), text);
  }
}

TEST(ListenAddress, KnowsWhatOnlyThisMachineReaches) {
  for (const char* text : {"127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "localhost:1", "LocalHost:1"}) {
    EXPECT_TRUE(ListenAddress::Parse(text)->IsLoopback()) << text;
  }
  for (const char* text : {":1", "0.0.0.0:1", "[::]:1", "192.0.2.1:1", "localhost.example:1"}) {
    EXPECT_FALSE(ListenAddress::Parse(text)->IsLoopback()) << text;
  }
}

TEST(ListenAddress, SaysWhatIsWrong) {
  for (const char* text : {"", "8080", "localhost", "127.0.0.1", "a:", "a:-1", "a:65536", "a:80x",
                           "a: 80", "::1:80", "[::1]", "[]:80", "[::1:80", "a b:80", "a/b:80",
                           "http://a:80", "a:99999999999999999999", "[a]b:80"}) {
    const auto parsed = ListenAddress::Parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidInput);
    EXPECT_THAT(parsed.error().message, HasSubstr("expected HOST:PORT such as 127.0.0.1:8080"));
  }
}

}  // namespace
}  // namespace sluice::net
