// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rules/path_pattern.h"

namespace sluice::rules {

// All patterns of a rule set at once. Common prefixes of patterns are walked once, and a segment's
// text is looked up in a hash table, so that time depends on the path's length, not on the number
// of patterns. A path whose first segment starts no pattern is rejected after one look-up.
class PathTrie {
 public:
  // What a pattern leads to.
  struct Target {
    std::uint32_t rule;
    std::uint32_t pattern;  // Which of the rule's paths.
  };
  struct Source {
    const PathPattern* pattern;
    Target target;
  };

  // Reuse it: it allocates nothing then.
  struct Scratch {
    std::vector<std::uint32_t> current;
    std::vector<std::uint32_t> next;
    std::vector<std::uint32_t> deep;
  };

  explicit PathTrie(std::span<const Source> sources);

  bool empty() const { return nodes_.size() == 1 && nodes_.front().targets_count == 0; }

  // Appends the targets of all patterns that match, in any order. One that matches in several ways
  // may come more than once.
  void Match(std::span<const std::string_view> segments, Scratch& scratch,
             std::vector<Target>& targets) const;

 private:
  static constexpr std::uint32_t kNone = 0;  // The root is nobody's child.

  // The text of a literal segment. Short ones are stored inline, which saves a cache miss.
  struct Text {
    static constexpr std::size_t kShortMax = 14;

    std::uint16_t size = 0;
    std::array<char, kShortMax> head = {};
    std::uint32_t rest = 0;  // Where the rest of a long one is.
  };
  struct Node {
    Text literal;                         // The text that leads to literal_child.
    std::uint32_t literal_child = kNone;  // If there is only one literal child.
    std::uint32_t any = kNone;            // By any one segment.
    std::uint32_t any_depth = kNone;      // By any number of segments.
    std::uint32_t globs_begin = 0;
    std::uint32_t globs_count = 0;
    std::uint32_t targets_begin = 0;
    std::uint32_t targets_count = 0;
    bool in_table = false;         // There are several literal children.
    bool below_any_depth = false;  // May be reached after different numbers of segments.
  };
  struct Glob {
    std::string pattern;
    std::uint32_t child;
  };
  // A slot of the open-addressing table of the literal children of nodes that have several. A child
  // of kNone means empty.
  struct Edge {
    std::uint32_t tag;
    std::uint32_t parent;
    std::uint32_t child;
    Text text;
  };
  struct Draft;

  Text MakeText(std::string_view text);
  bool Equal(const Text& text, std::string_view segment) const;
  void InsertEdge(std::uint32_t parent, std::string_view text, std::uint32_t child);
  std::uint32_t FindEdge(std::uint32_t parent, std::string_view text) const;
  void Enter(std::uint32_t node, Scratch& scratch, std::vector<Target>& targets) const;
  void Step(std::uint32_t node, std::string_view segment, Scratch& scratch,
            std::vector<Target>& targets) const;
  void Emit(const Node& node, std::vector<Target>& targets) const;

  // Constant after construction.
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;  // A power of two, at most half full.
  std::string texts_;        // The remaining characters of long texts.
  std::vector<Glob> globs_;
  std::vector<Target> targets_;
};

}  // namespace sluice::rules
