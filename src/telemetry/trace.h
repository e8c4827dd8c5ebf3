// SPDX-License-Identifier: Apache-2.0
// Identifiers that follow a request through several services: W3C Trace Context and X-Request-Id.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice::telemetry {

// Whether a traceparent field is valid (https://www.w3.org/TR/trace-context/); an invalid one must
// be ignored. A version after 00 is read as far as 00 goes.
bool IsTraceparent(std::string_view field);

// A request's name in answers and logs; owns its text.
class RequestId {
 public:
  static constexpr std::size_t kBytesMax = 128;

  // Nothing unless it is 1 to kBytesMax letters, digits and - _ . : / + = @ ~
  static std::optional<RequestId> Parse(std::string_view field);

  std::string_view text() const { return {bytes_.data(), size_}; }

 private:
  friend class IdSource;
  std::uint8_t size_ = 0;
  std::array<char, kBytesMax> bytes_;
};

// Makes identifiers: random enough not to collide, but not secrets. For one thread.
class IdSource {
 public:
  IdSource();  // Seeded by the operating system.
  explicit IdSource(std::uint64_t seed);

  // The calling thread's own.
  static IdSource& OfThisThread();

  std::uint64_t Next();

  RequestId NewRequestId();  // 32 hexadecimal digits.

  // The client's id if it is valid, otherwise a new one.
  RequestId RequestIdFor(std::string_view field) {
    const auto given = RequestId::Parse(field);
    return given ? *given : NewRequestId();
  }

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace sluice::telemetry
