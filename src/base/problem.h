// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace sluice {

// Something wrong in a file that a person wrote. Lines and columns count from 1; 0 is unknown.
struct Problem {
  std::string file;
  int line = 0;
  int column = 0;
  std::string message;

  // file:line:column: message
  std::string ToString() const {
    std::string out = file;
    if (line > 0) out += ':' + std::to_string(line) + ':' + std::to_string(column);
    return out + ": " + message;
  }
  friend bool operator==(const Problem&, const Problem&) = default;
};

using Problems = std::vector<Problem>;

}  // namespace sluice
