// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "base/text.h"
#include "sluice/error.h"

namespace sluice::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitDenied = 1;
inline constexpr int kExitError = 2;  // Bad input or an outage; nothing was half-written.

// Prints why a command failed to stderr. Returns its exit code.
inline int Fail(std::string_view command, const Error& error) {
  const std::string line =
      text::Cat("sluice ", command, ": ", ToString(error.code), ": ", error.message, "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
  return kExitError;
}

}  // namespace sluice::cli
