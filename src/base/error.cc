// SPDX-License-Identifier: Apache-2.0
#include "sluice/error.h"

#include <utility>

namespace sluice {

std::string_view ToString(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidLimit:
      return "INVALID_LIMIT";
    case ErrorCode::kInvalidKey:
      return "INVALID_KEY";
    case ErrorCode::kInvalidCost:
      return "INVALID_COST";
    case ErrorCode::kCostExceedsLimit:
      return "COST_EXCEEDS_LIMIT";
    case ErrorCode::kInvalidTime:
      return "INVALID_TIME";
    case ErrorCode::kInvalidRequest:
      return "INVALID_REQUEST";
    case ErrorCode::kInvalidInput:
      return "INVALID_INPUT";
    case ErrorCode::kTooLarge:
      return "TOO_LARGE";
    case ErrorCode::kConflict:
      return "CONFLICT";
    case ErrorCode::kPreconditionFailed:
      return "PRECONDITION_FAILED";
    case ErrorCode::kStoreFull:
      return "STORE_FULL";
    case ErrorCode::kSnapshotDamaged:
      return "SNAPSHOT_DAMAGED";
    case ErrorCode::kNotFound:
      return "NOT_FOUND";
    case ErrorCode::kIo:
      return "IO";
    case ErrorCode::kUnavailable:
      return "UNAVAILABLE";
    case ErrorCode::kOutcomeUnknown:
      return "OUTCOME_UNKNOWN";
    case ErrorCode::kAccessDenied:
      return "ACCESS_DENIED";
    case ErrorCode::kStoreError:
      return "STORE_ERROR";
    case ErrorCode::kForeignState:
      return "FOREIGN_STATE";
    case ErrorCode::kHoldLost:
      return "HOLD_LOST";
    case ErrorCode::kHoldConflict:
      return "HOLD_CONFLICT";
    case ErrorCode::kNeedsHold:
      return "NEEDS_HOLD";
    case ErrorCode::kTooManyHolds:
      return "TOO_MANY_HOLDS";
  }
  std::unreachable();
}

}  // namespace sluice
