// SPDX-License-Identifier: Apache-2.0
#include "resp/request_parser.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "base/hex.h"
#include "base/text.h"

namespace sluice::resp {
namespace {

constexpr std::size_t kLineEndSize = 2;
constexpr std::size_t kLengthLineMax = 32;  // "*1024" and the like.

// The same as in Redis before AUTH.
constexpr std::int64_t kUntrustedArgumentsMax = 10;
constexpr std::int64_t kUntrustedBulkBytesMax = 16 << 10;

constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }
constexpr bool IsBlank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\v' || c == '\f' || c == '\r';
}

// A line with a type and a length.
struct Length {
  enum class Status : std::uint8_t { kWhole, kPart, kTooLong, kInvalid };
  Status status;
  std::int64_t value = 0;
  std::size_t line_size = 0;
};

Length ReadUnusualLength(std::string_view bytes) {
  const std::size_t stop = std::min(bytes.size(), kLengthLineMax);
  std::size_t end = 1;
  while (end < stop && bytes[end] != '\r') ++end;
  if (end >= stop) {
    return {.status = stop == kLengthLineMax ? Length::Status::kTooLong : Length::Status::kPart};
  }
  if (end + 1 == bytes.size()) return {.status = Length::Status::kPart};
  // Like Redis: no plus, no leading zeros.
  const std::string_view text = bytes.substr(1, end - 1);
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  const bool plain = bytes[end + 1] == '\n' && (text == "0" || !digits.starts_with('0'));
  const auto value = plain ? text::ParseInteger(text) : std::nullopt;
  if (!value) return {.status = Length::Status::kInvalid};
  return {.status = Length::Status::kWhole, .value = *value, .line_size = end + kLineEndSize};
}

// Nearly every length has a few digits, and is complete.
inline Length ReadLength(std::string_view bytes) {
  constexpr std::ptrdiff_t kDigitsMax = 6;
  const char* const begin = bytes.data() + 1;
  const char* const end = bytes.data() + bytes.size();
  const char* at = begin;
  std::int64_t value = 0;
  while (at < end && at - begin < kDigitsMax && IsDigit(*at)) value = value * 10 + (*at++ - '0');
  const bool usual = at > begin && end - at >= 2 && at[0] == '\r' && at[1] == '\n' &&
                     (*begin != '0' || at - begin == 1);
  if (!usual) return ReadUnusualLength(bytes);
  return {.status = Length::Status::kWhole,
          .value = value,
          .line_size = static_cast<std::size_t>(at - bytes.data()) + kLineEndSize};
}

// Splits a line into arguments with the syntax of redis-cli: "double quotes" know \n \r \t \b \a
// and \xHH, 'single quotes' know \'. Unescaping works in place, as it never makes text longer.
class LineSplitter {
 public:
  explicit LineSplitter(std::span<char> line) : next_(line.data()), end_(next_ + line.size()) {}

  // Returns false at the end, or if quotes are not balanced.
  bool Next(std::string_view& argument) {
    while (next_ < end_ && IsBlank(*next_)) ++next_;
    if (next_ == end_) return false;
    char* const begin = next_;
    char* out = begin;
    while (next_ < end_ && !IsBlank(*next_)) {
      if (*next_ != '"' && *next_ != '\'') {
        *out++ = *next_++;
        continue;
      }
      const char quote = *next_++;
      while (next_ < end_ && *next_ != quote) *out++ = quote == '"' ? Escaped() : Single();
      // The closing quote ends the argument.
      if (next_ == end_ || (next_ + 1 < end_ && !IsBlank(next_[1]))) return Unbalanced();
      ++next_;
      break;
    }
    argument = {begin, static_cast<std::size_t>(out - begin)};
    return true;
  }

  bool balanced() const { return balanced_; }

 private:
  char Escaped() {
    if (*next_ != '\\' || end_ - next_ < 2) return *next_++;
    if (next_[1] == 'x' && end_ - next_ >= 4 && text::HexValue(next_[2]) >= 0 &&
        text::HexValue(next_[3]) >= 0) {
      const char byte = static_cast<char>(text::HexValue(next_[2]) * 16 + text::HexValue(next_[3]));
      next_ += 4;
      return byte;
    }
    const char code = next_[1];
    next_ += 2;
    switch (code) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'b':
        return '\b';
      case 'a':
        return '\a';
      default:
        return code;
    }
  }

  char Single() {
    if (*next_ == '\\' && end_ - next_ >= 2 && next_[1] == '\'') ++next_;
    return *next_++;
  }

  bool Unbalanced() {
    balanced_ = false;
    return false;
  }

  char* next_;
  char* const end_;
  bool balanced_ = true;
};

}  // namespace

RequestParser::Status RequestParser::Parse(std::span<char> bytes, bool trusted) {
  if (!error_.empty()) return Status::kError;
  const std::string_view view(bytes.data(), bytes.size());
  if (due_ == 0) {
    if (bytes.empty()) return Status::kIncomplete;
    arguments_.clear();
    consumed_ = 0;
    if (bytes[0] != '*') return ParseInline(bytes);
  }
  return ParseArray(view, trusted);
}

RequestParser::Status RequestParser::ParseArray(std::string_view bytes, bool trusted) {
  if (due_ == 0) {
    const Length count = ReadLength(bytes);
    if (count.status == Length::Status::kPart) return Status::kIncomplete;
    if (count.status == Length::Status::kTooLong) return Fail("too big mbulk count string");
    if (count.status == Length::Status::kInvalid ||
        count.value > static_cast<std::int64_t>(bounds_.arguments_max)) {
      return Fail("invalid multibulk length");
    }
    if (!trusted && count.value > kUntrustedArgumentsMax) {
      return Fail("unauthenticated multibulk length");
    }
    consumed_ = count.line_size;
    due_ = static_cast<std::size_t>(std::max<std::int64_t>(0, count.value));
  }
  for (; due_ > 0; --due_) {
    const std::string_view rest = bytes.substr(consumed_);
    if (rest.empty()) return Suspend(bytes);
    if (rest[0] != '$') return Fail(text::Cat("expected '$', got '", rest.substr(0, 1), "'"));
    const Length length = ReadLength(rest);
    if (length.status == Length::Status::kPart) return Suspend(bytes);
    if (length.status == Length::Status::kTooLong) return Fail("too big bulk count string");
    if (length.status == Length::Status::kInvalid || length.value < 0 ||
        length.value > static_cast<std::int64_t>(bounds_.bulk_bytes_max)) {
      return Fail("invalid bulk length");
    }
    if (!trusted && length.value > kUntrustedBulkBytesMax) {
      return Fail("unauthenticated bulk length");
    }
    const auto size = static_cast<std::size_t>(length.value);
    const std::size_t whole = length.line_size + size + kLineEndSize;
    if (consumed_ + whole > bounds_.request_bytes_max) return Fail("too big request");
    if (rest.size() < whole) return Suspend(bytes);
    if (rest[whole - 2] != '\r' || rest[whole - 1] != '\n') {
      return Fail("expected CRLF after a bulk string");
    }
    arguments_.push_back(rest.substr(length.line_size, size));
    consumed_ += whole;
  }
  if (!pieces_.empty()) Resume(bytes);
  return Status::kRequest;
}

RequestParser::Status RequestParser::ParseInline(std::span<char> bytes) {
  const std::size_t stop = std::min(bytes.size(), bounds_.inline_bytes_max);
  const void* const found =
      scanned_ < stop ? std::memchr(bytes.data() + scanned_, '\n', stop - scanned_) : nullptr;
  if (found == nullptr) {
    scanned_ = stop;
    if (stop == bounds_.inline_bytes_max) return Fail("too big inline request");
    return Status::kIncomplete;
  }
  const auto size = static_cast<std::size_t>(static_cast<const char*>(found) - bytes.data());
  scanned_ = 0;
  consumed_ = size + 1;
  LineSplitter splitter(bytes.first(size));
  std::string_view argument;
  while (splitter.Next(argument)) {
    if (arguments_.size() == bounds_.arguments_max) return Fail("too many arguments in request");
    arguments_.push_back(argument);
  }
  if (!splitter.balanced()) return Fail("unbalanced quotes in request");
  return Status::kRequest;
}

RequestParser::Status RequestParser::Suspend(std::string_view bytes) {
  for (const std::string_view argument : arguments_) {
    pieces_.push_back({static_cast<std::size_t>(argument.data() - bytes.data()), argument.size()});
  }
  arguments_.clear();
  return Status::kIncomplete;
}

void RequestParser::Resume(std::string_view bytes) {
  Suspend(bytes);
  for (const Piece& piece : pieces_) arguments_.push_back(bytes.substr(piece.offset, piece.size));
  pieces_.clear();
}

RequestParser::Status RequestParser::Fail(std::string_view reason) {
  error_ = text::Cat("ERR Protocol error: ", reason);
  return Status::kError;
}

}  // namespace sluice::resp
