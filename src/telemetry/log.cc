// SPDX-License-Identifier: Apache-2.0
#include "telemetry/log.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json_writer.h"
#include "base/text.h"
#include "base/utf8.h"

namespace sluice::telemetry {
namespace {

constexpr std::array<std::string_view, 5> kLevels = {"debug", "info", "warn", "error", "off"};
constexpr std::array<std::string_view, 5> kShownLevels = {"DEBUG", "INFO", "WARN", "ERROR", "OFF"};
constexpr std::size_t kEndBytesMax =
    16;  // For the mark that fields were left out, and the newline.

void AppendPadded(std::string& out, std::int64_t number, int width) {
  std::int64_t unit = 1;
  for (int i = 1; i < width; ++i) unit *= 10;
  for (; unit > 0; unit /= 10) out += static_cast<char>('0' + number / unit % 10);
}

// RFC 3339: 2026-01-31T12:00:00.000000Z
void AppendTime(std::string& out, TimePoint time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::int64_t us = (time - day).count();
  AppendPadded(out, static_cast<int>(date.year()), 4);
  out += '-';
  AppendPadded(out, static_cast<unsigned>(date.month()), 2);
  out += '-';
  AppendPadded(out, static_cast<unsigned>(date.day()), 2);
  out += 'T';
  AppendPadded(out, us / 3'600'000'000, 2);
  out += ':';
  AppendPadded(out, us / 60'000'000 % 60, 2);
  out += ':';
  AppendPadded(out, us / 1'000'000 % 60, 2);
  out += '.';
  AppendPadded(out, us % 1'000'000, 6);
  out += 'Z';
}

bool IsWord(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           std::string_view("_-.:/@+").find(c) != std::string_view::npos;
  });
}

// Our own words, which may quote text that is already escaped: escapes only what would break the
// line.
void AppendMessage(std::string& out, std::string_view message) {
  for (const char c : message.substr(0, Logger::kMessageBytesMax)) {
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      out += text::Escape({&c, 1});
    }
  }
}

class TextLine {
 public:
  TextLine(std::string& out, TimePoint time, LogLevel level, std::string_view message) : out_(out) {
    AppendTime(out_, time);
    out_ += ' ';
    out_ += kShownLevels[static_cast<std::size_t>(level)];
    out_ += ' ';
    AppendMessage(out_, message);
  }

  void Field(std::string_view name, std::string_view text) {
    Name(name);
    const bool cut = text.size() > Logger::kTextBytesMax;
    if (!cut && IsWord(text)) {
      out_ += text;
      return;
    }
    out_ += '"';
    out_ += text::Escape(text.substr(0, Logger::kTextBytesMax));
    out_ += cut ? "\"..." : "\"";
  }
  void Field(std::string_view name, bool value) {
    Name(name);
    out_ += value ? "true" : "false";
  }
  template <typename Number>
  void Field(std::string_view name, Number number) {
    Name(name);
    AppendNumber(out_, number);
  }

  void End() { out_ += '\n'; }

 private:
  void Name(std::string_view name) {
    out_ += ' ';
    out_ += name;
    out_ += '=';
  }

  std::string& out_;
};

class JsonLine {
 public:
  JsonLine(std::string& out, TimePoint time, LogLevel level, std::string_view message)
      : out_(out), json_(out) {
    std::string shown_time;
    AppendTime(shown_time, time);
    json_.BeginObject().Field("time", shown_time).Field("level", ToString(level));
    json_.Field("message", text::CutUtf8(message, Logger::kMessageBytesMax));
  }

  void Field(std::string_view name, std::string_view text) {
    if (text.size() <= Logger::kTextBytesMax) {
      json_.BytesField(name, text);
      return;
    }
    std::string shown(text::CutUtf8(text, Logger::kTextBytesMax));
    json_.BytesField(name, shown += "...");
  }
  template <typename Value>
  void Field(std::string_view name, Value value) {
    json_.Field(name, value);
  }

  void End() {
    json_.EndObject();
    out_ += '\n';
  }

 private:
  std::string& out_;
  JsonWriter json_;
};

template <typename Line>
std::string Render(TimePoint time, LogLevel level, std::string_view message, LogFields fields,
                   std::uint64_t suppressed) {
  std::string out;
  out.reserve(256);
  Line line(out, time, level, message);
  if (suppressed > 0) line.Field("suppressed", suppressed);
  for (const LogField& field : fields) {
    const std::size_t size = out.size();
    std::visit([&](auto value) { line.Field(field.name(), value); }, field.value());
    if (out.size() > Logger::kLineBytesMax - kEndBytesMax) {
      out.resize(size);
      line.Field("cut", true);
      break;
    }
  }
  line.End();
  return out;
}

std::string RenderAs(LogFormat format, TimePoint time, LogLevel level, std::string_view message,
                     LogFields fields, std::uint64_t suppressed) {
  return format == LogFormat::kText ? Render<TextLine>(time, level, message, fields, suppressed)
                                    : Render<JsonLine>(time, level, message, fields, suppressed);
}

}  // namespace

std::string_view ToString(LogLevel level) { return kLevels[static_cast<std::size_t>(level)]; }

Expected<LogLevel> ParseLogLevel(std::string_view name) {
  for (std::size_t i = 0; i < kLevels.size(); ++i) {
    if (text::EqualsIgnoreCase(name, kLevels[i])) return static_cast<LogLevel>(i);
  }
  return std::unexpected(Error{
      ErrorCode::kInvalidInput,
      text::Cat("log level ", text::Quote(name), ": expected debug, info, warn, error or off")});
}

std::string LogLine(LogFormat format, TimePoint time, LogLevel level, std::string_view message,
                    LogFields fields) {
  return RenderAs(format, time, level, message, fields, 0);
}

Logger::Logger(const Options& options)
    : format_(options.format),
      clock_(options.clock),
      level_(options.level),
      writer_({.fd = options.fd, .flush_max = options.flush_max, .notice = [this](auto lost) {
                 if (!Enabled(LogLevel::kWarn)) return std::string();
                 return LogLine(format_, clock_->Now(), LogLevel::kWarn, "log lines were lost",
                                {{"lines", lost}});
               }}) {}

void Logger::Write(LogLevel level, std::string_view message, LogFields fields,
                   std::uint64_t suppressed) {
  writer_.Put(RenderAs(format_, clock_->Now(), level, message, fields, suppressed));
}

bool LimitedLog::Admit() {
  constexpr int kLineBits = 16;
  constexpr std::uint64_t kLineMask = (std::uint64_t{1} << kLineBits) - 1;
  const std::int64_t interval = logger_.clock_->Now().time_since_epoch() / options_.interval;
  const std::uint64_t fresh = static_cast<std::uint64_t>(interval) << kLineBits;
  std::uint64_t window = window_.load(std::memory_order_relaxed);
  for (;;) {
    // Another interval, earlier or later, starts over.
    const std::uint64_t before = (window & ~kLineMask) == fresh ? window : fresh;
    if ((before & kLineMask) >= options_.lines_max) return false;
    if (window_.compare_exchange_weak(window, before + 1, std::memory_order_relaxed)) return true;
  }
}

void LimitedLog::LogEnabled(LogLevel level, std::string_view message, LogFields fields) {
  if (!Admit()) {
    suppressed_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  logger_.Write(level, message, fields, suppressed_.exchange(0, std::memory_order_relaxed));
}

}  // namespace sluice::telemetry
