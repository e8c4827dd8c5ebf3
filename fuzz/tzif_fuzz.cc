// SPDX-License-Identifier: Apache-2.0
// Any file is a time zone or an error; what it says about clocks is consistent.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "zones/offsets.h"

namespace {

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto offsets =
      sluice::zones::Offsets::FromTzif({reinterpret_cast<const char*>(data), size});
  if (!offsets) {
    Expect(!offsets.error().empty());
    return 0;
  }
  constexpr std::int64_t kEnd = (std::int64_t{1} << 52) / 1'000'000;
  constexpr std::int64_t kStep = 86'400 * 97;
  std::int64_t before = offsets->FirstMoment(-kStep);
  for (std::int64_t local = 0; local < kEnd; local += kStep) {
    const std::int64_t moment = offsets->FirstMoment(local);
    Expect(moment >= before);
    Expect(moment + offsets->At(moment) >= local);
    Expect(moment - 1 + offsets->At(moment - 1) < local);
    before = moment;
  }
  return 0;
}
