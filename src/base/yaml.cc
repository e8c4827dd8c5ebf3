// SPDX-License-Identifier: Apache-2.0
#include "base/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <spanstream>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "base/utf8.h"

namespace sluice {

// Builds the tree from the parser's events. Throws the parser's own exception, which is the way to
// stop it; Load catches it.
class YamlBuilder final : public YAML::EventHandler {
 public:
  YamlBuilder(YamlDocument& document, YamlMerges merges) : document_(document), merges_(merges) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (document_.root_ != nullptr) {
      throw YAML::ParserException(mark, "a second document starts here; expected one");
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Close(Open(mark, YamlKind::kNull, anchor));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    // A plain scalar has the tag "?", a quoted one "!".
    const bool is_null = tag == "?" && (value.empty() || value == "~" || value == "null" ||
                                        value == "Null" || value == "NULL");
    YamlNode& node = Open(mark, is_null ? YamlKind::kNull : YamlKind::kScalar, anchor);
    if (!is_null) node.text = value;
    node.is_merge = tag == "?" && value == "<<";
    node.expanded += value.size() / kYamlTextBytesPerNode;
    Close(node);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Push(Open(mark, YamlKind::kSequence, anchor), mark);
  }
  void OnSequenceEnd() override { Pop(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Push(Open(mark, YamlKind::kMapping, anchor), mark);
  }
  void OnMapEnd() override {
    if (merges_ == YamlMerges::kResolve) ResolveMerges(*open_.back());
    Pop();
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    // Only complete nodes can be repeated, so that nothing contains itself.
    if (found == anchors_.end() || !found->second.complete) {
      throw YAML::ParserException(mark, "an alias is inside what it repeats");
    }
    Attach(*found->second.node, mark);
  }

 private:
  struct Anchor {
    const YamlNode* node = nullptr;
    bool complete = false;
  };

  YamlNode& Open(const YAML::Mark& mark, YamlKind kind, YAML::anchor_t anchor) {
    YamlNode& node = document_.nodes_.emplace_back();
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    if (anchor != 0) {
      anchors_[anchor] = {.node = &node, .complete = false};
      anchor_of_[&node] = anchor;
    }
    return node;
  }

  void Close(YamlNode& node) {
    if (const auto anchor = anchor_of_.find(&node); anchor != anchor_of_.end()) {
      anchors_[anchor->second].complete = true;
    }
    Attach(node, MarkOf(node));
  }

  static YAML::Mark MarkOf(const YamlNode& node) {
    YAML::Mark mark;
    mark.line = node.line - 1;
    mark.column = node.column - 1;
    return mark;
  }

  void Push(YamlNode& node, const YAML::Mark& mark) {
    if (open_.size() == kYamlDepthMax) {
      throw YAML::ParserException(mark,
                                  text::Cat("nested more than ", kYamlDepthMax, " levels deep"));
    }
    open_.push_back(&node);
  }

  void Pop() {
    YamlNode& node = *open_.back();
    open_.pop_back();
    Close(node);
  }

  void Attach(const YamlNode& node, const YAML::Mark& mark) {
    if (open_.empty()) {
      document_.root_ = &node;
      return;
    }
    YamlNode& parent = *open_.back();
    parent.items.push_back(&node);
    parent.expanded += node.expanded;
    CheckCount(std::max(parent.expanded, document_.nodes_.size()), mark);
  }

  static void CheckCount(std::size_t count, const YAML::Mark& mark) {
    if (count <= kYamlNodesMax) return;
    throw YAML::ParserException(
        mark, text::Cat("more than ", kYamlNodesMax, " values, counting what aliases repeat"));
  }

  // A mapping's own entries win over merged ones, and among those the first wins. Merged mappings
  // are complete: their own merges are already resolved.
  void ResolveMerges(YamlNode& node) {
    std::vector<const YamlNode*> items;
    std::vector<const YamlNode*> merged;
    for (std::size_t i = 0; i + 1 < node.items.size(); i += 2) {
      const YamlNode* const value = node.items[i + 1];
      if (!node.items[i]->is_merge) {
        items.insert(items.end(), {node.items[i], value});
      } else if (value->kind == YamlKind::kSequence) {
        merged.insert(merged.end(), value->items.begin(), value->items.end());
      } else {
        merged.push_back(value);
      }
    }
    if (items.size() == node.items.size()) return;

    std::unordered_set<std::string_view> keys;
    for (std::size_t i = 0; i < items.size(); i += 2) {
      CountMerged(*items[i]);
      keys.insert(items[i]->text);
    }
    for (const YamlNode* const mapping : merged) {
      if (mapping->kind != YamlKind::kMapping) {
        throw YAML::ParserException(MarkOf(*mapping),
                                    "<< merges this; expected a mapping, or a list of mappings");
      }
      CountMerged(*mapping);
      for (std::size_t i = 0; i + 1 < mapping->items.size(); i += 2) {
        if (!keys.insert(mapping->items[i]->text).second) continue;
        items.insert(items.end(), {mapping->items[i], mapping->items[i + 1]});
      }
    }
    node.items = std::move(items);
  }

  // Bounds the work over the whole document: what is inside mappings that are still open is not yet
  // added up.
  void CountMerged(const YamlNode& node) {
    merged_ += node.expanded;
    CheckCount(merged_, MarkOf(node));
  }

  YamlDocument& document_;
  YamlMerges merges_;
  std::size_t merged_ = 0;
  std::vector<YamlNode*> open_;
  std::map<YAML::anchor_t, Anchor> anchors_;
  std::map<const YamlNode*, YAML::anchor_t> anchor_of_;
};

namespace {

// The position of the first NUL or byte that is not UTF-8. The parser would guess other encodings,
// and ignore everything after a NUL.
std::size_t TextEnd(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && text[at] != '\0') {
    const std::size_t length = text::Utf8Length(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

}  // namespace

std::optional<YamlDocument> YamlDocument::Load(std::string_view text, std::string_view file,
                                               Problems& problems, YamlMerges merges) {
  if (text.size() > kYamlBytesMax) {
    problems.push_back(
        {.file = std::string(file),
         .message = text::Cat(text.size(), " bytes; expected at most ", kYamlBytesMax)});
    return std::nullopt;
  }
  if (const std::size_t at = TextEnd(text); at < text.size()) {
    const std::string_view before = text.substr(0, at);
    problems.push_back({.file = std::string(file),
                        .line = 1 + static_cast<int>(std::ranges::count(before, '\n')),
                        .column = static_cast<int>(at - (before.rfind('\n') + 1)) + 1,
                        .message = "not a text: expected UTF-8 without NUL bytes"});
    return std::nullopt;
  }
  YamlDocument document;
  YamlBuilder builder(document, merges);
  try {
    std::ispanstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    problems.push_back({.file = std::string(file),
                        .line = error.mark.line + 1,
                        .column = error.mark.column + 1,
                        .message = text::Cat("not valid YAML: ", text::Escape(error.msg))});
    return std::nullopt;
  }
  if (document.root_ == nullptr) {
    YamlNode& nothing = document.nodes_.emplace_back();
    nothing.line = 1;
    nothing.column = 1;
    document.root_ = &nothing;
  }
  return document;
}

std::string YamlScalar(std::string_view value) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";
  const bool plain = !value.empty() && value.find_first_not_of(kPlain) == std::string_view::npos &&
                     value.front() != '-' && !text::EqualsIgnoreCase(value, "null");
  if (plain) return std::string(value);
  std::string quoted = "\"";
  for (const char c : value) {
    // In YAML, \xc3 is a character, not a byte, so bytes of UTF-8 are written as they are.
    const bool as_is = static_cast<unsigned char>(c) >= 0x80;
    quoted += as_is ? std::string(1, c) : text::Escape({&c, 1});
  }
  return quoted += '"';
}

}  // namespace sluice
