// SPDX-License-Identifier: Apache-2.0
#include "rules/schema.h"

#include <algorithm>
#include <array>
#include <span>
#include <tuple>

#include "base/suggestion.h"
#include "base/text.h"
#include "core/algorithms.h"
#include "rules/rule.h"

namespace sluice::rules {
namespace {

std::string_view NameOf(YamlKind kind) {
  switch (kind) {
    case YamlKind::kNull:
      return "nothing";
    case YamlKind::kScalar:
      return "a value";
    case YamlKind::kSequence:
      return "a list";
    case YamlKind::kMapping:
      return "a mapping";
  }
  std::unreachable();
}

// What is there, for a message.
std::string Found(const YamlNode& node) {
  return node.kind == YamlKind::kScalar ? text::Quote(node.text) : std::string(NameOf(node.kind));
}

}  // namespace

std::string JoinNames(std::span<const std::string_view> names) {
  std::string joined;
  for (const std::string_view name : names) {
    if (!joined.empty()) joined += ", ";
    joined += name;
  }
  return joined;
}

std::span<const std::string_view> LimitFields() {
  static const auto fields = [] {
    std::vector<std::string_view> all = {"algorithm"};
    for (const core::AlgorithmRow& row : core::kAlgorithms) {
      for (const std::string_view field : row.fields()) {
        if (std::ranges::find(all, field) == all.end()) all.push_back(field);
      }
    }
    return all;
  }();
  return fields;
}

void Reporter::Add(const YamlNode& where, std::string message) {
  if (problems_.size() == kProblemsMax) {
    ++left_out_;
    return;
  }
  problems_.push_back(
      {.file = file_, .line = where.line, .column = where.column, .message = std::move(message)});
}

void Reporter::Warn(const YamlNode& where, std::string message) {
  if (warnings_.size() == kProblemsMax) return;
  warnings_.push_back(
      {.file = file_, .line = where.line, .column = where.column, .message = std::move(message)});
}

Problems Reporter::Take() {
  std::ranges::sort(problems_, {}, [](const Problem& problem) {
    return std::tie(problem.line, problem.column, problem.message);
  });
  if (left_out_ > 0) {
    problems_.push_back({.file = file_, .message = text::Cat("and ", left_out_, " more problems")});
  }
  return std::move(problems_);
}

std::optional<std::string_view> ReadText(const YamlNode& node, std::string_view what,
                                         std::size_t bytes_max, Reporter& reporter) {
  if (node.kind != YamlKind::kScalar || node.text.empty() || node.text.size() > bytes_max) {
    const bool is_long = node.text.size() > bytes_max;
    reporter.Add(node, text::Cat(what, " is ", Found(node), "; expected a text of ",
                                 is_long ? "at most " : "1 to ", bytes_max, " bytes"));
    return std::nullopt;
  }
  return node.text;
}

std::optional<bool> ReadBool(const YamlNode& node, std::string_view what, Reporter& reporter) {
  // As in YAML 1.1, and in files of envoyproxy/ratelimit.
  static constexpr std::array<std::string_view, 4> kTrue = {"true", "yes", "on", "y"};
  static constexpr std::array<std::string_view, 4> kFalse = {"false", "no", "off", "n"};
  const auto is_one_of = [&](std::span<const std::string_view> words) {
    return std::ranges::any_of(
        words, [&](std::string_view word) { return text::EqualsIgnoreCase(node.text, word); });
  };
  if (node.kind == YamlKind::kScalar) {
    if (is_one_of(kTrue)) return true;
    if (is_one_of(kFalse)) return false;
  }
  reporter.Add(node, text::Cat(what, " is ", Found(node), "; expected true or false"));
  return std::nullopt;
}

std::optional<std::int64_t> ReadInteger(const YamlNode& node, std::string_view what,
                                        std::int64_t min, std::int64_t max, Reporter& reporter) {
  if (node.kind == YamlKind::kScalar) {
    const auto value = text::ParseInteger(node.text);
    if (value && *value >= min && *value <= max) return value;
  }
  reporter.Add(node, text::Cat(what, " is ", Found(node), "; expected a whole number from ", min,
                               " to ", max));
  return std::nullopt;
}

std::optional<std::string_view> ReadId(const YamlNode& node, std::string_view what,
                                       Reporter& reporter) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (node.kind == YamlKind::kScalar && !node.text.empty() && node.text.size() <= kIdBytesMax &&
      node.text.find_first_not_of(kLetters) == std::string::npos) {
    return node.text;
  }
  reporter.Add(node, text::Cat(what, " is ", Found(node), "; expected 1 to ", kIdBytesMax,
                               " letters, digits, dots, underscores or hyphens"));
  return std::nullopt;
}

std::optional<std::size_t> ReadName(const YamlNode& node, std::string_view what,
                                    std::span<const std::string_view> names, Reporter& reporter) {
  if (node.kind == YamlKind::kScalar) {
    const auto found = std::ranges::find_if(
        names, [&](std::string_view name) { return text::EqualsIgnoreCase(name, node.text); });
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  }
  reporter.Add(node, text::Cat(what, " is ", Found(node), "; expected one of ", JoinNames(names)));
  return std::nullopt;
}

std::span<const YamlNode* const> ReadList(const YamlNode& node, std::string_view what,
                                          std::size_t max, Reporter& reporter) {
  if (node.kind != YamlKind::kSequence) {
    reporter.Add(node, text::Cat(what, " is ", Found(node), "; expected a list"));
    return {};
  }
  if (node.items.size() > max) {
    reporter.Add(node,
                 text::Cat(what, " has ", node.items.size(), " entries; expected at most ", max));
    return {};
  }
  return node.items;
}

std::vector<const YamlNode*> ReadOneOrMore(const YamlNode& node, std::string_view what,
                                           std::size_t max, Reporter& reporter) {
  if (node.kind == YamlKind::kScalar) return {&node};
  const auto items = ReadList(node, what, max, reporter);
  if (node.kind == YamlKind::kSequence && node.items.empty()) {
    reporter.Add(node, text::Cat(what, " is an empty list; expected at least one value"));
  }
  return {items.begin(), items.end()};
}

Mapping::Mapping(const YamlNode& node, std::string_view what,
                 std::span<const std::string_view> known, Reporter& reporter)
    : node_(node), what_(what) {
  if (node.kind != YamlKind::kMapping) {
    reporter.Add(node, known.empty() ? text::Cat(what, " is ", Found(node), "; expected a mapping")
                                     : text::Cat(what, " is ", Found(node),
                                                 "; expected a mapping with ", JoinNames(known)));
    return;
  }
  for (std::size_t i = 0; i + 1 < node.items.size(); i += 2) {
    const YamlNode& key = *node.items[i];
    if (key.kind != YamlKind::kScalar) {
      reporter.Add(key, text::Cat("a key is ", Found(key), "; expected a text"));
    } else if (!known.empty() && std::ranges::find(known, key.text) == known.end()) {
      reporter.Add(key,
                   text::Cat(what, " has no key ", text::Quote(key.text), "; ",
                             text::Suggestion(key.text, known), "expected ", JoinNames(known)));
    } else {
      entries_.push_back({.key = key.text, .key_node = &key, .value = node.items[i + 1]});
    }
  }
  // Sorted instead of compared pair by pair: a mapping may have as many keys as fit in a file.
  std::vector<const Entry*> sorted;
  sorted.reserve(entries_.size());
  for (const Entry& entry : entries_) sorted.push_back(&entry);
  std::ranges::sort(sorted, {}, [](const Entry* entry) { return std::tuple(entry->key, entry); });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i]->key != sorted[i - 1]->key) continue;
    reporter.Add(*sorted[i]->key_node, text::Cat("key ", text::Quote(sorted[i]->key),
                                                 " is given twice; expected it once"));
  }
}

const YamlNode* Mapping::Find(std::string_view key) const {
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found == entries_.end() || found->value->kind == YamlKind::kNull) return nullptr;
  return found->value;
}

const YamlNode* Mapping::Require(std::string_view key, Reporter& reporter) const {
  const YamlNode* const found = Find(key);
  if (found == nullptr && node_.kind == YamlKind::kMapping) {
    reporter.Add(node_, text::Cat(what_, " needs ", key));
  }
  return found;
}

std::optional<Limit> ReadLimit(const Mapping& mapping, std::span<const LimitDefault> defaults,
                               Reporter& reporter) {
  std::string form;
  bool valid = true;
  const auto add = [&](std::string_view field, std::string_view value) {
    form += text::Cat(form.empty() ? "" : ",", field, "=", value);
  };
  for (const std::string_view field : LimitFields()) {
    const YamlNode* const value = mapping.Find(field);
    if (value == nullptr) {
      const auto found = std::ranges::find(defaults, field, &LimitDefault::field);
      if (found != defaults.end()) add(field, found->value);
      continue;
    }
    // Commas and equals signs would be parsed as more fields.
    if (value->kind != YamlKind::kScalar || value->text.find_first_of(",=") != std::string::npos) {
      reporter.Add(*value, text::Cat(field, " is ", Found(*value), "; expected a single value"));
      valid = false;
      continue;
    }
    add(field, value->text);
  }
  if (!valid) return std::nullopt;
  const auto limit = Limit::Parse(form);
  if (limit) return *limit;

  // The message names the field that is wrong.
  const YamlNode* where = &mapping.node();
  const std::string& message = limit.error().message;
  for (const std::string_view field : LimitFields()) {
    const YamlNode* const value = mapping.Find(field);
    const bool named =
        message.find(text::Cat(field, "=")) != std::string::npos ||
        message.find(text::Cat("no field ", text::Quote(field))) != std::string::npos ||
        message.starts_with(text::Cat("unknown ", field));
    if (value != nullptr && named) {
      where = value;
      break;
    }
  }
  reporter.Add(*where, message);
  return std::nullopt;
}

}  // namespace sluice::rules
