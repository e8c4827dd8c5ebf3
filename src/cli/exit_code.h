// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sluice::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitDenied = 1;
inline constexpr int kExitError = 2;  // Bad input or an outage; nothing was half-written.

}  // namespace sluice::cli
