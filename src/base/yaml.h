// SPDX-License-Identifier: Apache-2.0
// YAML as a tree that knows the position of everything. Hostile input is bounded: size, depth, and
// what aliases would expand to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/problem.h"

namespace sluice {

inline constexpr std::size_t kYamlBytesMax = std::size_t{8} << 20;
inline constexpr std::size_t kYamlDepthMax = 100;
inline constexpr std::size_t kYamlNodesMax = 2'000'000;   // After aliases are expanded.
inline constexpr std::size_t kYamlTextBytesPerNode = 64;  // A long text counts as several nodes.

struct YamlNode {
  enum class Kind : std::uint8_t { kNull, kScalar, kSequence, kMapping };

  Kind kind = Kind::kNull;
  bool is_merge = false;  // A plain `<<`.
  int line = 0;
  int column = 0;
  std::string text;                    // Of a scalar; the reader interprets types.
  std::vector<const YamlNode*> items;  // Of a sequence; of a mapping, key, value, key, value.
  std::size_t expanded = 1;            // Nodes in it and below, aliases expanded.
};
using YamlKind = YamlNode::Kind;

// How to treat a plain `<<` as a key.
enum class YamlMerges : std::uint8_t {
  kKeep,     // A key like any other.
  kResolve,  // Replaced by the entries of the mapping, or of the mappings in the list, after it.
};

class YamlDocument {
 public:
  // Nothing if the text is not one YAML document within bounds; the problem explains why.
  static std::optional<YamlDocument> Load(std::string_view text, std::string_view file,
                                          Problems& problems,
                                          YamlMerges merges = YamlMerges::kKeep);

  // kNull if the document is empty.
  const YamlNode& root() const { return *root_; }

 private:
  friend class YamlBuilder;

  std::deque<YamlNode> nodes_;
  const YamlNode* root_ = nullptr;
};

// A scalar that is read back as the same text, in double quotes if it needs them.
std::string YamlScalar(std::string_view value);

}  // namespace sluice
