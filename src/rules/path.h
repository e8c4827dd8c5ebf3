// SPDX-License-Identifier: Apache-2.0
// The path of a request, split into segments in every way that some server splits it. No spelling
// of a path may escape its rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"

namespace sluice::rules {

inline constexpr std::size_t kPathBytesMax = 16'384;  // In a request, without its query.

// For one path: the maximum number of variants on the way to its readings, and of bytes written to
// find them. So no path takes more work than a few of the maximum length.
inline constexpr std::size_t kPathVariantsMax = 64;
inline constexpr std::size_t kPathWorkMax = 4 * kPathBytesMax;

// Percent-decodes. A `%` without two hexadecimal digits after it stays as it is.
void AppendDecoded(std::string& out, std::string_view text);

// All readings of a request target, as lists of segments. Nearly every target has only one.
//
// Servers, and chains of them, differ in what they do to a path and in which order: each of the
// steps of path_steps.h, such as decoding it, dropping parameters or resolving `..`, may be taken
// or not, early or late, once or again. So the readings are, by definition, everything that any
// number of these steps in any order leads to. Only percent-decoding is taken at least once, empty
// segments never count in the end, and the query is never part of the path.
//
// Reuse it: it allocates nothing then.
class PathReadings {
 public:
  // Replaces the previous result. The views point into the target and into this object. Error:
  // kInvalidRequest if the path is longer than kPathBytesMax, or would exceed kPathVariantsMax or
  // kPathWorkMax: nobody can tell what it means.
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
  std::string bytes_;                       // Of segments that are not in the target.
  std::vector<Variant> variants_;
  std::u16string units_;  // Of all variants.
  std::u16string made_;   // The result of a step.
  std::size_t work_ = 0;  // Units written.
};

}  // namespace sluice::rules
