// SPDX-License-Identifier: Apache-2.0
#include "core/window_counter.h"

#include "base/text.h"

namespace sluice::core {

std::expected<Arithmetic, std::string> WindowCounter::Fit(std::int64_t amount, std::int64_t,
                                                          Micros window) {
  for (const Micros tick : kTicks) {
    if (window % tick != Micros{0}) break;
    const std::int64_t unit = window / tick;
    if (static_cast<__int128>(amount) * unit <= kExactMax) {
      return Arithmetic{.tick = tick, .unit = unit, .rate = 0};
    }
  }
  return std::unexpected(
      text::Cat("limit=", amount, " times window=", window.count(),
                "us is 2^53 or more in every tick (1 us, 1 ms, 1 s) that divides the window; "
                "expected a smaller limit, or a window of whole seconds"));
}

}  // namespace sluice::core
