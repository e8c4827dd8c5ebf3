// SPDX-License-Identifier: Apache-2.0
#include "grpc/status.h"

#include <array>
#include <cstddef>
#include <utility>

#include "base/percent.h"

namespace sluice::grpc {

std::string_view ToText(StatusCode code) {
  static constexpr std::array<std::string_view, 17> kTexts = {
      "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"};
  return kTexts[static_cast<std::size_t>(code)];
}

std::string_view ToString(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kInternal:
      return "INTERNAL";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  std::unreachable();
}

std::string PercentEncode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  text::AppendPercentEncoded(out, text, [](char c) { return c >= ' ' && c <= '~' && c != '%'; });
  return out;
}

}  // namespace sluice::grpc
