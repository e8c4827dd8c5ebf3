// SPDX-License-Identifier: Apache-2.0
// The path of a request, split into segments in every way that some server splits it. Whoever
// spells a path differently must not escape the rules for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"

namespace sluice::rules {

inline constexpr std::size_t kPathBytesMax = 16'384;  // Of a request, without its query.

// Of one path: how many texts there may be on the way to its readings, and how many bytes may be
// written to find them. So no path takes more work than a few of the greatest length.
inline constexpr std::size_t kPathVariantsMax = 64;
inline constexpr std::size_t kPathWorkMax = 4 * kPathBytesMax;

// Percent-decodes; a `%` that no two hexadecimal digits follow stays as it is.
void AppendDecoded(std::string& out, std::string_view text);

// All readings of a request target: lists of segments. Nearly every target has one.
//
// Servers, and chains of them, differ in what they do to a path and in which order: each of the
// steps of path_steps.h, such as decoding it, dropping parameters or resolving `..`, is taken or
// not, early or late, once or again. So the readings are by definition all that any number of these
// steps in any order leads to. Only percent-decoding is taken at least once, empty segments never
// count in the end, and the query never belongs to the path.
//
// Used again and again, it allocates nothing.
class PathReadings {
 public:
  // Replaces what was read. The views point into the target and into this object. Error:
  // kInvalidRequest if the path is longer than kPathBytesMax, or has more to it than
  // kPathVariantsMax and kPathWorkMax have room for: nobody can say what it means.
  Expected<void> Read(std::string_view target);

  std::size_t size() const { return ends_.size(); }
  std::span<const std::string_view> operator[](std::size_t reading) const;

 private:
  // A text found on the way. Its units are bytes, and kInnerSlash.
  struct Variant {
    std::size_t begin;
    std::size_t size;
    std::size_t hash;
    std::uint32_t features;
    bool decoded;
  };

  bool ReadPlain(std::string_view path);
  void DecodeSegments(std::size_t bytes);

  void AddForms(std::string_view target);
  void AddForm(std::string_view path);
  void AddAfterAuthority(std::string_view text);
  void Keep(std::u16string_view text, bool decoded);
  Expected<void> FindVariants();
  void Split(std::u16string_view text);
  std::u16string_view TextOf(const Variant& variant) const;

  std::vector<std::string_view> segments_;  // Of all readings, one after another.
  std::vector<std::size_t> ends_;           // Of each reading, in segments_.
  std::string bytes_;                       // Those of segments that are not in the target.
  std::vector<Variant> variants_;
  std::u16string units_;  // Of all variants.
  std::u16string made_;   // What a step makes of one.
  std::size_t work_ = 0;  // Units that were written.
};

}  // namespace sluice::rules
