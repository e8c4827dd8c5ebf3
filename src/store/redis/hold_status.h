// SPDX-License-Identifier: Apache-2.0
// What the script says about states with holds; see holds.lua.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "sluice/store.h"

namespace sluice::redis {

struct HoldStatus {
  enum class Outcome : std::uint8_t { kDenied, kDone, kExists, kConflict, kTooMany, kLost };

  std::int64_t admitted = 0;  // Of other actions than those about holds.

  // Of actions about holds.
  Outcome outcome = Outcome::kDenied;
  std::size_t part = 0;  // Of kTooMany, from 1.
  std::int64_t expires_us = 0;
  bool late = false;
  bool overdrawn = false;
  std::array<std::int64_t, kChargesMax> fits = {};  // 0: not a concurrency limit that denies.

  std::array<std::int64_t, kChargesMax> held = {};
};

// Whether a text is meant as one. Errors of Redis are not.
inline bool IsHoldStatus(std::string_view text) { return text.starts_with("h "); }

// Requires 1 .. kChargesMax parts. None if any number is missing, or not in its range.
std::optional<HoldStatus> ReadHoldStatus(std::string_view text, bool is_about_hold,
                                         std::size_t parts);

// The lines that follow it when holds are listed, each with its line break before it.
std::optional<HoldList> ReadHoldList(std::string_view text);

}  // namespace sluice::redis
