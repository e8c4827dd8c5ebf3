// SPDX-License-Identifier: Apache-2.0
#include "base/glob.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace sluice {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

// Where the piece first occurs, or kNone. Knuth-Morris-Pratt: no character of the text is looked at
// again once it is passed, so that a piece which almost matches everywhere costs no more than any
// other.
std::size_t Find(std::string_view piece, std::string_view text) {
  // For each prefix of the piece: how many characters at its end are again the start of the piece.
  std::array<std::uint16_t, kGlobBytesMax> again;
  again[0] = 0;
  for (std::size_t i = 1, same = 0; i < piece.size(); ++i) {
    while (same > 0 && piece[i] != piece[same]) same = again[same - 1];
    if (piece[i] == piece[same]) ++same;
    again[i] = static_cast<std::uint16_t>(same);
  }
  for (std::size_t i = 0, same = 0; i < text.size(); ++i) {
    while (same > 0 && text[i] != piece[same]) same = again[same - 1];
    if (text[i] == piece[same]) ++same;
    if (same == piece.size()) return i + 1 - same;
  }
  return kNone;
}

}  // namespace

bool GlobMatch(std::string_view pattern, std::string_view text) {
  const std::size_t first = pattern.find('*');
  if (first == kNone) return pattern == text;
  if (pattern.size() > kGlobBytesMax) return false;
  const std::size_t last = pattern.rfind('*');
  const std::string_view head = pattern.substr(0, first);
  const std::string_view tail = pattern.substr(last + 1);
  if (text.size() < head.size() + tail.size()) return false;
  if (!text.starts_with(head) || !text.ends_with(tail)) return false;
  text = text.substr(head.size(), text.size() - head.size() - tail.size());
  // A piece between stars is matched where it first occurs, which leaves the most for the rest.
  for (std::size_t begin = first + 1; begin < last;) {
    const std::size_t end = pattern.find('*', begin);
    const std::string_view piece = pattern.substr(begin, end - begin);
    begin = end + 1;
    if (piece.empty()) continue;
    const std::size_t found = Find(piece, text);
    if (found == kNone) return false;
    text.remove_prefix(found + piece.size());
  }
  return true;
}

}  // namespace sluice
