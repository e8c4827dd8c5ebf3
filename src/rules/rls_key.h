// SPDX-License-Identifier: Apache-2.0
// Reads the keys under which descriptors of the Rate Limit Service are counted.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rules/envoy.h"

namespace sluice::rules {

// "domain|key=value|key#hash", as RlsStateKey and RlsDomain::Match write it.
struct RlsKey {
  struct Entry {
    std::string key;
    std::string value;    // Empty if it is hashed.
    bool hashed = false;  // A secret's hash replaces the value.
  };

  std::string domain;
  std::vector<Entry> entries;  // 1 .. kRlsDepthMax.
};

// None if it is not such a key. Nor is one that was so long that it became a hash as a whole.
std::optional<RlsKey> ReadRlsKey(std::string_view text);

// The limit of the configuration that counts a key, and the key in its stored form; a null limit if
// there is none. A hash matches no value in the configuration.
RlsMatch FindRlsLimit(const RlsConfig& domains, std::string_view text);

}  // namespace sluice::rules
