// SPDX-License-Identifier: Apache-2.0
#include "rules/problem.h"

#include "core/text.h"

namespace sluice::rules {

std::string Problem::ToString() const {
  if (line == 0) return text::Cat(file, ": ", message);
  return text::Cat(file, ":", line, ":", column, ": ", message);
}

}  // namespace sluice::rules
