// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace sluice::redis {

// Selects keys by a pattern for the whole key: `*` matches any characters, or none, `?` matches
// one, and everything else matches itself. A character is one of UTF-8, or any other byte.
//
// Redis has the keys as they are stored, escaped or hashed (see StateKey). So SCAN can only skip
// most of what does not match; what it finds has to be matched again, here.
class KeyPattern {
 public:
  KeyPattern(std::string_view prefix, std::string_view pattern);

  // For SCAN: finds all states that match, and some that do not.
  std::string ScanPattern() const;

  // Whether this Redis key is the state of a key that matches. A hash does not reveal its key: it
  // matches only that key, written out, and patterns of nothing but stars.
  bool Matches(std::string_view redis_key) const;

 private:
  const std::string start_;       // `<prefix>:{`
  const std::string pattern_;     // As given.
  const std::string key_prefix_;  // Without a wildcard: what all states of this key start with.
};

}  // namespace sluice::redis
