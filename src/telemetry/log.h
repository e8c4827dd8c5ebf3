// SPDX-License-Identifier: Apache-2.0
// Log lines, as text or as JSON.
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "sluice/error.h"
#include "sluice/time.h"
#include "telemetry/log_writer.h"

namespace sluice::telemetry {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarn, kError, kOff };
enum class LogFormat : std::uint8_t { kText, kJson };

std::string_view ToString(LogLevel level);  // "debug" and so on.

// In either case; the error lists the known names.
Expected<LogLevel> ParseLogLevel(std::string_view name);

// A name, which is ours, and a value, which may be anything that a client sent. Nothing is owned.
class LogField {
 public:
  LogField(std::string_view name, std::string_view text) : name_(name), value_(text) {}
  LogField(std::string_view name, const char* text) : LogField(name, std::string_view(text)) {}
  LogField(std::string_view name, std::same_as<bool> auto value) : name_(name), value_(value) {}
  template <std::signed_integral Number>
  LogField(std::string_view name, Number number)
      : name_(name), value_(static_cast<std::int64_t>(number)) {}
  template <std::unsigned_integral Number>
    requires(!std::same_as<Number, bool>)
  LogField(std::string_view name, Number number)
      : name_(name), value_(static_cast<std::uint64_t>(number)) {}

  std::string_view name() const { return name_; }
  const auto& value() const { return value_; }

 private:
  std::string_view name_;
  std::variant<std::string_view, std::int64_t, std::uint64_t, bool> value_;
};

using LogFields = std::initializer_list<LogField>;

// Lines look like this:
//
//   2026-01-31T12:00:00.000000Z WARN store unavailable policy=FAIL_OPEN key="user:1\x0a"
//   {"time":"2026-01-31T12:00:00.000000Z","level":"warn","message":"store unavailable",...}
//
// Texts are escaped and cut to kTextBytesMax. A line is at most kLineBytesMax long, and has
// cut=true if fields were left out for that. The caller formats the line, and the logger's own
// thread writes it: a blocking descriptor holds nobody up. A line that cannot be written, or that
// comes while too many wait, is lost and counted.
// Every method may be called from any thread. A call whose level is off costs a load and a branch,
// plus its arguments.
class Logger {
 public:
  static constexpr std::size_t kMessageBytesMax = 512;
  static constexpr std::size_t kTextBytesMax = 256;
  static constexpr std::size_t kLineBytesMax = LogWriter::kWriteBytesMax;

  struct Options {
    int fd = 2;  // Not owned.
    LogLevel level = LogLevel::kInfo;
    LogFormat format = LogFormat::kText;
    const Clock* clock = &SystemClock();                         // Not owned; outlives the logger.
    std::chrono::milliseconds flush_max = LogWriter::kFlushMax;  // How long the destructor waits.
  };

  Logger() : Logger(Options{}) {}
  explicit Logger(const Options& options);
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  LogLevel level() const { return level_.load(std::memory_order_relaxed); }
  void set_level(LogLevel level) { level_.store(level, std::memory_order_relaxed); }
  const Clock& clock() const { return *clock_; }
  std::uint64_t lines_lost() const { return writer_.lines_lost(); }

  // For fields that are costly to compute.
  bool Enabled(LogLevel level) const { return level >= this->level() && level < LogLevel::kOff; }

  void Log(LogLevel level, std::string_view message, LogFields fields = {}) {
    if (Enabled(level)) [[unlikely]]
      Write(level, message, fields, 0);
  }
  void Debug(std::string_view message, LogFields fields = {}) {
    Log(LogLevel::kDebug, message, fields);
  }
  void Info(std::string_view message, LogFields fields = {}) {
    Log(LogLevel::kInfo, message, fields);
  }
  void Warn(std::string_view message, LogFields fields = {}) {
    Log(LogLevel::kWarn, message, fields);
  }
  void Error(std::string_view message, LogFields fields = {}) {
    Log(LogLevel::kError, message, fields);
  }

 private:
  friend class LimitedLog;
  void Write(LogLevel level, std::string_view message, LogFields fields, std::uint64_t suppressed);

  // Constant after construction.
  LogFormat format_;
  const Clock* clock_;

  std::atomic<LogLevel> level_;
  LogWriter writer_;  // Last, since its thread uses the others.
};

// One line in the logger's format, for a program that ends once it has written it.
std::string LogLine(LogFormat format, TimePoint time, LogLevel level, std::string_view message,
                    LogFields fields = {});

// One place that logs, at most `lines_max` lines per interval. Suppressed lines are counted, and
// the next line that is written has suppressed=K. Any thread may use it; a suppressed line costs a
// look at the clock and an atomic operation or two.
class LimitedLog {
 public:
  struct Options {
    std::uint16_t lines_max = 5;
    Micros interval = std::chrono::seconds{1};
  };

  // The logger must outlive it.
  explicit LimitedLog(Logger& logger) : LimitedLog(logger, Options{}) {}
  LimitedLog(Logger& logger, const Options& options) : logger_(logger), options_(options) {}
  LimitedLog(const LimitedLog&) = delete;
  LimitedLog& operator=(const LimitedLog&) = delete;

  void Log(LogLevel level, std::string_view message, LogFields fields = {}) {
    if (logger_.Enabled(level)) [[unlikely]]
      LogEnabled(level, message, fields);
  }

 private:
  void LogEnabled(LogLevel level, std::string_view message, LogFields fields);
  bool Admit();

  // Constant after construction.
  Logger& logger_;
  Options options_;

  std::atomic<std::uint64_t> window_{0};  // Number of the interval, and its lines in 16 bits.
  std::atomic<std::uint64_t> suppressed_{0};
};

}  // namespace sluice::telemetry
