// SPDX-License-Identifier: Apache-2.0
// Any bytes are lines; any line is a record, nothing, or a clear error.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "replay/line_reader.h"
#include "replay/record.h"
#include "replay/summary.h"

namespace {

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using sluice::replay::LineReader;
  if (size == 0) return 0;
  std::vector<std::uint8_t> bytes(data, data + size);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      ::fmemopen(bytes.data(), bytes.size(), "rb"), &std::fclose);
  LineReader reader(file.get());
  sluice::replay::RecordParser parser;
  sluice::replay::Summary summary({*sluice::Limit::Parse("limit=1,window=1s")});
  std::string_view line;
  while (*reader.Next(line) == LineReader::Status::kLine) {
    Expect(line.find('\n') == std::string_view::npos);
    const auto record = parser.Parse(line);
    if (!record) {
      Expect(!record.error().message.empty() && record.error().message.size() < 1000);
      continue;
    }
    if (!*record) continue;
    Expect((*record)->timestamp_us >= 0 && (*record)->cost >= 0);
    const sluice::Decision denied;
    summary.Add(**record, denied, {&denied, 1});
  }
  Expect(!summary.ToText().empty() && !summary.ToJson().empty());
  return 0;
}
