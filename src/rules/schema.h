// SPDX-License-Identifier: Apache-2.0
// Reads YAML trees into the types they should be, and reports every problem with its position.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/problem.h"
#include "base/yaml.h"
#include "sluice/limit.h"

namespace sluice::rules {

inline constexpr std::size_t kProblemsMax = 100;

// Collects the problems of one file.
class Reporter {
 public:
  explicit Reporter(std::string_view file) : file_(file) {}

  void Add(const YamlNode& where, std::string message);

  // Not a problem, but most likely not intended.
  void Warn(const YamlNode& where, std::string message);

  bool empty() const { return problems_.empty(); }
  const std::string& file() const { return file_; }
  Problems& problems() { return problems_; }

  // In the order of the file; if there are more than kProblemsMax, the first ones found.
  Problems Take();

  // Those since the last call; the first kProblemsMax of them.
  Problems TakeWarnings() { return std::exchange(warnings_, {}); }

 private:
  std::string file_;
  Problems problems_;
  Problems warnings_;
  std::size_t left_out_ = 0;
};

// Each reads a scalar. Returns nothing, and reports a problem, if it is something else. `what`
// names it.
std::optional<std::string_view> ReadText(const YamlNode& node, std::string_view what,
                                         std::size_t bytes_max, Reporter& reporter);
std::optional<bool> ReadBool(const YamlNode& node, std::string_view what, Reporter& reporter);
std::optional<std::int64_t> ReadInteger(const YamlNode& node, std::string_view what,
                                        std::int64_t min, std::int64_t max, Reporter& reporter);

// Letters, digits, and ". _ -"; 1 to 64 of them.
std::optional<std::string_view> ReadId(const YamlNode& node, std::string_view what,
                                       Reporter& reporter);

// One of these names, in either case.
std::optional<std::size_t> ReadName(const YamlNode& node, std::string_view what,
                                    std::span<const std::string_view> names, Reporter& reporter);

// A sequence's items. Empty, with a problem, if it is something else or has more than `max`.
std::span<const YamlNode* const> ReadList(const YamlNode& node, std::string_view what,
                                          std::size_t max, Reporter& reporter);

// Like ReadList, but a scalar is a list of one.
std::vector<const YamlNode*> ReadOneOrMore(const YamlNode& node, std::string_view what,
                                           std::size_t max, Reporter& reporter);

// A mapping with keys from a fixed list.
class Mapping {
 public:
  struct Entry {
    std::string_view key;
    const YamlNode* key_node;
    const YamlNode* value;
  };

  // Reports keys that are unknown, with the nearest known one, or given twice. `what` names the
  // mapping, such as "a rule". If `known` is empty, any key is accepted.
  Mapping(const YamlNode& node, std::string_view what, std::span<const std::string_view> known,
          Reporter& reporter);

  const YamlNode& node() const { return node_; }

  // Null if it is missing or has no value.
  const YamlNode* Find(std::string_view key) const;

  // Like Find, but reports a problem if it is null.
  const YamlNode* Require(std::string_view key, Reporter& reporter) const;

  std::span<const Entry> entries() const { return entries_; }

 private:
  const YamlNode& node_;
  std::string_view what_;
  std::vector<Entry> entries_;
};

// A field of a limit that may be left out.
struct LimitDefault {
  std::string_view field;
  std::string value;
};

// Reads the keys of `mapping` that are fields of a limit. Problems are reported at the field that
// they name.
std::optional<Limit> ReadLimit(const Mapping& mapping, std::span<const LimitDefault> defaults,
                               Reporter& reporter);

// "a, b, c"
std::string JoinNames(std::span<const std::string_view> names);

// All fields that any algorithm has, and "algorithm".
std::span<const std::string_view> LimitFields();

}  // namespace sluice::rules
