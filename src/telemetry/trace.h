// SPDX-License-Identifier: Apache-2.0
// Identifiers that follow a request through several services: W3C Trace Context and X-Request-Id.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::telemetry {

// What a traceparent field says (https://www.w3.org/TR/trace-context/).
struct TraceContext {
  static constexpr std::size_t kTextSize = 55;

  std::array<std::uint8_t, 16> trace_id = {};  // Not all zero.
  std::array<std::uint8_t, 8> parent_id = {};  // Not all zero.
  std::uint8_t flags = 0;

  bool sampled() const { return (flags & 1U) != 0; }

  // Nothing if the field is not valid; it is then to be ignored. A later version than 00 is read as
  // far as 00 goes.
  static std::optional<TraceContext> Parse(std::string_view field);

  // Version 00: 00-<trace id>-<parent id>-<flags>
  void AppendTo(std::string& out) const;
  void AppendTraceIdTo(std::string& out) const;

  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

// A request's name in answers and logs; holds its text itself.
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

// Makes identifiers: unpredictable enough not to collide, not secrets. For one thread.
class IdSource {
 public:
  IdSource();  // Seeded by the operating system.
  explicit IdSource(std::uint64_t seed);

  // The calling thread's own.
  static IdSource& OfThisThread();

  std::uint64_t Next();

  RequestId NewRequestId();  // 32 hexadecimal digits.
  TraceContext NewTrace();   // Not sampled: whether to record is up to those who do.

  // The same trace with a new parent id, ours, for what we call in turn.
  TraceContext Child(const TraceContext& parent);

  // The client's id if it is a valid one, otherwise a new one.
  RequestId RequestIdFor(std::string_view field) {
    const auto given = RequestId::Parse(field);
    return given ? *given : NewRequestId();
  }

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace sluice::telemetry
