// SPDX-License-Identifier: Apache-2.0
#include "rules/glob.h"

#include <cstddef>

namespace sluice::rules {

bool GlobMatch(std::string_view pattern, std::string_view text) {
  // Only the last star needs to be tried again: what matched up to it matches as early as it can.
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  std::size_t p = 0;
  std::size_t t = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace sluice::rules
