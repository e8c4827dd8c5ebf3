// SPDX-License-Identifier: Apache-2.0
// Durations and times as people and programs write them.
#pragma once

#include <string>
#include <string_view>

#include "sluice/error.h"
#include "sluice/time.h"

namespace sluice::text {

// "500ms": a whole number and one of us, ms, s, m, h, d, at most kSpanMax. Either case is accepted,
// except M, which elsewhere means months. The error, kInvalidInput, quotes the text and says what
// was expected.
Expected<Micros> ParseDuration(std::string_view text);

// Uses the largest unit that gives a whole number. ParseDuration(FormatDuration(d)) == d.
std::string FormatDuration(Micros duration);

// 2023-11-14T22:13:20.000000Z
std::string FormatTime(TimePoint time);

}  // namespace sluice::text
