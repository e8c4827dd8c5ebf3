// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "sluice/error.h"

namespace sluice::redis {

// What an error reply means, by its first word.
Error ErrorOf(std::string_view reply);

// The same reason, for a command that was not sent because of it: this one was not executed,
// whatever happened to the one that failed.
Error NotSentFor(Error reason);

}  // namespace sluice::redis
