// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace sluice::cli {

// Overwrites secrets among the arguments of the program, which everyone on the machine can see in
// `ps`: the values of secret flags, and what stands in a URI before '@' or after "password=".
void HideSecrets(std::span<char*> arguments);

// What an error may show of an argument, or of a message that quotes one: a URI that was put in the
// wrong place without what HideSecrets covers.
std::string WithoutSecrets(std::string text);

}  // namespace sluice::cli
