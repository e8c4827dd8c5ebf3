// SPDX-License-Identifier: Apache-2.0
// Errors of the library. A denial is never one of them: it is a Decision with allowed == false.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

namespace sluice {

enum class ErrorCode : std::uint8_t {
  kInvalidLimit,        // A limit that is not valid, or a text that is not a limit.
  kInvalidKey,          // Empty, or longer than kKeyBytesMax.
  kInvalidCost,         // Negative, or not a number.
  kCostExceedsLimit,    // More than the limit can ever grant: waiting would not help.
  kInvalidTime,         // Outside 0 .. kTimeMax.
  kInvalidRequest,      // Too many limits at once, or two different limits under one name.
  kInvalidInput,        // A file or a line that cannot be read as what it should be.
  kTooLarge,            // A message that is longer than allowed.
  kConflict,            // The change conflicts with what already exists.
  kPreconditionFailed,  // What exists is not what the change was based on.
  kStoreFull,           // A named maximum of the store is reached; room comes back with time.
  kSnapshotDamaged,     // Refused as a whole, and set aside.
  kNotFound,            // What was named does not exist.
  kIo,                  // The operating system refused a read or a write.
  kUnavailable,         // The store cannot be reached or does not serve; nothing was charged.
  kOutcomeUnknown,      // Sent but not answered: it may have been charged. Do not send it again.
  kAccessDenied,        // The store refused our credentials or a command.
  kStoreError,          // The store answered with an error that should not occur.
  kForeignState,        // The value under the state's name is not a state: others wrote it.
  kHoldLost,            // The hold has ended or expired, or was never made.
  kHoldConflict,        // The hold's id is in use, or was until a minute ago.
  kNeedsHold,           // A concurrency limit is held, not checked.
  kTooManyHolds,        // kLiveHoldsMax holds are live on one state.
};

// The name used in logs, answers and test vectors, e.g. "COST_EXCEEDS_LIMIT".
std::string_view ToString(ErrorCode code);

struct Error {
  ErrorCode code;
  std::string message;  // One sentence: what is wrong, the value, and what would be accepted.

  // Whether the same call may succeed later without being changed.
  bool transient() const {
    return code == ErrorCode::kStoreFull || code == ErrorCode::kIo ||
           code == ErrorCode::kUnavailable || code == ErrorCode::kOutcomeUnknown;
  }
  // Whether the store is at fault, not the request.
  bool outage() const {
    return transient() || code == ErrorCode::kAccessDenied || code == ErrorCode::kStoreError ||
           code == ErrorCode::kForeignState;
  }
};

template <typename T>
using Expected = std::expected<T, Error>;

}  // namespace sluice
