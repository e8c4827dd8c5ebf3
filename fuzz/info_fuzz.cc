// SPDX-License-Identifier: Apache-2.0
// Any text is a reply to INFO or not; no number taken from it is negative.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "redis/info.h"

namespace {

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::size_t bytes = 0;
  sluice::redis::ForEachInfoField(text, [&](std::string_view name, std::string_view value) {
    Expect(name.find(':') == std::string_view::npos);
    bytes += name.size() + 1 + value.size();
  });
  Expect(bytes <= text.size());
  if (const auto figures = sluice::redis::ParseInfo(text, 0)) {
    for (const std::int64_t number :
         {figures->keys, figures->memory_bytes, figures->memory_max_bytes, figures->expired_keys,
          figures->evicted_keys, figures->received_bytes, figures->sent_bytes}) {
      Expect(number >= 0);
    }
  }
  return 0;
}
