// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/storage_ptr.hpp>
#include <boost/json/value.hpp>
#include <string_view>

#include "sluice/error.h"

namespace sluice {

// Parses one JSON document, at most `depth_max` objects and lists deep. Duplicate members are
// refused at any depth, because two readers could disagree on which one counts. Costs n log n at
// most. Error: kInvalidInput.
Expected<boost::json::value> ParseJson(std::string_view text, std::size_t depth_max,
                                       boost::json::storage_ptr memory = {});

}  // namespace sluice
