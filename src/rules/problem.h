// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/problem.h"

namespace sluice::rules {

using sluice::Problem;
using sluice::Problems;

}  // namespace sluice::rules
