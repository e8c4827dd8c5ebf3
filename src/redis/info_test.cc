// SPDX-License-Identifier: Apache-2.0
#include "redis/info.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::redis {
namespace {

const std::string kInfo =
    "# Memory\r\nused_memory:1054728\r\nused_memory_human:1.01M\r\nmaxmemory:2097152\r\n\r\n"
    "# Stats\r\ntotal_net_input_bytes:140\r\ntotal_net_output_bytes:70123\r\n"
    "expired_keys:42\r\nexpired_stale_perc:0.00\r\nevicted_keys:3\r\n\r\n"
    "# Keyspace\r\ndb0:keys=12,expires=11,avg_ttl=3421\r\ndb1:keys=2,expires=0,avg_ttl=0\r\n";

TEST(ParseInfo, TakesWhatAServerSaysOfItself) {
  const auto figures = ParseInfo(kInfo, 0);
  ASSERT_TRUE(figures);
  EXPECT_EQ(*figures, (ServerFigures{.keys = 12,
                                     .memory_bytes = 1054728,
                                     .memory_max_bytes = 2097152,
                                     .expired_keys = 42,
                                     .evicted_keys = 3,
                                     .received_bytes = 140,
                                     .sent_bytes = 70123}));
}

TEST(ParseInfo, CountsTheKeysOfOneDatabase) {
  EXPECT_EQ(ParseInfo(kInfo, 1)->keys, 2);
  EXPECT_EQ(ParseInfo(kInfo, 2)->keys, 0) << "an empty one is not named";
  EXPECT_EQ(ParseInfo(kInfo, 10)->keys, 0);
}

TEST(ParseInfo, TakesNothingElseForIt) {
  for (const char* text : {"", ":", "\r\n", "PONG", "cluster_state:ok\r\n", "# Memory\r\n"}) {
    EXPECT_FALSE(ParseInfo(text, 0)) << text;
  }
}

TEST(ParseInfo, BearsNumbersThatAreNone) {
  const auto figures = ParseInfo(
      "used_memory:99999999999999999999\r\nmaxmemory:-1\r\nexpired_keys:\r\nevicted_keys:1x\r\n"
      "db0:keys=\r\ndb0:\r\ntotal_net_input_bytes:7",
      0);
  ASSERT_TRUE(figures);
  EXPECT_EQ(*figures, (ServerFigures{.received_bytes = 7}));
}

}  // namespace
}  // namespace sluice::redis
