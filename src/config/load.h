// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/problem.h"
#include "config/settings.h"
#include "net/access.h"
#include "sluice/limit.h"

namespace sluice::config {

inline constexpr std::size_t kFileBytesMax = 8 << 20;  // The maximum of a YAML document.

// The limits behind /api/v1/rate-limit, by algorithm.
std::map<Algorithm, Limit> DefaultLimits();

// Where a setting was given: in a file, or by a variable or a flag, which have no line.
struct Origin {
  std::string file;
  int line = 0;
  int column = 0;
};

// A configuration file, except for its rule sets.
struct File {
  Settings settings;
  std::map<std::string, Origin, std::less<>> origins;     // By path, of settings that were given.
  std::map<std::string, Limit, std::less<>> limits;       // "limits:", by name.
  std::map<Algorithm, Limit> defaults = DefaultLimits();  // "defaults:", by algorithm.
  bool has_rule_sets = false;                             // Whether it has "ruleSets:", too.
};

// Reads a configuration file. Reports every problem with its position. `ruleSets` is left to the
// rules layer.
std::expected<File, Problems> Parse(std::string_view yaml, std::string_view file);

// The same, but returns what is valid even if the file has problems, which are appended.
File Parse(std::string_view yaml, std::string_view file, Problems& problems);

// Applies values that override the file's: first the environment, then flags. `environment` is
// called for each variable; `flags` are pairs of a setting's path and its text.
Problems Override(File& file,
                  const std::function<std::optional<std::string>(const std::string&)>& environment,
                  const std::vector<std::pair<std::string, std::string>>& flags);

// Problems that no single setting shows: a key without its certificate, an invalid address, ...
// Each is reported where the setting was given.
Problems Validate(const File& file);

// A problem with a setting, at the position where it was given.
Problem ProblemWith(const File& file, std::string_view path, std::string_view message);

enum class FileKind : std::uint8_t {
  kRegular,  // Anything else is an error: reading a pipe without a writer never ends.
  kAny,      // For files that a person names, such as /dev/stdin; may block.
};

// Reads at most `max` bytes of a file. Errors: kNotFound, kIo, kInvalidInput if it is longer, or of
// another kind.
Expected<std::string> ReadFile(const std::string& path, FileKind kind = FileKind::kRegular,
                               std::size_t max = kFileBytesMax);

// The tokens in a file. Errors: those of ReadFile, and of net::Tokens::Parse.
Expected<net::Tokens> ReadTokens(const std::string& path);

}  // namespace sluice::config
