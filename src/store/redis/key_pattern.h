// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace sluice::redis {

// Which keys are meant, as a pattern of the whole key: `*` stands for any characters, also none,
// `?` for one, and all else for itself. A character is one of UTF-8, or any other byte.
//
// Redis sees keys as they are stored, escaped or hashed (see StateKey). SCAN can therefore only
// leave out most of what does not match; what it finds has to be matched again, here.
class KeyPattern {
 public:
  KeyPattern(std::string_view prefix, std::string_view pattern);

  // For SCAN: finds all states that match, and some that do not.
  std::string ScanPattern() const;

  // Whether this Redis key is the state of a key that matches. What a hash stands for is not known:
  // it matches only its own key, written out, and patterns of nothing but stars.
  bool Matches(std::string_view redis_key) const;

 private:
  const std::string start_;    // `<prefix>:{`
  const std::string pattern_;  // As given.
  const std::string whole_;    // Without a wildcard: what precedes all states of this very key.
};

}  // namespace sluice::redis
