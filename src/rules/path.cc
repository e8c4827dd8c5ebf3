// SPDX-License-Identifier: Apache-2.0
#include "rules/path.h"

#include "core/percent.h"

namespace sluice::rules {
namespace {

// In the lenient reading: the length of the separator that the text starts with, or 0.
std::size_t SeparatorSize(std::string_view text) {
  if (text.front() == '/' || text.front() == '\\') return 1;
  const auto byte = text::DecodePercent(text);
  return byte == '/' || byte == '\\' ? 3 : 0;
}

}  // namespace

void AppendDecoded(std::string& out, std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = text::DecodePercent(text.substr(i));
    out += byte.value_or(text[i]);
    if (byte) i += 2;
  }
}

RequestPath RequestPath::Of(std::string_view target) {
  if (!target.starts_with('/')) {
    const auto scheme = target.find("://");
    if (scheme < target.find_first_of("/?#")) {
      const auto path = target.find_first_of("/?#", scheme + 3);
      target = path == std::string_view::npos ? std::string_view() : target.substr(path);
    }
  }
  RequestPath path{.text = target};
  for (std::size_t i = 0; i < target.size(); ++i) {
    const char c = target[i];
    if (c == '?' || c == '#') {
      path.text = target.substr(0, i);
      break;
    }
    if (c == '%') {
      path.encoded = true;
      if (SeparatorSize(target.substr(i)) != 0) path.ambiguous = true;
    } else if (c == ';' || c == '\\') {
      path.ambiguous = true;
    }
  }
  return path;
}

std::span<const std::string_view> PathSegments::Read(const RequestPath& path, Reading reading) {
  segments_.clear();
  decoded_.clear();
  // Views into it must stay where they are; decoding never makes a text longer.
  if (path.encoded) decoded_.reserve(path.text.size());
  const std::string_view text = path.text;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool plain = reading == Reading::kPlain;
    const std::size_t separator =
        plain ? std::size_t{text[i] == '/'} : SeparatorSize(text.substr(i));
    if (separator == 0) continue;
    Add(text.substr(begin, i - begin), path.encoded, reading);
    begin = i + separator;
    i = begin - 1;
  }
  Add(text.substr(begin), path.encoded, reading);
  return segments_;
}

void PathSegments::Add(std::string_view segment, bool encoded, Reading reading) {
  if (reading == Reading::kLenient) segment = segment.substr(0, segment.find(';'));
  if (encoded && segment.find('%') != std::string_view::npos) {
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
