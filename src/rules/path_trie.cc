// SPDX-License-Identifier: Apache-2.0
#include "rules/path_trie.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <map>

#include "base/glob.h"

namespace sluice::rules {
namespace {

// The slot in the table, and a tag that distinguishes most entries that share a slot.
struct Place {
  std::size_t slot;
  std::uint32_t tag;
};

Place PlaceOf(std::uint32_t parent, std::uint64_t hash) {
  // Finalizer of SplitMix64: every input bit reaches every output bit.
  std::uint64_t x = hash + parent * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  x ^= x >> 31;
  return {static_cast<std::size_t>(x), static_cast<std::uint32_t>(x >> 32)};
}

std::uint64_t HashOf(std::string_view text) { return std::hash<std::string_view>{}(text); }

}  // namespace

// A node while the trie is being built.
struct PathTrie::Draft {
  std::map<std::string, std::uint32_t, std::less<>> literals;
  std::vector<Glob> globs;
  std::uint32_t any = kNone;
  std::uint32_t any_depth = kNone;
  std::vector<Target> targets;
  bool below_any_depth = false;

  // The link to the child for a segment; kNone if there is none yet.
  std::uint32_t& ChildOf(const PatternSegment& segment) {
    switch (segment.kind) {
      case SegmentKind::kLiteral:
        return literals[segment.text];
      case SegmentKind::kAny:
        return any;
      case SegmentKind::kAnyDepth:
        return any_depth;
      case SegmentKind::kGlob:
        break;
    }
    const auto glob = std::ranges::find(globs, segment.text, &Glob::pattern);
    if (glob != globs.end()) return glob->child;
    return globs.emplace_back(segment.text, kNone).child;
  }
};

PathTrie::PathTrie(std::span<const Source> sources) {
  std::vector<Draft> drafts(1);
  for (const Source& source : sources) {
    std::uint32_t node = 0;
    for (const PatternSegment& segment : source.pattern->segments) {
      std::uint32_t& child = drafts[node].ChildOf(segment);
      if (child == kNone) {
        child = static_cast<std::uint32_t>(drafts.size());
        const bool below = drafts[node].below_any_depth || segment.kind == SegmentKind::kAnyDepth;
        node = child;
        drafts.emplace_back().below_any_depth = below;
      } else {
        node = child;
      }
    }
    drafts[node].targets.push_back(source.target);
  }

  std::size_t edges = 0;
  for (const Draft& draft : drafts) edges += draft.literals.size() > 1 ? draft.literals.size() : 0;
  edges_.resize(std::bit_ceil(2 * edges + 1));
  nodes_.reserve(drafts.size());
  for (const Draft& draft : drafts) {
    const auto index = static_cast<std::uint32_t>(nodes_.size());
    Node& node = nodes_.emplace_back();
    node.any = draft.any;
    node.any_depth = draft.any_depth;
    node.globs_begin = static_cast<std::uint32_t>(globs_.size());
    node.globs_count = static_cast<std::uint32_t>(draft.globs.size());
    node.targets_begin = static_cast<std::uint32_t>(targets_.size());
    node.targets_count = static_cast<std::uint32_t>(draft.targets.size());
    node.below_any_depth = draft.below_any_depth;
    globs_.insert(globs_.end(), draft.globs.begin(), draft.globs.end());
    targets_.insert(targets_.end(), draft.targets.begin(), draft.targets.end());
    if (draft.literals.size() == 1) {
      const auto& [text, child] = *draft.literals.begin();
      node.literal = MakeText(text);
      node.literal_child = child;
    } else if (!draft.literals.empty()) {
      node.in_table = true;
      for (const auto& [text, child] : draft.literals) InsertEdge(index, text, child);
    }
  }
}

PathTrie::Text PathTrie::MakeText(std::string_view text) {
  Text made;
  made.size = static_cast<std::uint16_t>(text.size());
  text.copy(made.head.data(), made.head.size());
  if (text.size() > Text::kShortMax) {
    made.rest = static_cast<std::uint32_t>(texts_.size());
    texts_ += text.substr(Text::kShortMax);
  }
  return made;
}

bool PathTrie::Equal(const Text& text, std::string_view segment) const {
  if (text.size != segment.size()) return false;
  const std::size_t head = std::min(segment.size(), Text::kShortMax);
  if (std::memcmp(text.head.data(), segment.data(), head) != 0) return false;
  return segment.size() == head ||
         std::memcmp(texts_.data() + text.rest, segment.data() + head, segment.size() - head) == 0;
}

void PathTrie::InsertEdge(std::uint32_t parent, std::string_view text, std::uint32_t child) {
  const Place place = PlaceOf(parent, HashOf(text));
  std::size_t slot = place.slot & (edges_.size() - 1);
  while (edges_[slot].child != kNone) slot = (slot + 1) & (edges_.size() - 1);
  edges_[slot] = {.tag = place.tag, .parent = parent, .child = child, .text = MakeText(text)};
}

std::uint32_t PathTrie::FindEdge(std::uint32_t parent, std::string_view text) const {
  const Place place = PlaceOf(parent, HashOf(text));
  std::size_t slot = place.slot & (edges_.size() - 1);
  for (; edges_[slot].child != kNone; slot = (slot + 1) & (edges_.size() - 1)) {
    const Edge& edge = edges_[slot];
    if (edge.tag == place.tag && edge.parent == parent && Equal(edge.text, text)) {
      return edge.child;
    }
  }
  return kNone;
}

void PathTrie::Match(std::span<const std::string_view> segments, Scratch& scratch,
                     std::vector<Target>& targets) const {
  auto& [current, next, deep] = scratch;
  current.clear();
  next.clear();
  deep.clear();
  Enter(0, scratch, targets);
  std::swap(current, next);
  for (const std::string_view segment : segments) {
    if (current.empty() && deep.empty()) return;
    // Nodes that this segment leads into are for the segments after it.
    const std::size_t deep_count = deep.size();
    for (const std::uint32_t node : current) Step(node, segment, scratch, targets);
    for (std::size_t i = 0; i < deep_count; ++i) Step(deep[i], segment, scratch, targets);
    std::swap(current, next);
    next.clear();
  }
  for (const std::uint32_t node : current) Emit(nodes_[node], targets);
}

void PathTrie::Enter(std::uint32_t node, Scratch& scratch, std::vector<Target>& targets) const {
  scratch.next.push_back(node);
  const std::uint32_t any_depth = nodes_[node].any_depth;
  if (any_depth == kNone) return;
  // Once entered it stays, whatever follows. It can be entered again only below another `**`.
  if (nodes_[node].below_any_depth &&
      std::ranges::find(scratch.deep, any_depth) != scratch.deep.end()) {
    return;
  }
  scratch.deep.push_back(any_depth);
  Emit(nodes_[any_depth], targets);
}

void PathTrie::Step(std::uint32_t node, std::string_view segment, Scratch& scratch,
                    std::vector<Target>& targets) const {
  const Node& from = nodes_[node];
  if (from.in_table) {
    const std::uint32_t child = FindEdge(node, segment);
    if (child != kNone) Enter(child, scratch, targets);
  } else if (from.literal_child != kNone && Equal(from.literal, segment)) {
    Enter(from.literal_child, scratch, targets);
  }
  if (from.any != kNone) Enter(from.any, scratch, targets);
  for (std::uint32_t i = 0; i < from.globs_count; ++i) {
    const Glob& glob = globs_[from.globs_begin + i];
    if (GlobMatch(glob.pattern, segment)) Enter(glob.child, scratch, targets);
  }
}

void PathTrie::Emit(const Node& node, std::vector<Target>& targets) const {
  const auto begin = targets_.begin() + node.targets_begin;
  targets.insert(targets.end(), begin, begin + node.targets_count);
}

}  // namespace sluice::rules
