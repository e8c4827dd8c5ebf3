// SPDX-License-Identifier: Apache-2.0
// Any text is a limit or a clear error; what is a limit survives the round trip and can be decided.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/kernel.h"
#include "sluice/limit.h"

namespace {

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

template <typename Kernel>
void DecideTwice(Kernel, const sluice::Limit& limit) {
  const auto first = Kernel::Decide(limit, nullptr, sluice::TimePoint{}, limit.amount());
  Expect(first.decision.allowed && first.decision.remaining == 0);
  const auto second = Kernel::Decide(limit, &first.next, sluice::kTimeMax, 1);
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
  DecideTwice(sluice::core::Bucket{},
              *sluice::Limit::TokenBucket({.capacity = 1, .refill = 1, .period = limit->span()}));
  sluice::core::VisitKernel(*limit, [&](auto kernel) { DecideTwice(kernel, *limit); });
  return 0;
}
