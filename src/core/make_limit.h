// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "sluice/limit.h"

namespace sluice::core {

// The limit whose algorithm(), amount(), refill() and span() these are; a window has no refill.
// Any numbers may be given. Error: kInvalidLimit.
Expected<Limit> MakeLimit(Algorithm algorithm, std::int64_t amount, std::int64_t refill,
                          Micros span);

}  // namespace sluice::core
