// SPDX-License-Identifier: Apache-2.0
#include "base/suggestion.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/text.h"

namespace sluice::text {
namespace {

// How many letters must be added, removed or replaced, ignoring case.
std::size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = EqualsIgnoreCase(a.substr(i - 1, 1), b.substr(j - 1, 1));
      const std::size_t replaced = diagonal + (same ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string Suggestion(std::string_view given, std::span<const std::string_view> known) {
  constexpr std::size_t kSizeMax = 64;
  if (given.size() > kSizeMax) return {};
  const auto nearest = std::ranges::min(
      known, {}, [&](std::string_view candidate) { return Distance(given, candidate); });
  if (Distance(given, nearest) > std::max<std::size_t>(1, nearest.size() / 3)) return {};
  return Cat("did you mean ", nearest, "? ");
}

}  // namespace sluice::text
