// SPDX-License-Identifier: Apache-2.0
// The limits of a connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

namespace sluice::http {

struct Limits {
  // Per request. Larger ones are refused: 414, 431 or 413.
  std::size_t target_bytes_max = 8 * 1024;
  std::size_t head_bytes_max = 16 * 1024;  // Request line and headers; also trailers.
  std::size_t headers_max = 100;
  std::size_t body_bytes_max = 1024 * 1024;

  // The settings behind these, for clients that exceed them, such as "; see http.bodyBytesMax".
  std::string_view head_bytes_hint = {};
  std::string_view headers_hint = {};
  std::string_view body_bytes_hint = {};

  // Over all connections of a server.
  std::size_t connections_max = 10'000;

  // Per connection: beyond them, nothing is read until answers have been sent.
  std::size_t pending_max = 64;  // Requests without an answer.
  std::size_t unsent_bytes_max = 256 * 1024;

  // How long a client may take. A missed deadline may be noticed a quarter of a second late.
  std::chrono::milliseconds handshake_timeout{10'000};  // TLS.
  std::chrono::milliseconds idle_timeout{60'000};       // Between requests.
  std::chrono::milliseconds head_timeout{10'000};   // From the first byte to the end of the head.
  std::chrono::milliseconds body_timeout{30'000};   // From there to the end of the body.
  std::chrono::milliseconds write_timeout{30'000};  // To read any of what was sent.
};

}  // namespace sluice::http
