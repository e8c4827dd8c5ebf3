// SPDX-License-Identifier: Apache-2.0
#include "store/redis/key_pattern.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "base/utf8.h"
#include "store/redis/state_key.h"

namespace sluice::redis {
namespace {

constexpr std::string_view kWildcards = "*?";

std::string_view FirstCharacter(std::string_view text) {
  return text.substr(0, std::max<std::size_t>(text::Utf8Length(text), 1));
}

// Takes time at most proportional to the product of both lengths: only the last star needs to be
// retried, since everything before it matched as early as possible. Compares whole characters,
// because otherwise a star could end inside one, whose remaining bytes would then pass for several.
bool GlobMatch(std::string_view pattern, std::string_view text) {
  std::optional<std::string_view> after_star;
  std::string_view retry;
  while (!text.empty()) {
    const std::string_view wanted = FirstCharacter(pattern);
    const std::string_view found = FirstCharacter(text);
    if (wanted == "*") {
      pattern.remove_prefix(1);
      after_star = pattern;
      retry = text;
    } else if (wanted == "?" || wanted == found) {
      pattern.remove_prefix(wanted.size());
      text.remove_prefix(found.size());
    } else if (after_star) {
      pattern = *after_star;
      retry.remove_prefix(FirstCharacter(retry).size());
      text = retry;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*') == std::string_view::npos;
}

// A SCAN pattern for keys that start with this text. Escaped keys hold no other characters that are
// special to SCAN.
std::string StartsWith(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == '\\') out += '\\';
    out += c;
  }
  return out + '*';
}

}  // namespace

KeyPattern::KeyPattern(std::string_view prefix, std::string_view pattern)
    : start_(text::Cat(prefix, ":{")),
      pattern_(pattern),
      key_prefix_(pattern.find_first_of(kWildcards) == std::string_view::npos
                      ? KeyPrefix(prefix, pattern)
                      : std::string()) {}

std::string KeyPattern::ScanPattern() const {
  if (!key_prefix_.empty()) return StartsWith(key_prefix_);
  const std::string_view pattern = pattern_;
  return StartsWith(start_ + Escape(pattern.substr(0, pattern.find_first_of(kWildcards))));
}

bool KeyPattern::Matches(std::string_view redis_key) const {
  if (!key_prefix_.empty()) return redis_key.starts_with(key_prefix_);
  if (!redis_key.starts_with(start_)) return false;
  const std::string_view rest = redis_key.substr(start_.size());
  const std::string_view stored = rest.substr(0, rest.find('}'));
  if (!rest.substr(stored.size()).starts_with("}:")) return false;
  if (stored.starts_with('#')) return pattern_.find_first_not_of('*') == std::string::npos;
  const auto key = Unescape(stored);
  return key && GlobMatch(pattern_, *key);
}

}  // namespace sluice::redis
