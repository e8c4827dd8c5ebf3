// SPDX-License-Identifier: Apache-2.0
#include "telemetry/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <future>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/eventually.h"
#include "support/pipe.h"

namespace sluice::telemetry {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

constexpr TimePoint kNoon{std::chrono::sys_days{std::chrono::year{2026} / 1 / 31} +
                          std::chrono::hours{12} + Micros{5}};

class LogTest : public testing::Test {
 protected:
  Logger& Start(LogFormat format, LogLevel level = LogLevel::kDebug) {
    return logger_.emplace(Logger::Options{.fd = pipe_.write_end(),
                                           .level = level,
                                           .format = format,
                                           .clock = &clock_,
                                           .flush_max = std::chrono::minutes{1}});
  }

  // Ends the logger and returns what it wrote.
  std::string Written() {
    std::future<std::string> text =
        std::async(std::launch::async, [this] { return pipe_.ReadToEnd(); });
    logger_.reset();
    pipe_.CloseWriteEnd();
    return text.get();
  }

  testing_support::Pipe pipe_;
  ManualClock clock_{kNoon};
  std::optional<Logger> logger_;
};

TEST_F(LogTest, WritesTextLines) {
  Logger& logger = Start(LogFormat::kText);
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
  Logger& logger = Start(LogFormat::kJson);
  logger.Error("it \"failed\"", {{"key", "a\nb\xFF"}, {"n", -3}, {"shadow", false}});
  EXPECT_EQ(Written(),
            "{\"time\":\"2026-01-31T12:00:00.000005Z\",\"level\":\"error\","
            "\"message\":\"it \\\"failed\\\"\",\"key\":\"a\\nb\xEF\xBF\xBD"
            "FF\",\"n\":-3,"
            "\"shadow\":false}\n");
}

TEST_F(LogTest, AMessageCannotBreakItsLine) {
  Logger& logger = Start(LogFormat::kText);
  logger.Info("limit \"a\\x0a\": bad\nforged\x1b[0m");
  EXPECT_EQ(Written(),
            "2026-01-31T12:00:00.000005Z INFO limit \"a\\x0a\": bad\\x0aforged\\x1b[0m\n");
}

TEST_F(LogTest, LevelsCanBeChangedAtAnyTime) {
  Logger& logger = Start(LogFormat::kText, LogLevel::kWarn);
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

TEST(LogLine, IsCutIfItIsLong) {
  const std::string dirt(10'000, '\x01');
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    const std::string line =
        LogLine(format, kNoon, LogLevel::kInfo, dirt,
                {{"a", dirt}, {"b", dirt}, {"c", dirt}, {"d", dirt}, {"e", dirt}});
    EXPECT_LE(line.size(), Logger::kLineBytesMax);
    EXPECT_THAT(line, HasSubstr(format == LogFormat::kText ? " cut=true\n" : ",\"cut\":true}\n"));
    if (format == LogFormat::kJson) {
      EXPECT_NO_THROW(boost::json::parse(line));
    }
  }
}

TEST(LogLine, IsValidJsonAndOneLineWhateverTheBytes) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 2'000; ++i) {
    std::string value(random() % 600, '\0');
    for (char& c : value) c = static_cast<char>(random());
    const std::string line = LogLine(LogFormat::kJson, kNoon, LogLevel::kInfo, value,
                                     {{"value", value}, {"again", value}});
    ASSERT_EQ(line.find('\n'), line.size() - 1);
    ASSERT_LE(line.size(), Logger::kLineBytesMax);
    boost::system::error_code error;
    boost::json::parse(line, error);
    ASSERT_FALSE(error) << line;
    const std::string shown =
        LogLine(LogFormat::kText, kNoon, LogLevel::kInfo, value, {{"value", value}});
    ASSERT_EQ(shown.find('\n'), shown.size() - 1);
    for (const char c : shown) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));
  }
}

TEST_F(LogTest, LinesOfThreadsDoNotMix) {
  Logger& logger = Start(LogFormat::kText);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) logger.Info("message", {{"x", "yyyyyyyyyyyyyyyyyyyyyyyyy"}});
      });
    }
  }
  EXPECT_EQ(logger.lines_lost(), 0u);
  const std::string text = Written();
  EXPECT_EQ(std::ranges::count(text, '\n'), 800);
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    ASSERT_EQ(text.substr(begin, end - begin),
              "2026-01-31T12:00:00.000005Z INFO message x=yyyyyyyyyyyyyyyyyyyyyyyyy");
  }
}

TEST_F(LogTest, CountsLinesThatCouldNotBeWritten) {
  Logger logger({.fd = -1, .clock = &clock_});
  logger.Error("lost");
  EXPECT_TRUE(testing_support::Eventually([&] { return logger.lines_lost() == 1; }));
}

TEST_F(LogTest, SaysHowManyLinesWereLost) {
  pipe_.Fill();
  Logger& logger = Start(LogFormat::kText);
  while (logger.lines_lost() == 0) logger.Info("message");
  EXPECT_THAT(Written(), EndsWith("Z INFO message\n2026-01-31T12:00:00.000005Z WARN log lines were "
                                  "lost lines=1\n"));
}

TEST_F(LogTest, LimitedWritesAFewLinesAnIntervalAndSaysHowManyItLeftOut) {
  Logger& logger = Start(LogFormat::kText);
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
  Logger& logger = Start(LogFormat::kText);
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
  Logger& logger = Start(LogFormat::kText, LogLevel::kError);
  LimitedLog limited(logger, {.lines_max = 1});
  limited.Log(LogLevel::kWarn, "no");
  limited.Log(LogLevel::kError, "yes");
  EXPECT_THAT(Written(), HasSubstr("ERROR yes\n"));
}

}  // namespace
}  // namespace sluice::telemetry
