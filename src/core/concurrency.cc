// SPDX-License-Identifier: Apache-2.0
#include "core/concurrency.h"

#include "base/duration.h"
#include "base/text.h"

namespace sluice::core {

std::expected<Arithmetic, std::string> Concurrency::Fit(std::int64_t, std::int64_t, Micros ttl) {
  if (ttl < kHoldTtlMin || ttl > kHoldTtlMax) {
    return std::unexpected(text::Cat("ttl=", text::FormatDuration(ttl), "; expected ",
                                     text::FormatDuration(kHoldTtlMin), " to ",
                                     text::FormatDuration(kHoldTtlMax)));
  }
  return Arithmetic{.tick = kTicks.front(), .unit = 1, .rate = 0};
}

}  // namespace sluice::core
