// SPDX-License-Identifier: Apache-2.0
#include "store/redis/announcement.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "redis/resp.h"

namespace sluice::redis {
namespace {

const Limit kLimit = *Limit::Parse("algorithm=gcra,burst=5,count=3,period=7s");

// How others understand a message: the key and name of one state, or none for any.
struct Heard {
  int times = 0;
  std::optional<std::string> key;
  std::string name;
  std::optional<Limit> limit;
};

Heard Read(std::string_view message) {
  Heard heard;
  ReadAnnouncement(message, [&](const Charge* charge) {
    ++heard.times;
    if (!charge) return;
    heard.key = charge->key;
    heard.name = charge->name;
    heard.limit = *charge->limit;
  });
  EXPECT_EQ(heard.times, 1);
  return heard;
}

// The message of a PUBLISH.
std::string MessageOf(const std::string& command) {
  RespParser parser;
  EXPECT_EQ(parser.Parse(command), RespParser::Status::kMessage);
  EXPECT_EQ(parser.nodes()[1].text, "PUBLISH");
  EXPECT_EQ(parser.nodes()[2].text, "p:reset");
  return std::string(parser.nodes()[3].text);
}

TEST(Announcement, TellsTheStateWhateverItsKeyAndName) {
  for (const std::string& key :
       {std::string("k"), std::string("a\0\r\n*3\r\n", 9), std::string(kKeyBytesMax, '\xff')}) {
    for (const std::string& name : {std::string(), std::string(kNameBytesMax, '$')}) {
      const Charge charge{.key = key, .limit = &kLimit, .name = name};
      const std::string message = MessageOf(AnnounceCommand("p", &charge));
      EXPECT_LE(message.size(), kAnnouncementBytesMax);
      const Heard heard = Read(message);
      EXPECT_EQ(heard.key, key);
      EXPECT_EQ(heard.name, name);
      EXPECT_EQ(heard.limit, kLimit);
    }
  }
}

TEST(Announcement, MeansAnyStateIfItIsNotUnderstood) {
  EXPECT_EQ(Read(MessageOf(AnnounceCommand("p", nullptr))).key, std::nullopt);
  for (const char* message : {"", "*", "k", "*3\r\n$1\r\nk\r\n", "*1\r\n$1\r\nk\r\n",
                              "*3\r\n$1\r\nk\r\n$0\r\n\r\n$3\r\nbad\r\n", ":1\r\n"}) {
    EXPECT_EQ(Read(message).key, std::nullopt) << message;
  }
}

}  // namespace
}  // namespace sluice::redis
