// SPDX-License-Identifier: Apache-2.0
#include "store/redis/hold_status.h"

#include <charconv>

#include "core/arithmetic.h"

namespace sluice::redis {
namespace {

// Reads numbers, each with a space before it.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  // The next number, if it is at most `max`; or else 0, and the text is not valid.
  std::int64_t Next(std::int64_t max) {
    std::int64_t number = 0;
    if (!text_.starts_with(' ')) return Invalid();
    const char* const first = text_.data() + 1;
    const auto [end, problem] = std::from_chars(first, text_.data() + text_.size(), number);
    if (problem != std::errc{} || !core::InRange(number, max)) return Invalid();
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return number;
  }

  bool is_valid() const { return valid_ && text_.empty(); }

 private:
  std::int64_t Invalid() {
    valid_ = false;
    return 0;
  }

  std::string_view text_;
  bool valid_ = true;
};

}  // namespace

std::optional<HoldStatus> ReadHoldStatus(std::string_view text, bool is_about_hold,
                                         std::size_t parts) {
  constexpr auto kOutcomeMax = static_cast<std::int64_t>(HoldStatus::Outcome::kLost);
  const std::int64_t time_max = core::Us(kTimeMax);
  HoldStatus status;
  Reader reader(text.substr(1));
  if (is_about_hold) {
    status.outcome = static_cast<HoldStatus::Outcome>(reader.Next(kOutcomeMax));
    status.part = static_cast<std::size_t>(reader.Next(static_cast<std::int64_t>(parts)));
    status.expires_us = reader.Next(time_max);
    status.late = reader.Next(1) == 1;
    status.overdrawn = reader.Next(1) == 1;
  } else {
    status.admitted = reader.Next(core::kExactMax);
  }
  for (std::size_t i = 0; i < parts; ++i) {
    status.held[i] = reader.Next(core::kExactMax);
    if (is_about_hold) status.fits[i] = reader.Next(time_max);
  }
  const bool has_part = status.outcome != HoldStatus::Outcome::kTooMany || status.part > 0;
  return reader.is_valid() && has_part ? std::optional(status) : std::nullopt;
}

}  // namespace sluice::redis
