// SPDX-License-Identifier: Apache-2.0
// Serializes responses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "http/message.h"
#include "sluice/time.h"

namespace sluice::http {

// What the connection knows about an answer.
struct Delivery {
  bool head_only = false;  // The answer to HEAD.
  enum class Persistence : std::uint8_t { kDefault, kKeepAlive, kClose } persistence{};
  std::string_view common_headers = {};  // Complete lines, the same in every answer.
};

void AppendResponse(std::string& out, const Response& response, const Delivery& delivery);

// {"error":{"code":"…","message":"…"}}; neither may need escaping.
std::string ErrorBody(std::string_view code, std::string_view message);

// "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, 5.6.7).
std::string HttpDate(TimePoint time);

}  // namespace sluice::http
