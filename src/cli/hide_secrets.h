// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace sluice::cli {

// Overwrites secrets in the program's arguments, which everyone on the machine can see in `ps`: the
// values of secret flags, and the parts of a URI before '@' or after "password=".
void HideSecrets(std::span<char*> arguments);

// What an error may show of an argument, or of a message that quotes one: removes what HideSecrets
// covers, in case a URI was put in the wrong place.
std::string WithoutSecrets(std::string text);

}  // namespace sluice::cli
