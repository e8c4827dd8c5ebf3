// SPDX-License-Identifier: Apache-2.0
#include "rules/path.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace sluice::rules {
namespace {

// Of the two digits after a `%`.
std::optional<char> DecodeByte(std::string_view digits) {
  std::uint8_t byte = 0;
  if (digits.size() != 2) return std::nullopt;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + 2, byte, 16);
  if (error != std::errc{} || end != digits.data() + 2) return std::nullopt;
  return static_cast<char>(byte);
}

// The length of the separator that the text starts with, or 0.
std::size_t SeparatorSize(std::string_view text, Reading reading) {
  if (text.front() == '/') return 1;
  if (reading == Reading::kPlain) return 0;
  if (text.front() == '\\') return 1;
  if (text.front() != '%') return 0;
  const auto byte = DecodeByte(text.substr(1, 2));
  return byte == '/' || byte == '\\' ? 3 : 0;
}

}  // namespace

void AppendDecoded(std::string& out, std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = text[i] == '%' ? DecodeByte(text.substr(i + 1, 2)) : std::nullopt;
    out += byte.value_or(text[i]);
    if (byte) i += 2;
  }
}

std::string_view PathOf(std::string_view target) {
  if (!target.starts_with('/')) {
    const auto scheme = target.find("://");
    if (scheme < target.find_first_of("/?#")) {
      const auto path = target.find_first_of("/?#", scheme + 3);
      target = path == std::string_view::npos ? std::string_view() : target.substr(path);
    }
  }
  return target.substr(0, target.find_first_of("?#"));
}

bool IsAmbiguous(std::string_view path) {
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] == ';' || path[i] == '\\') return true;
    if (path[i] == '%' && SeparatorSize(path.substr(i), Reading::kLenient) != 0) return true;
  }
  return false;
}

std::span<const std::string_view> PathSegments::Read(std::string_view path, Reading reading) {
  segments_.clear();
  decoded_.clear();
  // Views into it must stay where they are; decoding never makes a text longer.
  decoded_.reserve(path.size());
  std::size_t begin = 0;
  std::size_t end = 0;
  while (end < path.size()) {
    const std::size_t separator = SeparatorSize(path.substr(end), reading);
    if (separator == 0) {
      ++end;
      continue;
    }
    Add(path.substr(begin, end - begin), reading);
    begin = end + separator;
    end = begin;
  }
  Add(path.substr(begin), reading);
  return segments_;
}

void PathSegments::Add(std::string_view segment, Reading reading) {
  if (reading == Reading::kLenient) segment = segment.substr(0, segment.find(';'));
  if (segment.find('%') != std::string_view::npos) {
    const std::size_t begin = decoded_.size();
    AppendDecoded(decoded_, segment);
    segment = std::string_view(decoded_).substr(begin);
  }
  if (segment.empty() || segment == ".") return;
  if (segment == "..") {
    if (!segments_.empty()) segments_.pop_back();
    return;
  }
  segments_.push_back(segment);
}

}  // namespace sluice::rules
