// SPDX-License-Identifier: Apache-2.0
// Any file is kept rule sets or an error. The content is also tried under a valid checksum, which
// no fuzzer finds: what is accepted is written as it was read.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "reload/kept_rules.h"

namespace {

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

void Try(std::string_view text) {
  const auto kept = sluice::reload::Decode(text);
  if (!kept) return Expect(!kept.error().message.empty());
  const auto again = sluice::reload::Decode(sluice::reload::Encode(*kept));
  Expect(again && *again == *kept);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Try(text);
  std::string checked = "sluice-rules 1 ";
  sluice::AppendSha256(checked, text);
  Try(checked + "\n" + std::string(text));
  return 0;
}
