// SPDX-License-Identifier: Apache-2.0
#include "store/lease/message.h"

namespace sluice::lease {

bool HasFlow(const Limit& limit) {
  // A unit each 100 ms at least.
  return limit.rate() > 0 && limit.rate() * 100'000 >= limit.unit();
}

bool IsEligible(const Limit& limit) {
  // More than that flows into no bucket, but its products would not be exact.
  constexpr std::int64_t kRateMax = std::int64_t{1} << 34;
  if (limit.algorithm() == Algorithm::kFixedWindow) return true;
  const bool is_bucket =
      limit.algorithm() == Algorithm::kTokenBucket || limit.algorithm() == Algorithm::kGcra;
  return is_bucket && limit.tick() == Micros{1} && limit.rate() <= kRateMax;
}

}  // namespace sluice::lease
