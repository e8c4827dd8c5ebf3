// SPDX-License-Identifier: Apache-2.0
#include "redis/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::redis {
namespace {

TEST(SlotOf, IsWhatRedisSays) {
  EXPECT_EQ(SlotOf("123456789"), 0x31c3 % 16'384);
  EXPECT_EQ(SlotOf(""), 0);
  EXPECT_EQ(SlotOf("foo"), 12'182);
  EXPECT_EQ(SlotOf("{foo}.bar"), SlotOf("foo"));
  EXPECT_EQ(SlotOf("a{foo}b{bar}"), SlotOf("foo"));
  EXPECT_EQ(SlotOf("{}foo"), SlotOf("{}foo"));
  EXPECT_NE(SlotOf("{}foo"), SlotOf(""));
  EXPECT_NE(SlotOf("{foo"), SlotOf("foo"));
}

Expected<SlotMap> Parse(std::string_view text) {
  RespParser parser;
  EXPECT_EQ(parser.Parse(text), RespParser::Status::kMessage);
  return ParseSlots(parser.nodes(), {.host = "asked", .port = 1});
}

TEST(ParseSlots, ReadsMastersAndLeavesReplicasOut) {
  const auto map = Parse(
      "*2\r\n"
      "*4\r\n:0\r\n:99\r\n"
      "*3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$2\r\nid\r\n"
      "*3\r\n$9\r\n127.0.0.1\r\n:7003\r\n$2\r\nid\r\n"
      "*3\r\n:100\r\n:16382\r\n"
      "*4\r\n$1\r\n?\r\n:7001\r\n$2\r\nid\r\n*2\r\n$2\r\nip\r\n$3\r\n::1\r\n");
  ASSERT_TRUE(map) << map.error().message;
  ASSERT_EQ(map->masters.size(), 2u);
  EXPECT_EQ(map->masters[0].ToString(), "127.0.0.1:7000");
  EXPECT_EQ(map->masters[1].ToString(), "[::1]:7001");
  EXPECT_EQ(map->owner[99], 0);
  EXPECT_EQ(map->owner[100], 1);
  EXPECT_EQ(map->owner[16'383], SlotMap::kNobody);
}

TEST(ParseSlots, TakesTheNodeThatWasAskedWhereThereIsNoName) {
  for (const char* host : {"$0\r\n\r\n", "$-1\r\n", "$1\r\n?\r\n"}) {
    const auto map =
        Parse(std::string("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n") + host + ":7000\r\n$2\r\nid\r\n");
    ASSERT_TRUE(map);
    EXPECT_EQ(map->masters[0].ToString(), "asked:7000");
  }
}

TEST(ParseSlots, RefusesWhatItIsNot) {
  for (const char* text :
       {"+OK\r\n", "*1\r\n:1\r\n", "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
        "*1\r\n*3\r\n:5\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n", "*1\r\n*3\r\n:0\r\n:1\r\n:7\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:99999\r\n", "*1\r\n*2\r\n:0\r\n:1\r\n"}) {
    EXPECT_EQ(Parse(text).error().code, ErrorCode::kStoreError) << text;
  }
  EXPECT_EQ(Parse("*0\r\n").error().code, ErrorCode::kUnavailable) << "no slots are served";
}

TEST(ParseRedirect, ReadsBothKindsAndAllHosts) {
  const Address asked{.host = "asked", .port = 1};
  const auto moved = ParseRedirect("MOVED 3999 127.0.0.1:6381", "MOVED", asked);
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->slot, 3999);
  EXPECT_EQ(moved->to.ToString(), "127.0.0.1:6381");
  EXPECT_EQ(ParseRedirect("ASK 1 ::1:6381", "ASK", asked)->to.ToString(), "[::1]:6381");
  EXPECT_EQ(ParseRedirect("MOVED 1 :6381", "MOVED", asked)->to.ToString(), "asked:6381");
  EXPECT_EQ(ParseRedirect("MOVED 1 ?:6381", "MOVED", asked)->to.ToString(), "asked:6381");
  for (const char* text : {"MOVED", "MOVED 1", "MOVED x h:1", "MOVED 16384 h:1", "MOVED 1 h:0",
                           "MOVED 1 h:99999", "MOVEDX 1 h:1", "ASK 1 h:1", ""}) {
    EXPECT_FALSE(ParseRedirect(text, "MOVED", asked)) << text;
  }
}

}  // namespace
}  // namespace sluice::redis
