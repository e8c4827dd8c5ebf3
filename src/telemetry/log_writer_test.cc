// SPDX-License-Identifier: Apache-2.0
#include "telemetry/log_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <future>
#include <string>
#include <string_view>
#include <utility>

#include "support/eventually.h"
#include "support/pipe.h"

namespace sluice::telemetry {
namespace {

using testing_support::Eventually;
using testing_support::Pipe;

constexpr std::string_view kLost = "lost ";

LogWriter::Options To(const Pipe& pipe) {
  return {.fd = pipe.write_end(), .flush_max = std::chrono::minutes{1}, .notice = [](auto lines) {
            return std::string(kLost) + std::to_string(lines) + '\n';
          }};
}

// All of the same size, so that none fits where another did not.
std::string LineOf(std::uint64_t number) {
  std::string line = std::to_string(number);
  line.insert(0, 99 - line.size(), '0');
  return line += '\n';
}

std::uint64_t NumberIn(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Checks that every number is present, or reported by a notice where it is missing. Returns how
// many are present.
std::uint64_t CheckNumbers(std::string_view text, std::uint64_t count) {
  std::uint64_t next = 0;
  std::uint64_t written = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + 1);
    if (line.starts_with(kLost)) {
      next += NumberIn(line.substr(kLost.size()));
    } else {
      EXPECT_EQ(NumberIn(line), next);
      ++next;
      ++written;
    }
  }
  EXPECT_EQ(next, count);
  return written;
}

TEST(LogWriter, WritesAllThatWaitsBeforeItEnds) {
  constexpr std::uint64_t kLines = 5'000;
  Pipe pipe;
  std::future<std::string> text = std::async(std::launch::async, [&] { return pipe.ReadToEnd(); });
  {
    LogWriter writer(To(pipe));
    for (std::uint64_t i = 0; i < kLines; ++i) writer.Put(LineOf(i));
    EXPECT_EQ(writer.lines_lost(), 0u);
  }
  pipe.CloseWriteEnd();
  EXPECT_EQ(CheckNumbers(text.get(), kLines), kLines);
}

TEST(LogWriter, AFullPipeHoldsUpNobodyAndEveryLostLineIsTold) {
  for (const int flags : {0, O_NONBLOCK}) {
    Pipe pipe(flags);
    const std::size_t zeros = pipe.Fill();
    std::uint64_t count = 0;
    std::uint64_t lost = 0;
    std::future<std::string> text;
    {
      LogWriter writer(To(pipe));
      const auto put = [&] { writer.Put(LineOf(count++)); };
      while (writer.lines_lost() < 1'000) put();
      const std::uint64_t kept = count - writer.lines_lost();
      EXPECT_GE(kept, LogWriter::kQueueBytesMax / LineOf(0).size());
      EXPECT_LE(kept, 2 * LogWriter::kQueueBytesMax / LineOf(0).size());
      // Once somebody reads, there is room again.
      text = std::async(std::launch::async, [&] { return pipe.ReadToEnd(); });
      do {
        lost = writer.lines_lost();
        put();
      } while (writer.lines_lost() > lost);
    }
    pipe.CloseWriteEnd();
    EXPECT_EQ(CheckNumbers(text.get().substr(zeros), count), count - lost);
  }
}

TEST(LogWriter, DoesNotWaitForEverForAReader) {
  for (const int flags : {0, O_NONBLOCK}) {
    Pipe pipe(flags);
    pipe.Fill();
    LogWriter::Options options = To(pipe);
    options.flush_max = std::chrono::milliseconds{1};
    options.fd = ::dup(pipe.write_end());  // Stays open, as required.
    LogWriter writer(std::move(options));
    writer.Put(LineOf(0));
  }
}

TEST(LogWriter, AReaderThatGoesAwayEndsNothing) {
  Pipe pipe;
  LogWriter writer(To(pipe));
  pipe.CloseReadEnd();
  for (std::uint64_t i = 0; i < 3; ++i) {
    writer.Put(LineOf(i));
    EXPECT_TRUE(Eventually([&] { return writer.lines_lost() == i + 1; }));
  }
}

TEST(LogWriter, WritesWholeLinesAsAPipeTakesThemInOnePiece) {
  // A socket that preserves the boundaries of writes.
  std::array<int, 2> fds;
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds.data()), 0);
  const std::string line = std::string(LogWriter::kWriteBytesMax - 1, 'x') + '\n';
  {
    LogWriter writer({.fd = fds[1], .notice = {}});
    for (int i = 0; i < 3; ++i) {
      writer.Put("short\n");
      writer.Put(line);
    }
  }
  ::close(fds[1]);
  std::array<char, 2 * LogWriter::kWriteBytesMax> buffer;
  std::string text;
  for (ssize_t n; (n = ::read(fds[0], buffer.data(), buffer.size())) > 0;) {
    EXPECT_LE(n, static_cast<ssize_t>(LogWriter::kWriteBytesMax));
    text.append(buffer.data(), static_cast<std::size_t>(n));
    EXPECT_TRUE(text.ends_with('\n'));
  }
  EXPECT_EQ(text, "short\n" + line + "short\n" + line + "short\n" + line);
  ::close(fds[0]);
}

}  // namespace
}  // namespace sluice::telemetry
