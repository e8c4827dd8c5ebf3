// SPDX-License-Identifier: Apache-2.0
#include "redis/resp.h"

#include <algorithm>
#include <limits>

#include "base/text.h"

namespace sluice::redis {
namespace {

constexpr std::size_t kTextLineMax = 64 << 10;  // Texts, errors, doubles and big numbers.
constexpr std::size_t kShortLineMax = 32;       // Everything else that is one line.
constexpr std::size_t kLineEndSize = 2;
constexpr std::size_t kVerbatimPrefixSize = 4;  // "txt:"
constexpr std::ptrdiff_t kSafeDigits = 18;      // This many never overflow 64 bits.

constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view WithoutSign(std::string_view text) {
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  return text;
}

// Removes the digits at the start, and returns whether there were any.
bool TakeDigits(std::string_view& text) {
  const std::size_t size = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(size);
  return size > 0;
}

bool IsBigNumber(std::string_view text) {
  text = WithoutSign(text);
  return TakeDigits(text) && text.empty();
}

bool IsDouble(std::string_view text) {
  text = WithoutSign(text);
  if (text::EqualsIgnoreCase(text, "inf") || text::EqualsIgnoreCase(text, "nan")) return true;
  if (!TakeDigits(text)) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (!TakeDigits(text)) return false;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text = WithoutSign(text.substr(1));
    if (!TakeDigits(text)) return false;
  }
  return text.empty();
}

std::optional<std::int64_t> ParseInteger(std::string_view text) {
  // std::from_chars does not accept a plus, and would take the minus of "+-1".
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  return text::ParseNumber<std::int64_t>(text);
}

RespType AggregateType(char type) {
  switch (type) {
    case '~':
      return RespType::kSet;
    case '%':
      return RespType::kMap;
    case '>':
      return RespType::kPush;
    default:
      return RespType::kArray;
  }
}

template <typename Number>
void AppendNumberLine(std::string& out, char type, Number number) {
  char digits[std::numeric_limits<Number>::digits10 + 2];
  char* const end = std::to_chars(std::begin(digits), std::end(digits), number).ptr;
  out += type;
  out.append(std::begin(digits), end);
  out += "\r\n";
}

void AppendTextLine(std::string& out, char type, std::string_view text) {
  out += type;
  const std::size_t begin = out.size();
  out += text;
  std::replace_if(
      out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(),
      [](char c) { return c == '\r' || c == '\n'; }, ' ');
  out += "\r\n";
}

}  // namespace

RespParser::Status RespParser::Parse(std::string_view bytes) {
  if (!error_.empty()) return Status::kError;
  if (open_.empty()) {
    nodes_.clear();
    texts_.clear();
    open_.push_back({.due = 1, .dropped = false});
    consumed_ = 0;
    scanned_ = 0;
    nodes_left_ = std::max<std::size_t>(limits_.nodes_max, 1) - 1;
  }
  while (!open_.empty()) {
    if (open_.back().due == 0) {
      open_.pop_back();
    } else if (!ReadValue(bytes)) {
      if (error_.empty() && bytes.size() > limits_.message_bytes_max) {
        Fail(text::Cat("a message of more than ", limits_.message_bytes_max, " bytes"));
      }
      return error_.empty() ? Status::kIncomplete : Status::kError;
    }
  }
  for (const Text& text : texts_) nodes_[text.node].text = bytes.substr(text.offset, text.size);
  return Status::kMessage;
}

bool RespParser::ReadValue(std::string_view bytes) {
  if (consumed_ >= bytes.size()) return false;
  switch (bytes[consumed_]) {
    case ':':
      return ReadIntegers(bytes) || ReadScalar(bytes);
    case '+':
    case '-':
    case '_':
    case '#':
    case ',':
    case '(':
      return ReadScalar(bytes);
    case '$':
    case '!':
    case '=':
      return ReadString(bytes);
    case '*':
    case '~':
    case '%':
    case '>':
    case '|':
      return ReadAggregate(bytes);
    case ';':
    case '.':
      return Fail("streamed RESP3 types are not supported");
    default:
      return Fail("not a RESP type");
  }
}

// The replies that matter for speed are arrays of hundreds of small integers. Reads as many as
// possible, and leaves whatever is not plain, complete and short to ReadScalar.
bool RespParser::ReadIntegers(std::string_view bytes) {
  const char* const begin = bytes.data() + consumed_;
  const char* const end = bytes.data() + bytes.size();
  const char* next = begin;
  for (std::size_t due = open_.back().due; due > 0 && next < end && *next == ':'; --due) {
    const char* at = next + 1;
    const bool negative = at < end && *at == '-';
    if (negative) ++at;
    const char* const digits = at;
    const char* const stop = at + std::min(end - at, kSafeDigits);
    std::int64_t number = 0;
    while (at < stop && IsDigit(*at)) number = number * 10 + (*at++ - '0');
    if (at == digits || end - at < 2 || at[0] != '\r' || at[1] != '\n') break;
    Add(RespType::kInteger, negative ? -number : number);
    next = at + kLineEndSize;
  }
  consumed_ += static_cast<std::size_t>(next - begin);
  return next > begin;
}

bool RespParser::ReadScalar(std::string_view bytes) {
  const char type = bytes[consumed_];
  const bool short_line = type == ':' || type == '_' || type == '#';
  const auto line =
      ReadLine(bytes, short_line ? kShortLineMax : std::min(kTextLineMax, limits_.text_bytes_max));
  if (!line) return false;

  const std::size_t begin = consumed_ + 1;
  if (type == ':') {
    const auto number = ParseInteger(*line);
    if (!number) return Fail("not an integer of 64 bits");
    Add(RespType::kInteger, *number);
  } else if (type == '_') {
    if (!line->empty()) return Fail("not a null");
    Add(RespType::kNull, 0);
  } else if (type == '#') {
    if (*line != "t" && *line != "f") return Fail("not a boolean");
    Add(RespType::kBoolean, *line == "t" ? 1 : 0);
  } else if (type == ',') {
    if (!IsDouble(*line)) return Fail("not a double");
    AddText(RespType::kDouble, begin, line->size());
  } else if (type == '(') {
    if (!IsBigNumber(*line)) return Fail("not a big number");
    AddText(RespType::kBigNumber, begin, line->size());
  } else {
    AddText(type == '-' ? RespType::kError : RespType::kSimpleString, begin, line->size());
  }
  consumed_ = begin + line->size() + kLineEndSize;
  return true;
}

// While a string is incomplete, its header is read again at every call: at most kShortLineMax
// bytes, which saves another state.
bool RespParser::ReadString(std::string_view bytes) {
  const char type = bytes[consumed_];
  const auto line = ReadLine(bytes, kShortLineMax);
  if (!line) return false;
  std::size_t begin = consumed_ + 1 + line->size() + kLineEndSize;
  if (type == '$' && *line == "-1") {
    Add(RespType::kNull, 0);
    consumed_ = begin;
    return true;
  }

  const auto size = ReadLength(*line);
  if (!size) return false;
  if (*size > limits_.text_bytes_max) {
    return Fail(text::Cat("a string of more than ", limits_.text_bytes_max, " bytes"));
  }
  const bool verbatim = type == '=';
  if (verbatim && *size < kVerbatimPrefixSize) return Fail("a verbatim string without a format");

  const std::size_t available = bytes.size() - begin;
  if (available < kLineEndSize || available - kLineEndSize < *size) return false;
  const std::size_t end = begin + *size;
  if (bytes.substr(end, kLineEndSize) != "\r\n") return Fail("a string without its line end");
  if (verbatim) {
    begin += kVerbatimPrefixSize;
    if (bytes[begin - 1] != ':') return Fail("a verbatim string without a format");
  }
  AddText(type == '!' ? RespType::kError : RespType::kBulkString, begin, end - begin);
  consumed_ = end + kLineEndSize;
  return true;
}

bool RespParser::ReadAggregate(std::string_view bytes) {
  const char type = bytes[consumed_];
  const auto line = ReadLine(bytes, kShortLineMax);
  if (!line) return false;
  const std::size_t end = consumed_ + 1 + line->size() + kLineEndSize;
  if (type == '*' && *line == "-1") {
    Add(RespType::kNull, 0);
    consumed_ = end;
    return true;
  }

  const auto length = ReadLength(*line);
  if (!length) return false;
  if (open_.size() > limits_.depth_max) {
    return Fail(text::Cat("aggregates more than ", limits_.depth_max, " deep"));
  }
  // An attribute comes in addition to what its parent announced; if it did not count, a peer could
  // send empty ones forever.
  const bool attribute = type == '|';
  const std::size_t own = attribute ? 1 : 0;
  const std::size_t each = attribute || type == '%' ? 2 : 1;
  if (nodes_left_ < own || *length > (nodes_left_ - own) / each) {
    return Fail(text::Cat("a message of more than ", limits_.nodes_max, " values"));
  }
  const std::size_t elements = *length * each;
  nodes_left_ -= own + elements;
  if (!attribute) Add(AggregateType(type), static_cast<std::int64_t>(elements));
  open_.push_back({.due = elements, .dropped = attribute || open_.back().dropped});
  consumed_ = end;
  return true;
}

std::optional<std::string_view> RespParser::ReadLine(std::string_view bytes, std::size_t size_max) {
  const std::size_t begin = consumed_ + 1;
  const std::size_t stop = begin + size_max + 1;
  std::size_t end = std::max(begin, scanned_);
  while (end < std::min(stop, bytes.size()) && bytes[end] != '\r' && bytes[end] != '\n') ++end;
  scanned_ = end;
  if (end == stop) {
    Fail(text::Cat("a line of more than ", size_max, " bytes"));
    return std::nullopt;
  }
  if (end >= bytes.size() || (bytes[end] == '\r' && end + 1 == bytes.size())) return std::nullopt;
  if (bytes.substr(end, kLineEndSize) != "\r\n") {
    Fail("a line that does not end in CR LF");
    return std::nullopt;
  }
  return bytes.substr(begin, end - begin);
}

std::optional<std::size_t> RespParser::ReadLength(std::string_view line) {
  const auto length = text::ParseNumber<std::size_t>(line);
  if (!length) Fail(line == "?" ? "streamed RESP3 types are not supported" : "not a length");
  return length;
}

void RespParser::Add(RespType type, std::int64_t number) {
  Open& open = open_.back();
  --open.due;
  if (!open.dropped) nodes_.push_back({.type = type, .number = number, .text = {}});
}

void RespParser::AddText(RespType type, std::size_t offset, std::size_t size) {
  if (!open_.back().dropped) texts_.push_back({nodes_.size(), offset, size});
  Add(type, 0);
}

bool RespParser::Fail(std::string_view reason) {
  error_ = text::Cat(reason, ", at byte ", consumed_);
  return false;
}

void AppendCommand(std::string& out, std::span<const std::string_view> arguments) {
  AppendArrayHeader(out, arguments.size());
  for (const std::string_view argument : arguments) AppendBulkString(out, argument);
}

void AppendArrayHeader(std::string& out, std::size_t elements) {
  AppendNumberLine(out, '*', elements);
}

void AppendMapHeader(std::string& out, std::size_t pairs) { AppendNumberLine(out, '%', pairs); }

void AppendSetHeader(std::string& out, std::size_t elements) {
  AppendNumberLine(out, '~', elements);
}

void AppendBulkString(std::string& out, std::string_view text) {
  AppendNumberLine(out, '$', text.size());
  out += text;
  out += "\r\n";
}

void AppendVerbatimString(std::string& out, std::string_view text) {
  AppendNumberLine(out, '=', kVerbatimPrefixSize + text.size());
  out += "txt:";
  out += text;
  out += "\r\n";
}

void AppendInteger(std::string& out, std::int64_t number) { AppendNumberLine(out, ':', number); }

void AppendSimpleString(std::string& out, std::string_view text) { AppendTextLine(out, '+', text); }

void AppendError(std::string& out, std::string_view message) { AppendTextLine(out, '-', message); }

}  // namespace sluice::redis
