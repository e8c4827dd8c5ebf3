// SPDX-License-Identifier: Apache-2.0
#include "redis/resp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <memory>

#include "base/text.h"

namespace sluice::redis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Status = RespParser::Status;

// "*2" for an array of two, ":1" for an integer, "$text", "+text", "-text", "_", "#1", ",1.5",
// "(1".
std::string Show(const RespNode& node) {
  switch (node.type) {
    case RespType::kSimpleString:
      return text::Cat("+", node.text);
    case RespType::kError:
      return text::Cat("-", node.text);
    case RespType::kInteger:
      return text::Cat(":", node.number);
    case RespType::kBulkString:
      return text::Cat("$", node.text);
    case RespType::kNull:
      return "_";
    case RespType::kBoolean:
      return text::Cat("#", node.number);
    case RespType::kDouble:
      return text::Cat(",", node.text);
    case RespType::kBigNumber:
      return text::Cat("(", node.text);
    case RespType::kArray:
      return text::Cat("*", node.number);
    case RespType::kSet:
      return text::Cat("~", node.number);
    case RespType::kMap:
      return text::Cat("%", node.number);
    case RespType::kPush:
      return text::Cat(">", node.number);
  }
  return "?";
}

std::vector<std::string> Nodes(const RespParser& parser) {
  std::vector<std::string> shown;
  for (const RespNode& node : parser.nodes()) shown.push_back(Show(node));
  return shown;
}

// The nodes of one message. It must be parsed alike as a whole and byte by byte from bytes that
// move, and must not depend on what follows.
std::vector<std::string> Read(std::string_view message) {
  RespParser whole;
  const std::string followed = text::Cat(message, ":99\r\n");
  EXPECT_EQ(whole.Parse(followed), Status::kMessage) << whole.error();
  EXPECT_EQ(whole.consumed(), message.size());

  RespParser parts;
  std::unique_ptr<std::string> moving;
  for (std::size_t size = 0; size <= message.size(); ++size) {
    moving = std::make_unique<std::string>(message.substr(0, size));
    EXPECT_EQ(parts.Parse(*moving), size == message.size() ? Status::kMessage : Status::kIncomplete)
        << size << parts.error();
  }
  EXPECT_EQ(parts.consumed(), message.size());
  EXPECT_EQ(Nodes(parts), Nodes(whole));
  return Nodes(whole);
}

std::string ParseError(std::string_view bytes, const RespLimits& limits = {}) {
  RespParser parser(limits);
  if (parser.Parse(bytes) != Status::kError) return "no error";
  EXPECT_EQ(parser.Parse(text::Cat(bytes, "more")), Status::kError) << "an error is final";

  RespParser parts(limits);
  Status status = Status::kIncomplete;
  for (std::size_t size = 0; size <= bytes.size() && status == Status::kIncomplete; ++size) {
    status = parts.Parse(bytes.substr(0, size));
  }
  EXPECT_EQ(status, Status::kError);
  EXPECT_EQ(parts.error(), parser.error());
  return parser.error();
}

Status ParseOnce(std::string_view bytes, const RespLimits& limits = {}) {
  return RespParser(limits).Parse(bytes);
}

TEST(RespParser, ReadsEveryTypeOfResp2) {
  EXPECT_THAT(Read("+OK\r\n"), ElementsAre("+OK"));
  EXPECT_THAT(Read("+\r\n"), ElementsAre("+"));
  EXPECT_THAT(Read("-ERR no such thing\r\n"), ElementsAre("-ERR no such thing"));
  EXPECT_THAT(Read(":1000\r\n"), ElementsAre(":1000"));
  EXPECT_THAT(Read("$5\r\nhello\r\n"), ElementsAre("$hello"));
  EXPECT_THAT(Read("$0\r\n\r\n"), ElementsAre("$"));
  EXPECT_THAT(Read("$4\r\n\r\n\r\n\r\n"), ElementsAre("$\r\n\r\n"));
  EXPECT_THAT(Read("$-1\r\n"), ElementsAre("_"));
  EXPECT_THAT(Read("*-1\r\n"), ElementsAre("_"));
  EXPECT_THAT(Read("*0\r\n"), ElementsAre("*0"));
  EXPECT_THAT(Read("*3\r\n:1\r\n$-1\r\n*2\r\n+a\r\n$1\r\nb\r\n"),
              ElementsAre("*3", ":1", "_", "*2", "+a", "$b"));
}

TEST(RespParser, ReadsEveryTypeOfResp3) {
  EXPECT_THAT(Read("_\r\n"), ElementsAre("_"));
  EXPECT_THAT(Read("#t\r\n"), ElementsAre("#1"));
  EXPECT_THAT(Read("#f\r\n"), ElementsAre("#0"));
  EXPECT_THAT(Read("(-3492890328409238509324850943850943825024385\r\n"),
              ElementsAre("(-3492890328409238509324850943850943825024385"));
  EXPECT_THAT(Read("!9\r\nERR a\r\nbc\r\n"), ElementsAre("-ERR a\r\nbc"));
  EXPECT_THAT(Read("=8\r\ntxt:text\r\n"), ElementsAre("$text"));
  EXPECT_THAT(Read("=4\r\nmkd:\r\n"), ElementsAre("$"));
  EXPECT_THAT(Read("~2\r\n+a\r\n+b\r\n"), ElementsAre("~2", "+a", "+b"));
  EXPECT_THAT(Read("%2\r\n+a\r\n:1\r\n+b\r\n:2\r\n"), ElementsAre("%4", "+a", ":1", "+b", ":2"));
  EXPECT_THAT(Read(">2\r\n+message\r\n$1\r\nx\r\n"), ElementsAre(">2", "+message", "$x"));
}

TEST(RespParser, ReadsDoublesAsWritten) {
  for (const std::string text :
       {"1", "-1.5", "+0.25", "1e5", "1.5E-300", "6.02e+23", "inf", "-inf", "nan", "-nan", "INF"}) {
    EXPECT_THAT(Read("," + text + "\r\n"), ElementsAre("," + text));
  }
  for (const std::string text :
       {"", "-", ".5", "1.", "1e", "1e+", "1.5 ", " 1", "0x1", "--1", "infinity", "1,5"}) {
    EXPECT_THAT(ParseError("," + text + "\r\n"), HasSubstr("not a double")) << text;
  }
}

TEST(RespParser, ReadsIntegersStrictly) {
  EXPECT_THAT(Read(":0\r\n"), ElementsAre(":0"));
  EXPECT_THAT(Read(":-0\r\n"), ElementsAre(":0"));
  EXPECT_THAT(Read(":+7\r\n"), ElementsAre(":7"));
  EXPECT_THAT(Read(":007\r\n"), ElementsAre(":7"));
  EXPECT_THAT(Read(":0000000000000000000000000000007\r\n"), ElementsAre(":7"));
  EXPECT_THAT(Read(":999999999999999999\r\n"), ElementsAre(":999999999999999999"));
  EXPECT_THAT(Read(":1000000000000000000\r\n"), ElementsAre(":1000000000000000000"));
  EXPECT_THAT(Read(":9223372036854775807\r\n"), ElementsAre(":9223372036854775807"));
  EXPECT_THAT(Read(":-9223372036854775808\r\n"), ElementsAre(":-9223372036854775808"));
  for (const std::string text :
       {"", "-", "+", "+-1", "-+1", "--1", " 1", "1 ", "1.0", "0x1", "1e3", "9223372036854775808",
        "-9223372036854775809", "99999999999999999999", "?"}) {
    EXPECT_THAT(ParseError(":" + text + "\r\n"), HasSubstr("not an integer")) << text;
  }
}

TEST(RespParser, ReadsAnArrayOfManyIntegersHoweverItIsCut) {
  std::string message = "*500\r\n";
  for (int i = -250; i < 250; ++i) AppendInteger(message, i * std::int64_t{1'000'000'007});
  const auto nodes = Read(message);
  ASSERT_EQ(nodes.size(), 501u);
  EXPECT_EQ(nodes[1], ":-250000001750");
  EXPECT_EQ(nodes[251], ":0");
  EXPECT_EQ(nodes[500], ":249000001743");
}

TEST(RespParser, LeavesIntegersAfterTheMessageToTheNext) {
  std::string_view bytes = "*2\r\n:1\r\n:2\r\n:3\r\n:4\r\n";
  RespParser parser;
  std::vector<std::vector<std::string>> messages;
  while (parser.Parse(bytes) == Status::kMessage) {
    messages.push_back(Nodes(parser));
    bytes.remove_prefix(parser.consumed());
  }
  EXPECT_THAT(messages,
              ElementsAre(ElementsAre("*2", ":1", ":2"), ElementsAre(":3"), ElementsAre(":4")));
  EXPECT_TRUE(bytes.empty());
}

TEST(RespParser, TakesNothingFromOneMessageIntoTheNext) {
  const std::string first(1000, 'x');
  std::string bytes = text::Cat("+", first, "\r\n");
  RespParser parser;
  ASSERT_EQ(parser.Parse(bytes), Status::kMessage);
  ASSERT_EQ(parser.Parse("+y"), Status::kIncomplete);
  ASSERT_EQ(parser.Parse("+yz\r\n"), Status::kMessage);
  EXPECT_THAT(Nodes(parser), ElementsAre("+yz"));
  EXPECT_EQ(parser.consumed(), 5u);
}

TEST(RespParser, PointsIntoTheBytesOfTheLastCall) {
  const std::string part = "*2\r\n$3\r\nfoo\r\n";
  const std::string whole = part + "+bar\r\n";
  RespParser parser;
  ASSERT_EQ(parser.Parse(part), Status::kIncomplete);
  ASSERT_EQ(parser.Parse(whole), Status::kMessage);
  EXPECT_EQ(parser.nodes()[1].text.data(), whole.data() + 8);
  EXPECT_EQ(parser.nodes()[2].text.data(), whole.data() + 14);
}

TEST(RespParser, DropsAttributes) {
  EXPECT_THAT(Read("|1\r\n+ttl\r\n:3600\r\n:7\r\n"), ElementsAre(":7"));
  EXPECT_THAT(Read("|0\r\n|0\r\n+OK\r\n"), ElementsAre("+OK"));
  EXPECT_THAT(Read("*2\r\n:1\r\n|1\r\n+ttl\r\n*2\r\n+a\r\n$1\r\nb\r\n$1\r\nc\r\n"),
              ElementsAre("*2", ":1", "$c"));
  EXPECT_THAT(Read("*1\r\n|1\r\n+a\r\n|1\r\n+b\r\n:1\r\n%1\r\n+c\r\n:2\r\n*1\r\n:3\r\n"),
              ElementsAre("*1", "*1", ":3"));
  EXPECT_EQ(ParseOnce("|1\r\n+ttl\r\n:3600\r\n"), Status::kIncomplete) << "no value yet";
}

TEST(RespParser, RefusesLongTextsByTheirHeader) {
  EXPECT_THAT(ParseError("$536870912\r\n"), HasSubstr("more than 67108864 bytes"));
  EXPECT_EQ(ParseOnce("$67108864\r\n"), Status::kIncomplete);
  EXPECT_EQ(ParseOnce("$67108865\r\n"), Status::kError);
  EXPECT_EQ(ParseOnce("!536870912\r\n"), Status::kError);
  EXPECT_EQ(ParseOnce("=536870912\r\n"), Status::kError);
  EXPECT_EQ(ParseOnce("$3\r\nabc\r\n", {.text_bytes_max = 3}), Status::kMessage);
  EXPECT_EQ(ParseOnce("$4\r\n", {.text_bytes_max = 3}), Status::kError);
  EXPECT_EQ(ParseOnce("+abc\r\n", {.text_bytes_max = 3}), Status::kMessage);
  EXPECT_EQ(ParseOnce("+abcd", {.text_bytes_max = 3}), Status::kError);
}

TEST(RespParser, CountsEveryAnnouncedNode) {
  EXPECT_THAT(ParseError("*1048576\r\n"), HasSubstr("more than 1048576 values"));
  EXPECT_EQ(ParseOnce("*1048575\r\n"), Status::kIncomplete);
  EXPECT_EQ(ParseOnce("*18446744073709551615\r\n"), Status::kError);
  EXPECT_EQ(ParseOnce("%9223372036854775808\r\n"), Status::kError) << "twice that overflows";
  const RespLimits limits{.nodes_max = 5};
  EXPECT_EQ(ParseOnce("*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n", limits), Status::kMessage);
  EXPECT_EQ(ParseOnce("*5\r\n", limits), Status::kError);
  EXPECT_EQ(ParseOnce("%2\r\n", limits), Status::kIncomplete);
  EXPECT_EQ(ParseOnce("%3\r\n", limits), Status::kError);
  EXPECT_EQ(ParseOnce("*2\r\n*2\r\n", limits), Status::kIncomplete);
  EXPECT_EQ(ParseOnce("*2\r\n*3\r\n", limits), Status::kError) << "together";
  EXPECT_EQ(ParseOnce("|1\r\n+a\r\n+b\r\n:1\r\n", limits), Status::kMessage);
  EXPECT_EQ(ParseOnce("|2\r\n", limits), Status::kError);
  EXPECT_EQ(ParseOnce("|0\r\n|0\r\n|0\r\n|0\r\n:1\r\n", limits), Status::kMessage);
  EXPECT_EQ(ParseOnce("|0\r\n|0\r\n|0\r\n|0\r\n|0\r\n", limits), Status::kError);
}

TEST(RespParser, KeepsNoMoreThanSomeOfWhatDoesNotEnd) {
  const RespLimits limits{.message_bytes_max = 20};
  EXPECT_EQ(ParseOnce("*3\r\n$4\r\nabcd\r\n+abc", limits), Status::kIncomplete);
  EXPECT_THAT(ParseError("*3\r\n$4\r\nabcd\r\n+abcdef", limits),
              HasSubstr("a message of more than 20 bytes"));
}

TEST(RespParser, RefusesDeepNestingByTheHeader) {
  std::string bytes;
  for (int i = 0; i < 16; ++i) bytes += "*1\r\n";
  EXPECT_EQ(ParseOnce(bytes), Status::kIncomplete);
  EXPECT_EQ(ParseOnce(bytes + ":1\r\n"), Status::kMessage);
  EXPECT_THAT(ParseError(bytes + "*1\r\n"), HasSubstr("more than 16 deep"));
  EXPECT_EQ(ParseOnce(bytes + "|1\r\n"), Status::kError);
  EXPECT_EQ(ParseOnce(bytes + "*-1\r\n"), Status::kMessage) << "a null is no aggregate";
}

TEST(RespParser, RefusesLongLinesWithoutWaitingForTheirEnd) {
  const std::string most(64 << 10, 'x');
  for (const std::string type : {"+", "-"}) {
    EXPECT_EQ(ParseOnce(text::Cat(type, most, "\r\n")), Status::kMessage);
    EXPECT_EQ(ParseOnce(text::Cat(type, most)), Status::kIncomplete);
    EXPECT_EQ(ParseOnce(text::Cat(type, most, "x")), Status::kError);
  }
  const std::string zeros(32, '0');
  for (const char type : std::string_view(":$*~%>|!=")) {
    EXPECT_EQ(ParseOnce(type + zeros), Status::kIncomplete) << type;
    EXPECT_THAT(ParseError(type + zeros + "0"), HasSubstr("more than 32 bytes")) << type;
  }
}

TEST(RespParser, RefusesLinesThatEndInHalf) {
  for (const char type : std::string_view("+-:$*_#,(~%>|!=")) {
    EXPECT_THAT(ParseError(text::Cat(std::string(1, type), "1\n")), HasSubstr("CR LF")) << type;
    EXPECT_THAT(ParseError(text::Cat(std::string(1, type), "1\rx")), HasSubstr("CR LF")) << type;
    EXPECT_EQ(ParseOnce(text::Cat(std::string(1, type), "1\r")), Status::kIncomplete) << type;
  }
  EXPECT_THAT(ParseError("$3\r\nabcd\r\n"), HasSubstr("without its line end"));
  EXPECT_THAT(ParseError("$3\r\nab\r\n+OK\r\n"), HasSubstr("without its line end"));
}

TEST(RespParser, RefusesLengthsThatAreNone) {
  for (const std::string text :
       {"", "-", "-2", "+1", " 1", "1 ", "1x", "-0", "0x1", "99999999999999999999"}) {
    for (const char type : std::string_view("$*~%>|!=")) {
      EXPECT_EQ(ParseOnce(type + text + "\r\n"), Status::kError) << type << text;
    }
  }
  for (const char type : std::string_view("~%>|!=")) {
    EXPECT_THAT(ParseError(type + std::string("-1\r\n")), HasSubstr("not a length")) << type;
  }
}

TEST(RespParser, RefusesStreamedTypesByName) {
  for (const std::string bytes :
       {"$?\r\n", "*?\r\n", "~?\r\n", "%?\r\n", "|?\r\n", ";4\r\n", "."}) {
    EXPECT_THAT(ParseError(bytes), HasSubstr("streamed")) << bytes;
  }
}

TEST(RespParser, RefusesValuesThatAreNone) {
  EXPECT_THAT(ParseError("_x\r\n"), HasSubstr("not a null"));
  EXPECT_THAT(ParseError("#x\r\n"), HasSubstr("not a boolean"));
  EXPECT_THAT(ParseError("#true\r\n"), HasSubstr("not a boolean"));
  EXPECT_THAT(ParseError("(\r\n"), HasSubstr("not a big number"));
  EXPECT_THAT(ParseError("(1.5\r\n"), HasSubstr("not a big number"));
  EXPECT_THAT(ParseError("=3\r\n"), HasSubstr("without a format"));
  EXPECT_THAT(ParseError("=5\r\ntext:\r\n"), HasSubstr("without a format"));
}

TEST(RespParser, SaysWhereTheErrorIsWithoutThePeersBytes) {
  EXPECT_EQ(ParseError("HTTP/1.1 400 Bad Request\r\n"), "not a RESP type, at byte 0");
  EXPECT_EQ(ParseError("*2\r\n:1\r\n:secret\r\n"), "not an integer of 64 bits, at byte 8");
}

TEST(RespParser, WaitsForTheFirstByte) {
  RespParser parser;
  EXPECT_EQ(parser.Parse(""), Status::kIncomplete);
  EXPECT_EQ(parser.Parse("+OK\r\n"), Status::kMessage);
  EXPECT_EQ(parser.Parse(""), Status::kIncomplete);
}

TEST(RespWriter, WritesCommandsAndReplies) {
  std::string out;
  AppendCommand(out, std::array<std::string_view, 3>{"SET", "k\r\n", ""});
  EXPECT_EQ(out, "*3\r\n$3\r\nSET\r\n$3\r\nk\r\n\r\n$0\r\n\r\n");
  out.clear();
  AppendInteger(out, std::numeric_limits<std::int64_t>::min());
  AppendInteger(out, 0);
  AppendSimpleString(out, "OK");
  AppendArrayHeader(out, std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(out, ":-9223372036854775808\r\n:0\r\n+OK\r\n*18446744073709551615\r\n");
}

TEST(RespWriter, KeepsLineBreaksOutOfLines) {
  std::string out = "\r\n";
  AppendError(out, "ERR a\r\n:1\nb");
  AppendSimpleString(out, "a\r\nb");
  EXPECT_EQ(out, "\r\n-ERR a  :1 b\r\n+a  b\r\n");
}

TEST(RespWriter, WritesWhatTheParserReads) {
  std::string out;
  AppendArrayHeader(out, 4);
  AppendBulkString(out, "text");
  AppendInteger(out, -5);
  AppendSimpleString(out, "OK");
  AppendError(out, "ERR no");
  EXPECT_THAT(Read(out), ElementsAre("*4", "$text", ":-5", "+OK", "-ERR no"));
}

}  // namespace
}  // namespace sluice::redis
