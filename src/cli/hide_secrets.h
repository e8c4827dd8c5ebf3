// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

namespace sluice::cli {

// Overwrites secrets among the arguments of the program, which everyone on the machine can see in
// `ps`: the values of secret flags, and what stands in a URI before '@' or after "password=".
void HideSecrets(std::span<char*> arguments);

}  // namespace sluice::cli
