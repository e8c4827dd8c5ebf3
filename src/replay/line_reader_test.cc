// SPDX-License-Identifier: Apache-2.0
#include "replay/line_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::replay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Status = LineReader::Status;
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

constexpr std::size_t kMax = LineReader::kLineBytesMax;

File FileOf(std::string_view bytes) {
  File file(std::tmpfile(), &std::fclose);
  EXPECT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file.get()), bytes.size());
  std::rewind(file.get());
  return file;
}

// A stream that delivers `bytes` in pieces of at most `piece` and then ends, or fails.
struct Source {
  std::string bytes;
  std::size_t piece;
  int error_at_end = 0;
  std::size_t position = 0;
};

ssize_t ReadSource(void* cookie, char* buffer, std::size_t size) {
  auto& source = *static_cast<Source*>(cookie);
  const std::size_t count = std::min({size, source.piece, source.bytes.size() - source.position});
  if (count == 0 && source.error_at_end != 0) {
    errno = source.error_at_end;
    return -1;
  }
  std::memcpy(buffer, source.bytes.data() + source.position, count);
  source.position += count;
  return static_cast<ssize_t>(count);
}

File FileOf(Source& source) {
  return {::fopencookie(&source, "r",
                        {.read = &ReadSource, .write = nullptr, .seek = nullptr, .close = nullptr}),
          &std::fclose};
}

// Everything that a reader yields, with a note for anything that is not a line.
std::vector<std::string> AllLines(LineReader& reader) {
  std::vector<std::string> lines;
  std::string_view line;
  while (true) {
    const auto status = reader.Next(line);
    if (!status) {
      lines.push_back("error: " + status.error().message);
      return lines;
    }
    if (*status == Status::kEnd) return lines;
    lines.push_back(*status == Status::kTooLong ? "(too long)" : std::string(line));
  }
}

std::vector<std::string> LinesOf(std::string_view bytes) {
  const File file = FileOf(bytes);
  LineReader reader(file.get());
  return AllLines(reader);
}

TEST(LineReader, YieldsLinesWithoutTheirNewlines) {
  EXPECT_THAT(LinesOf("a\nbc\n"), ElementsAre("a", "bc"));
}

TEST(LineReader, EmptyInputHasNoLine) { EXPECT_THAT(LinesOf(""), IsEmpty()); }

TEST(LineReader, LoneNewlineIsAnEmptyLine) { EXPECT_THAT(LinesOf("\n"), ElementsAre("")); }

TEST(LineReader, KeepsEmptyLines) {
  EXPECT_THAT(LinesOf("\n\na\n\nb\n\n"), ElementsAre("", "", "a", "", "b", ""));
}

TEST(LineReader, LastLineNeedsNoNewline) { EXPECT_THAT(LinesOf("a\nb"), ElementsAre("a", "b")); }

TEST(LineReader, CarriageReturnIsPartOfTheLine) {
  EXPECT_THAT(LinesOf("a\r\nb\rc\n"), ElementsAre("a\r", "b\rc"));
}

TEST(LineReader, NulIsAnOrdinaryByte) {
  using namespace std::string_literals;
  EXPECT_THAT(LinesOf("a\0b\n\0\nc"s), ElementsAre("a\0b"s, "\0"s, "c"));
}

TEST(LineReader, NumbersLinesFromOneAndCountsBytes) {
  const File file = FileOf("a\n\nbcd");
  LineReader reader(file.get());
  EXPECT_EQ(reader.line_number(), 0);
  EXPECT_EQ(reader.bytes_read(), 0);

  std::string_view line;
  for (const int number : {1, 2, 3}) {
    ASSERT_EQ(reader.Next(line).value(), Status::kLine);
    EXPECT_EQ(reader.line_number(), number);
  }
  EXPECT_EQ(reader.bytes_read(), 6);
}

TEST(LineReader, EndIsReportedAgainAndAddsNoLine) {
  const File file = FileOf("a");
  LineReader reader(file.get());
  std::string_view line;
  ASSERT_EQ(reader.Next(line).value(), Status::kLine);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(reader.Next(line).value(), Status::kEnd);
    EXPECT_EQ(reader.line_number(), 1);
  }
}

TEST(LineReader, LinesMayCrossTheChunksInWhichItReads) {
  // If the chunk size is any power of two, a line ends just before, at and after each of its
  // multiples.
  for (const std::size_t chunk : {1U << 12, 1U << 16, 1U << 18, 1U << 19}) {
    for (std::size_t length = chunk - 3; length <= chunk + 3; ++length) {
      const std::string first(length, 'a');
      EXPECT_TRUE(LinesOf(first + "\nb\n") == (std::vector<std::string>{first, "b"})) << length;
      EXPECT_TRUE(LinesOf(first) == std::vector{first}) << length;
    }
  }
}

TEST(LineReader, ManyLinesOfEveryLengthComeBackUnchanged) {
  std::vector<std::string> lines;
  std::string bytes;
  for (std::size_t length = 0; length < 2'000; ++length) {
    lines.emplace_back(length, static_cast<char>('a' + length % 26));
    bytes += lines.back() + '\n';
  }
  EXPECT_TRUE(LinesOf(bytes) == lines);
}

TEST(LineReader, ShortReadsMakeNoDifference) {
  for (const std::size_t piece : {1, 2, 3, 7}) {
    Source source{.bytes = "one\n\ntwo\nthree", .piece = piece};
    const File file = FileOf(source);
    LineReader reader(file.get());
    EXPECT_THAT(AllLines(reader), ElementsAre("one", "", "two", "three")) << piece;
  }
}

TEST(LineReader, LineOfTheLargestSizeIsALine) {
  const std::string largest(kMax, 'x');
  EXPECT_TRUE(LinesOf(largest + "\nnext\n") == (std::vector<std::string>{largest, "next"}));
  EXPECT_TRUE(LinesOf("first\n" + largest) == (std::vector<std::string>{"first", largest}));
}

TEST(LineReader, LineThatIsTooLongIsSkippedWholeAndReportedOnce) {
  for (const std::size_t length :
       {kMax + 1, kMax + 2, kMax + (1 << 18) - 1, kMax + (1 << 18), 3 * kMax + 7}) {
    const std::string bytes = "before\n" + std::string(length, 'x') + "\nafter\n";
    EXPECT_THAT(LinesOf(bytes), ElementsAre("before", "(too long)", "after")) << length;
  }
}

TEST(LineReader, LinesAfterOneThatIsTooLongKeepTheirNumbers) {
  const std::string bytes = "a\n" + std::string(2 * kMax, 'x') + "\nb\n";
  const File file = FileOf(bytes);
  LineReader reader(file.get());
  std::string_view line;
  ASSERT_EQ(reader.Next(line).value(), Status::kLine);
  ASSERT_EQ(reader.Next(line).value(), Status::kTooLong);
  EXPECT_EQ(reader.line_number(), 2);
  ASSERT_EQ(reader.Next(line).value(), Status::kLine);
  EXPECT_EQ(line, "b");
  EXPECT_EQ(reader.line_number(), 3);
  EXPECT_EQ(reader.bytes_read(), static_cast<std::int64_t>(bytes.size()));
}

TEST(LineReader, EveryLineThatIsTooLongIsReported) {
  const std::string too_long(kMax + 1, 'x');
  EXPECT_THAT(LinesOf(too_long + "\n" + too_long + "\n\n" + too_long + "\n"),
              ElementsAre("(too long)", "(too long)", "", "(too long)"));
}

TEST(LineReader, LastLineThatIsTooLongNeedsNoNewline) {
  for (const std::size_t length : {kMax + 1, 2 * kMax, 2 * kMax + 5}) {
    EXPECT_THAT(LinesOf("a\n" + std::string(length, 'x')), ElementsAre("a", "(too long)"))
        << length;
  }
}

TEST(LineReader, FailureToReadIsAnIoError) {
  // Opening a folder works; reading it does not.
  const File file(std::fopen("/", "rb"), &std::fclose);
  ASSERT_NE(file, nullptr);
  LineReader reader(file.get());
  std::string_view line;
  const auto status = reader.Next(line);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_THAT(status.error().message, HasSubstr("directory"));
}

TEST(LineReader, FailureInTheMiddleOfALineIsNoLine) {
  // Half a record must not pass for a complete one.
  Source source{.bytes = "whole\n1,ha", .piece = 4, .error_at_end = EIO};
  const File file = FileOf(source);
  LineReader reader(file.get());
  std::string_view line;
  ASSERT_EQ(reader.Next(line).value(), Status::kLine);
  EXPECT_EQ(line, "whole");
  const auto status = reader.Next(line);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_EQ(status.error().message, std::strerror(EIO));
}

}  // namespace
}  // namespace sluice::replay
