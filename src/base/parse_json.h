// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/storage_ptr.hpp>
#include <boost/json/value.hpp>
#include <string_view>

#include "sluice/error.h"

namespace sluice {

// One JSON document, at most `depth_max` objects and lists deep. Members that are given twice are
// refused, at any depth: two readers could each take another one for what was meant. Costs n log n
// at most. Error: kInvalidInput.
Expected<boost::json::value> ParseJson(std::string_view text, std::size_t depth_max,
                                       boost::json::storage_ptr memory = {});

}  // namespace sluice
