// SPDX-License-Identifier: Apache-2.0
// Any text is a file of tokens or a clear error that shows none of it. What is read can be written
// and read again, and admits only those who know a token.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "net/access.h"

namespace {

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view bearer = sluice::net::BearerToken(text);
  Expect(bearer.size() <= text.size());
  const auto tokens = sluice::net::Tokens::Parse(text);
  if (!tokens) {
    const std::string& message = tokens.error().message;
    Expect(!message.empty() && message.size() < 200);
    for (const char c : message) Expect(c >= ' ' && c <= '~');
    return 0;
  }
  Expect(tokens->size() > 0 && tokens->size() <= sluice::net::Tokens::kCountMax);
  Expect(!tokens->Find(""));
  // Every line that is not a comment ends in a token, and a token has no blanks.
  std::size_t found = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t last = line.find_last_not_of(" \t\r");
    if (last == std::string_view::npos) continue;
    line = line.substr(0, last + 1);
    if (line[line.find_first_not_of(" \t\r")] == '#') continue;
    const std::size_t blank = line.find_last_of(" \t\r");
    const std::string_view token = blank == std::string_view::npos ? line : line.substr(blank + 1);
    Expect(tokens->Find(token).has_value());
    Expect(!tokens->Find(std::string(token) + ' ').has_value());
    ++found;
  }
  Expect(found == tokens->size());
  return 0;
}
