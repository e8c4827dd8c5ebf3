// SPDX-License-Identifier: Apache-2.0
#include "telemetry/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace sluice::telemetry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr TimePoint kNoon{std::chrono::sys_days{std::chrono::year{2026} / 1 / 31} +
                          std::chrono::hours{12} + Micros{5}};

// A pipe, whose reading end tells what was written.
class LogTest : public testing::Test {
 protected:
  LogTest() {
    EXPECT_EQ(::pipe2(fds_.data(), O_NONBLOCK), 0);
    ::fcntl(fds_[1], F_SETPIPE_SZ, 1 << 20);
  }
  ~LogTest() override {
    for (const int fd : fds_) ::close(fd);
  }

  Logger::Options With(LogFormat format, LogLevel level = LogLevel::kDebug) const {
    return {.fd = fds_[1], .level = level, .format = format, .clock = &clock_};
  }

  std::string Written() const {
    std::string text;
    std::array<char, 65536> buffer;
    for (ssize_t n; (n = ::read(fds_[0], buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<std::size_t>(n));
    }
    return text;
  }

  std::array<int, 2> fds_;
  ManualClock clock_{kNoon};
};

TEST_F(LogTest, WritesTextLines) {
  Logger logger(With(LogFormat::kText));
  logger.Warn("store unavailable", {{"policy", "FAIL_OPEN"},
                                    {"key", "user 1\n"},
                                    {"n", -3},
                                    {"m", std::uint64_t{5}},
                                    {"shadow", true},
                                    {"empty", ""}});
  EXPECT_EQ(Written(),
            "2026-01-31T12:00:00.000005Z WARN store unavailable policy=FAIL_OPEN "
            "key=\"user 1\\x0a\" n=-3 m=5 shadow=true empty=\"\"\n");
}

TEST_F(LogTest, WritesJsonLines) {
  Logger logger(With(LogFormat::kJson));
  logger.Error("it \"failed\"", {{"key", "a\nb\xFF"}, {"n", -3}, {"shadow", false}});
  EXPECT_EQ(Written(),
            "{\"time\":\"2026-01-31T12:00:00.000005Z\",\"level\":\"error\","
            "\"message\":\"it \\\"failed\\\"\",\"key\":\"a\\nb\xEF\xBF\xBD"
            "FF\",\"n\":-3,"
            "\"shadow\":false}\n");
}

TEST_F(LogTest, AMessageCannotBreakItsLine) {
  Logger logger(With(LogFormat::kText));
  logger.Info("limit \"a\\x0a\": bad\nforged\x1b[0m");
  EXPECT_EQ(Written(),
            "2026-01-31T12:00:00.000005Z INFO limit \"a\\x0a\": bad\\x0aforged\\x1b[0m\n");
}

TEST_F(LogTest, LevelsCanBeChangedAtAnyTime) {
  Logger logger(With(LogFormat::kText, LogLevel::kWarn));
  logger.Info("no");
  logger.Warn("yes");
  logger.set_level(LogLevel::kDebug);
  logger.Debug("yes");
  logger.set_level(LogLevel::kOff);
  logger.Error("no");
  logger.Log(LogLevel::kOff, "no");
  const std::string text = Written();
  EXPECT_EQ(std::ranges::count(text, '\n'), 2);
  EXPECT_EQ(text.find("no"), std::string::npos);
}

TEST(LogLevel, IsReadInEitherCase) {
  EXPECT_EQ(ParseLogLevel("WARN"), LogLevel::kWarn);
  EXPECT_EQ(ParseLogLevel("off"), LogLevel::kOff);
  EXPECT_EQ(ParseLogLevel("loud\n").error().message,
            "log level \"loud\\x0a\": expected debug, info, warn, error or off");
}

TEST_F(LogTest, CutsLongTextsAndLongLines) {
  const std::string dirt(10'000, '\x01');
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    Logger logger(With(format));
    logger.Info(dirt, {{"a", dirt}, {"b", dirt}, {"c", dirt}, {"d", dirt}, {"e", dirt}});
    const std::string line = Written();
    EXPECT_LE(line.size(), Logger::kLineBytesMax);
    EXPECT_THAT(line, HasSubstr(format == LogFormat::kText ? " cut=true\n" : ",\"cut\":true}\n"));
    if (format == LogFormat::kJson) {
      EXPECT_NO_THROW(boost::json::parse(line));
    }
  }
}

TEST_F(LogTest, IsValidJsonAndOneLineWhateverTheBytes) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  Logger json(With(LogFormat::kJson));
  Logger text(With(LogFormat::kText));
  for (int i = 0; i < 2'000; ++i) {
    std::string value(random() % 600, '\0');
    for (char& c : value) c = static_cast<char>(random());
    json.Info(value, {{"value", value}, {"again", value}});
    const std::string line = Written();
    ASSERT_EQ(line.find('\n'), line.size() - 1);
    ASSERT_LE(line.size(), Logger::kLineBytesMax);
    boost::system::error_code error;
    boost::json::parse(line, error);
    ASSERT_FALSE(error) << line;
    text.Info(value, {{"value", value}});
    const std::string shown = Written();
    ASSERT_EQ(shown.find('\n'), shown.size() - 1);
    for (const char c : shown) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));
  }
}

TEST_F(LogTest, LinesOfThreadsDoNotMix) {
  Logger logger(With(LogFormat::kText));
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) logger.Info("message", {{"x", "yyyyyyyyyyyyyyyyyyyyyyyyy"}});
      });
    }
  }
  const std::string text = Written();
  EXPECT_EQ(std::ranges::count(text, '\n'), 800);
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    ASSERT_EQ(text.substr(begin, end - begin),
              "2026-01-31T12:00:00.000005Z INFO message x=yyyyyyyyyyyyyyyyyyyyyyyyy");
  }
  EXPECT_EQ(logger.lines_lost(), 0u);
}

TEST_F(LogTest, CountsLinesThatCouldNotBeWritten) {
  Logger logger({.fd = -1, .clock = &clock_});
  logger.Error("lost");
  EXPECT_EQ(logger.lines_lost(), 1u);
}

TEST_F(LogTest, LimitedWritesAFewLinesAnIntervalAndSaysHowManyItLeftOut) {
  Logger logger(With(LogFormat::kText));
  LimitedLog limited(logger, {.lines_max = 2, .interval = std::chrono::seconds{1}});
  for (int i = 0; i < 10; ++i) limited.Log(LogLevel::kWarn, "degraded", {{"i", i}});
  clock_.Advance(std::chrono::seconds{1});
  for (int i = 10; i < 13; ++i) limited.Log(LogLevel::kWarn, "degraded", {{"i", i}});
  clock_.Set(kNoon - std::chrono::hours{1});
  limited.Log(LogLevel::kWarn, "degraded", {{"i", 13}});
  EXPECT_EQ(Written(),
            "2026-01-31T12:00:00.000005Z WARN degraded i=0\n"
            "2026-01-31T12:00:00.000005Z WARN degraded i=1\n"
            "2026-01-31T12:00:01.000005Z WARN degraded suppressed=8 i=10\n"
            "2026-01-31T12:00:01.000005Z WARN degraded i=11\n"
            "2026-01-31T11:00:00.000005Z WARN degraded suppressed=1 i=13\n");
}

TEST_F(LogTest, LimitedLosesNoCountAmongThreads) {
  Logger logger(With(LogFormat::kText));
  LimitedLog limited(logger, {.lines_max = 3});
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 1'000; ++i) limited.Log(LogLevel::kWarn, "x");
      });
    }
  }
  clock_.Advance(std::chrono::seconds{1});
  limited.Log(LogLevel::kWarn, "x");
  const std::string text = Written();
  EXPECT_EQ(std::ranges::count(text, '\n'), 4);
  std::int64_t suppressed = 0;
  for (std::size_t at = 0; (at = text.find("suppressed=", at)) != std::string::npos; at += 11) {
    suppressed += std::stoll(text.substr(at + 11));
  }
  EXPECT_EQ(suppressed, 4'000 - 3);
}

TEST_F(LogTest, LimitedRespectsTheLevel) {
  Logger logger(With(LogFormat::kText, LogLevel::kError));
  LimitedLog limited(logger, {.lines_max = 1});
  limited.Log(LogLevel::kWarn, "no");
  limited.Log(LogLevel::kError, "yes");
  EXPECT_THAT(Written(), HasSubstr("ERROR yes\n"));
}

}  // namespace
}  // namespace sluice::telemetry
