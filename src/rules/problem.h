// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/problem.h"

namespace sluice::rules {

using sluice::Problem;
using sluice::Problems;
// Something wrong in a file.
struct Problem {
  std::string file;
  int line = 0;    // From 1; 0 if it concerns the file as a whole.
  int column = 0;  // From 1, in bytes; 0 as above.
  std::string message;

  std::string ToString() const;  // file:line:column: message

  friend bool operator==(const Problem&, const Problem&) = default;
};

using Problems = std::vector<Problem>;

}  // namespace sluice::rules
