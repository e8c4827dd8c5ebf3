// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sluice::api {

// Who sends a request to the HTTP door, as far as it matters there.
enum class Caller : std::uint8_t {
  kTrusted,    // Has shown a token or a certificate, or the door asks for neither.
  kAnonymous,  // Anyone, at a public door: asks only about itself, and changes nothing.
};

}  // namespace sluice::api
