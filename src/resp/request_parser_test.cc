// SPDX-License-Identifier: Apache-2.0
#include "resp/request_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace sluice::resp {
namespace {

using Status = RequestParser::Status;
using testing::ElementsAre;

constexpr Bounds kSmall{
    .arguments_max = 4, .bulk_bytes_max = 16, .inline_bytes_max = 64, .request_bytes_max = 80};

struct Outcome {
  std::vector<std::vector<std::string>> requests;
  std::string error;
  std::size_t left = 0;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// All requests in `bytes`, given in pieces of `size`, each time in a new buffer.
Outcome ParseInPieces(std::string_view bytes, std::size_t size, const Bounds& bounds,
                      bool trusted = true) {
  Outcome outcome;
  RequestParser parser(bounds);
  std::string unread;
  while (!bytes.empty()) {
    unread += bytes.substr(0, size);
    bytes.remove_prefix(std::min(size, bytes.size()));
    while (true) {
      std::string moved = unread;
      moved.shrink_to_fit();
      const Status status = parser.Parse(moved, trusted);
      if (status == Status::kIncomplete) break;
      if (status == Status::kError) {
        outcome.error = parser.error();
        return outcome;
      }
      outcome.requests.emplace_back(parser.arguments().begin(), parser.arguments().end());
      unread.erase(0, parser.consumed());
    }
  }
  outcome.left = unread.size();
  return outcome;
}

Outcome ParseAll(std::string_view bytes, const Bounds& bounds = kSmall, bool trusted = true) {
  const Outcome whole = ParseInPieces(bytes, bytes.size(), bounds, trusted);
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    const Outcome cut = ParseInPieces(bytes, size, bounds, trusted);
    EXPECT_EQ(cut.requests, whole.requests) << "in pieces of " << size;
    EXPECT_EQ(cut.error, whole.error) << "in pieces of " << size;
  }
  return whole;
}

TEST(RequestParser, ReadsArraysHoweverTheyAreCut) {
  const Outcome outcome = ParseAll(
      "*1\r\n$4\r\nPING\r\n*3\r\n$4\r\nECHO\r\n$0\r\n\r\n$6\r\na\r\nb\0c\r\n"
      "*2\r\n$1\r\n"
      "x");
  EXPECT_THAT(outcome.requests, ElementsAre(ElementsAre("PING")));

  using namespace std::string_literals;
  const Outcome binary =
      ParseAll("*3\r\n$4\r\nECHO\r\n$0\r\n\r\n$6\r\na\r\nb\0c\r\n*1\r\n$4\r\nQUIT"s);
  EXPECT_THAT(binary.requests, ElementsAre(ElementsAre("ECHO", "", "a\r\nb\0c"s)));
  EXPECT_EQ(binary.error, "");
  EXPECT_EQ(binary.left, 12U);
}

TEST(RequestParser, ReadsLinesHoweverTheyAreCut) {
  EXPECT_THAT(
      ParseAll("PING\r\n  ECHO \t\"a \\x41\\n\\\"\" 'it\\'s'\n\r\n").requests,
      ElementsAre(ElementsAre("PING"), ElementsAre("ECHO", "a A\n\"", "it's"), ElementsAre()));
  EXPECT_THAT(ParseAll("a\"b\"\n").requests, ElementsAre(ElementsAre("ab")));
  EXPECT_EQ(ParseAll("ECHO \"a\n").error, "ERR Protocol error: unbalanced quotes in request");
  EXPECT_EQ(ParseAll("ECHO \"a\"b\n").error, "ERR Protocol error: unbalanced quotes in request");
  EXPECT_EQ(ParseAll("1 2 3 4 5\n").error, "ERR Protocol error: too many arguments in request");
}

TEST(RequestParser, ReadsOverEmptyArrays) {
  EXPECT_THAT(ParseAll("*0\r\n*-1\r\n*1\r\n$1\r\na\r\n").requests,
              ElementsAre(ElementsAre(), ElementsAre(), ElementsAre("a")));
}

TEST(RequestParser, RefusesAsRedisDoes) {
  const auto error = [](std::string_view bytes) { return ParseAll(bytes).error; };
  EXPECT_EQ(error("*a\r\n"), "ERR Protocol error: invalid multibulk length");
  EXPECT_EQ(error("*01\r\n"), "ERR Protocol error: invalid multibulk length");
  EXPECT_EQ(error("*+1\r\n"), "ERR Protocol error: invalid multibulk length");
  EXPECT_EQ(error("*\r\n"), "ERR Protocol error: invalid multibulk length");
  EXPECT_EQ(error("*5\r\n"), "ERR Protocol error: invalid multibulk length");
  EXPECT_EQ(error("*99999999999999999999\r\n"), "ERR Protocol error: invalid multibulk length");
  EXPECT_EQ(error("*" + std::string(40, '1')), "ERR Protocol error: too big mbulk count string");
  EXPECT_EQ(error("*1\r\nPING\r\n"), "ERR Protocol error: expected '$', got 'P'");
  EXPECT_EQ(error("*1\r\n$-1\r\n"), "ERR Protocol error: invalid bulk length");
  EXPECT_EQ(error("*1\r\n$17\r\n"), "ERR Protocol error: invalid bulk length");
  EXPECT_EQ(error("*1\r\n$x\r\n"), "ERR Protocol error: invalid bulk length");
  EXPECT_EQ(error("*1\r\n$" + std::string(40, '1')),
            "ERR Protocol error: too big bulk count string");
  EXPECT_EQ(error("*1\r\n$1\r\nabc"), "ERR Protocol error: expected CRLF after a bulk string");
  EXPECT_EQ(error(std::string(70, 'x')), "ERR Protocol error: too big inline request");
}

TEST(RequestParser, BoundsTheWholeRequest) {
  std::string bytes = "*4\r\n";
  for (int i = 0; i < 4; ++i) bytes += "$16\r\n0123456789abcdef\r\n";
  EXPECT_EQ(ParseAll(bytes).error, "ERR Protocol error: too big request");
}

TEST(RequestParser, TrustsLittleBeforeAuth) {
  const Bounds bounds;
  EXPECT_EQ(ParseAll("*11\r\n", bounds, false).error,
            "ERR Protocol error: unauthenticated multibulk length");
  EXPECT_EQ(ParseAll("*1\r\n$16385\r\n", bounds, false).error,
            "ERR Protocol error: unauthenticated bulk length");
  EXPECT_EQ(ParseAll("*10\r\n$16384\r\n", bounds, false).error, "");
  EXPECT_EQ(ParseAll("*11\r\n$16385\r\n", bounds, true).error, "");
}

}  // namespace
}  // namespace sluice::resp
