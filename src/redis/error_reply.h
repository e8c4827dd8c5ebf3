// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "sluice/error.h"

namespace sluice::redis {

// What an error reply means to us, by its first word.
Error ErrorOf(std::string_view reply);

// The same reason for a command that was not sent because of it: it was not executed, whatever
// became of the one that failed.
Error NotSentFor(Error reason);

}  // namespace sluice::redis
