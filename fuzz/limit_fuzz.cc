// SPDX-License-Identifier: Apache-2.0
// Any text is a limit or a clear error; what is a limit survives the round trip and can be decided.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/bucket.h"
#include "core/fixed_window.h"
#include "core/window_counter.h"
#include "core/window_log.h"
#include "sluice/limit.h"

namespace {

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

template <typename State>
void DecideTwice(const sluice::Limit& limit) {
  using sluice::core::Decide;
  const auto first =
      Decide(limit, static_cast<const State*>(nullptr), sluice::TimePoint{}, limit.amount());
  Expect(first.decision.allowed && first.decision.remaining == 0);
  const auto second = Decide(limit, &first.next, sluice::kTimeMax, 1);
  Expect(second.decision.remaining >= 0 && second.decision.retry_after >= sluice::Micros{0});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto limit = sluice::Limit::Parse({reinterpret_cast<const char*>(data), size});
  if (!limit) {
    Expect(!limit.error().message.empty() && limit.error().message.size() < 1000);
    return 0;
  }
  Expect(*sluice::Limit::Parse(limit->ToString()) == *limit);
  DecideTwice<sluice::core::BucketState>(
      *sluice::Limit::TokenBucket({.capacity = 1, .refill = 1, .period = limit->span()}));
  switch (limit->algorithm()) {
    case sluice::Algorithm::kTokenBucket:
    case sluice::Algorithm::kLeakyBucket:
    case sluice::Algorithm::kGcra:
      DecideTwice<sluice::core::BucketState>(*limit);
      break;
    case sluice::Algorithm::kFixedWindow:
      DecideTwice<sluice::core::WindowState>(*limit);
      break;
    case sluice::Algorithm::kSlidingWindowCounter:
      DecideTwice<sluice::core::CounterState>(*limit);
      break;
    case sluice::Algorithm::kSlidingWindow: {
      sluice::core::Log log;
      log.Add(limit->span(), sluice::TimePoint{}, limit->amount());
      Expect(Decide(*limit, &log, sluice::TimePoint{}, 0).remaining == 0);
      break;
    }
  }
  return 0;
}
