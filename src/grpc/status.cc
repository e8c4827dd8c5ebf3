// SPDX-License-Identifier: Apache-2.0
#include "grpc/status.h"

#include <array>
#include <cstddef>
#include <utility>

#include "base/percent.h"
#include "base/text.h"

namespace sluice::grpc {
namespace {

StatusCode CodeOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidLimit:
    case ErrorCode::kInvalidKey:
    case ErrorCode::kInvalidCost:
    case ErrorCode::kCostExceedsLimit:
    case ErrorCode::kInvalidTime:
    case ErrorCode::kInvalidRequest:
    case ErrorCode::kInvalidInput:
      return StatusCode::kInvalidArgument;
    case ErrorCode::kNotFound:
      return StatusCode::kNotFound;
    case ErrorCode::kHoldConflict:
    case ErrorCode::kConflict:
      return StatusCode::kAlreadyExists;
    case ErrorCode::kNeedsHold:
    case ErrorCode::kHoldLost:
    case ErrorCode::kPreconditionFailed:
      return StatusCode::kFailedPrecondition;
    case ErrorCode::kTooManyHolds:
    case ErrorCode::kTooLarge:
      return StatusCode::kResourceExhausted;
    case ErrorCode::kStoreFull:
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutcomeUnknown:
    case ErrorCode::kAccessDenied:
    case ErrorCode::kStoreError:
    case ErrorCode::kForeignState:
    case ErrorCode::kIo:
      return StatusCode::kUnavailable;
    case ErrorCode::kSnapshotDamaged:
      break;
  }
  return StatusCode::kInternal;
}

}  // namespace

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
    case StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
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

Status StatusOf(const Error& error) {
  return {CodeOf(error.code), text::Cat(ToString(error.code), ": ", error.message)};
}

std::string PercentEncode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  text::AppendPercentEncoded(out, text, [](char c) { return c >= ' ' && c <= '~' && c != '%'; });
  return out;
}

}  // namespace sluice::grpc
