// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::zones {

// What the clocks of a time zone show: its offset from UTC, and when that changes. Times are whole
// seconds: since the epoch, or, if local, what UTC would be if its clocks showed the same.
class Offsets {
 public:
  struct Change {
    std::int64_t at;
    std::int32_t offset;  // Local time less UTC, in seconds, from then on.

    friend bool operator==(const Change&, const Change&) = default;
  };

  // UTC.
  Offsets() = default;

  // The offset before the first change, and the changes, in the order of time.
  Offsets(std::int32_t first, const std::vector<Change>& changes);

  // What a file in TZif format says (RFC 9636), whose rule for the future is applied to every year
  // that a limit can see. The error says what is wrong with the file.
  static std::expected<Offsets, std::string> FromTzif(std::string_view file);

  // At a moment.
  std::int32_t At(std::int64_t utc) const;

  // The first moment at which clocks show `local` or later. So of a time that is skipped it is the
  // moment after the gap, and of one that comes twice the first.
  std::int64_t FirstMoment(std::int64_t local) const;

  friend bool operator==(const Offsets&, const Offsets&) = default;

 private:
  std::int32_t first_ = 0;
  std::vector<Change> changes_;
};

}  // namespace sluice::zones
