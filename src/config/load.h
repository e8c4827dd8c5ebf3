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

inline constexpr std::size_t kFileBytesMax = 8 << 20;  // As much as a YAML document may have.

// The algorithms' limits behind /api/v1/rate-limit, by algorithm.
std::map<Algorithm, Limit> DefaultLimits();

// Where a setting was given: in a file, or by a variable or a flag, which have no line.
struct Origin {
  std::string file;
  int line = 0;
  int column = 0;
};

// What a configuration file says, but for its rule sets.
struct File {
  Settings settings;
  std::map<std::string, Origin, std::less<>> origins;     // By path, of settings that were given.
  std::map<std::string, Limit, std::less<>> limits;       // "limits:", by name.
  std::map<Algorithm, Limit> defaults = DefaultLimits();  // "defaults:", by algorithm.
  bool has_rule_sets = false;                             // It has a "ruleSets:" as well.
};

// Reads a configuration file. All that is wrong is reported, each with its place. `ruleSets` is
// left to the rules layer.
std::expected<File, Problems> Parse(std::string_view yaml, std::string_view file);

// The same, with what is right in a file that is not all right; what is wrong is appended.
File Parse(std::string_view yaml, std::string_view file, Problems& problems);

// Values that win over the file's: first the environment, then flags. `environment` is asked for
// each variable; `flags` are pairs of a setting's path and its text.
Problems Override(File& file,
                  const std::function<std::optional<std::string>(const std::string&)>& environment,
                  const std::vector<std::pair<std::string, std::string>>& flags);

// What no single setting can say: a key without its certificate, an address that is none, ...
// Each is reported where the setting was given.
Problems Validate(const File& file);

// Something wrong with a setting, in the place where it was given.
Problem ProblemWith(const File& file, std::string_view path, std::string_view message);

enum class FileKind : std::uint8_t {
  kRegular,  // Anything else is an error: a pipe that nobody writes would be waited for without
             // end.
  kAny,      // For what somebody names by hand, such as /dev/stdin; may wait.
};

// Reads at most `max` bytes of a file. Errors: kNotFound, kIo, kInvalidInput if it is longer, or of
// another kind.
Expected<std::string> ReadFile(const std::string& path, FileKind kind = FileKind::kRegular,
                               std::size_t max = kFileBytesMax);

// The tokens in a file. Errors: those of ReadFile, and of net::Tokens::Parse.
Expected<net::Tokens> ReadTokens(const std::string& path);

}  // namespace sluice::config
