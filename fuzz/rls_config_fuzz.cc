// SPDX-License-Identifier: Apache-2.0
// Any text is a configuration or a list of problems. Whatever a request contains, its state's key
// is within bounds. The first line is a request, `key=value` separated by commas; the rest is the
// file.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rules/envoy.h"
#include "rules/rls_key.h"
#include "sluice/store.h"

namespace {

using sluice::rules::RlsConfig;
using sluice::rules::RlsDomain;
using sluice::rules::RlsEntry;
using sluice::rules::RlsLimit;
using sluice::rules::RlsMatch;

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

std::vector<RlsEntry> EntriesOf(std::string_view line) {
  std::vector<RlsEntry> entries;
  while (!line.empty()) {
    const std::string_view pair = line.substr(0, line.find(','));
    line.remove_prefix(std::min(pair.size() + 1, line.size()));
    const std::string_view key = pair.substr(0, pair.find('='));
    entries.push_back({.key = key, .value = pair.substr(std::min(key.size() + 1, pair.size()))});
  }
  return entries;
}

void CheckMatch(const RlsDomain& domain, const std::vector<RlsEntry>& entries) {
  RlsMatch match;
  domain.Match(entries, match);
  if (match.limit == nullptr) return;
  Expect(!match.key.empty() && match.key.size() <= sluice::kKeyBytesMax);
  Expect(match.limit->limit.has_value() == (match.limit->kind == RlsLimit::Kind::kLimited));
  Expect(match.limit->path.starts_with(domain.name()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view request = text.substr(0, text.find('\n'));
  const auto key = sluice::rules::ReadRlsKey(request);
  Expect(!key || (!key->entries.empty() && key->entries.size() <= sluice::rules::kRlsDepthMax));
  const RlsConfig::File file{.name = "fuzz", .text = std::string(text.substr(request.size()))};
  const auto parsed = RlsConfig::Parse({&file, 1});
  if (!parsed) {
    Expect(!parsed.error().empty());
    return 0;
  }
  for (const RlsDomain& domain : (*parsed)->domains()) CheckMatch(domain, EntriesOf(request));
  const RlsMatch found = sluice::rules::FindRlsLimit(**parsed, request);
  Expect(!found.limit || found.key.size() <= sluice::kKeyBytesMax);

  // A domain that is spread over files is still one.
  const std::array files = {file, RlsConfig::File{.name = "again", .text = file.text}};
  const auto merged = RlsConfig::Parse(files, sluice::rules::RlsMerge::kMerge);
  if (merged) Expect((*merged)->domains().size() == (*parsed)->domains().size());
  return 0;
}
