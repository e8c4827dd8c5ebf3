// SPDX-License-Identifier: Apache-2.0
#include "store/redis/hold_status.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/arithmetic.h"
#include "store/validate.h"

namespace sluice::redis {
namespace {

// Reads numbers and words, each with a space or a line break before it.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  // The next number, if it is at most `max`; or else 0, and the text is not valid.
  std::int64_t Next(std::int64_t max, char before = ' ') {
    std::int64_t number = 0;
    if (!text_.starts_with(before)) return Invalid();
    const char* const first = text_.data() + 1;
    const auto [end, problem] = std::from_chars(first, text_.data() + text_.size(), number);
    if (problem != std::errc{} || !core::InRange(number, max)) return Invalid();
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return number;
  }

  OnExpiry NextOnExpiry() {
    const bool releases = text_.starts_with(" r");
    if (!releases && !text_.starts_with(" c")) Invalid();
    text_.remove_prefix(std::min<std::size_t>(2, text_.size()));
    return releases ? OnExpiry::kRelease : OnExpiry::kCharge;
  }

  // The rest of the line, if it is the id of a hold.
  std::string_view NextId() {
    const std::size_t end = std::min(text_.find('\n'), text_.size());
    const std::string_view rest = text_.substr(0, end);
    text_.remove_prefix(end);
    if (!rest.starts_with(' ') || !IsHoldId(rest.substr(1))) {
      Invalid();
      return {};
    }
    return rest.substr(1);
  }

  bool at_end() const { return !valid_ || text_.empty(); }
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

std::optional<HoldList> ReadHoldList(std::string_view text) {
  const auto moment = [](std::int64_t us) { return TimePoint{Micros{us}}; };
  const std::int64_t time_max = core::Us(kTimeMax);
  HoldList list;
  Reader reader(text);
  list.live = static_cast<std::size_t>(reader.Next(kLiveHoldsMax, '\n'));
  while (!reader.at_end() && list.holds.size() < kListedHoldsMax) {
    HoldList::Hold& hold = list.holds.emplace_back();
    hold.expires = moment(reader.Next(time_max, '\n'));
    hold.taken = moment(reader.Next(time_max));
    hold.units = reader.Next(core::kExactMax);
    hold.on_expiry = reader.NextOnExpiry();
    hold.id = reader.NextId();
  }
  const bool fits = list.holds.size() <= list.live;
  return reader.is_valid() && fits ? std::optional(std::move(list)) : std::nullopt;
}

}  // namespace sluice::redis
