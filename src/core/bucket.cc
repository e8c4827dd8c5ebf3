// SPDX-License-Identifier: Apache-2.0
#include "core/bucket.h"

#include <numeric>

#include "base/text.h"

namespace sluice::core {

std::expected<Arithmetic, std::string> Bucket::Fit(std::int64_t amount, std::int64_t refill,
                                                   Micros period) {
  for (const Micros tick : kTicks) {
    // Tokens per tick are refill * tick / period, reduced to lowest terms.
    const __int128 tokens = static_cast<__int128>(refill) * tick.count();
    const auto divisor =
        std::gcd(static_cast<std::int64_t>(tokens % period.count()), period.count());
    const __int128 rate = tokens / divisor;
    const std::int64_t unit = period.count() / divisor;
    if (rate <= kExactMax && static_cast<__int128>(amount) * unit <= kExactMax) {
      return Arithmetic{.tick = tick, .unit = unit, .rate = static_cast<std::int64_t>(rate)};
    }
  }
  return std::unexpected(text::Cat(
      amount, " tokens refilled ", refill, " per ", period.count(),
      "us need numbers of 2^53 or more even in ticks of 1 s; expected a smaller capacity, or a "
      "rate and a period with a larger common divisor"));
}

}  // namespace sluice::core
