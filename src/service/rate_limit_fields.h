// SPDX-License-Identifier: Apache-2.0
// Writes decisions as HTTP fields: the X-RateLimit fields, Retry-After, RateLimit and
// RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-11, and problem details (RFC 9457). The
// draft may still change; everything that depends on it is here. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sluice/decision.h"
#include "sluice/limit.h"
#include "sluice/time.h"

namespace sluice::service {

inline constexpr std::size_t kPoliciesShownMax = 8;  // Those that deny come first.
inline constexpr std::size_t kPolicyNameBytesMax = 64;

// A limit by the name that clients see, and its decision on this request.
struct Policy {
  std::string_view name;  // Bytes that a Structured Field String cannot hold become '?'.
  const Limit* limit = nullptr;
  Decision decision;
};

// The seconds in which an untouched budget could be used up and be full again: the window, or the
// time that a bucket takes to fill. At least 1.
std::int64_t WindowSeconds(const Limit& limit);

// Rounded up: telling a client to retry early guarantees a second denial.
std::int64_t CeilSeconds(Micros duration);

// For a denial: the wait, rounded up, at least 1. No `t` of AppendRateLimitValue ends later.
std::int64_t RetryAfterSeconds(const Decision& overall);

// The Unix time in seconds, rounded up, at which the budget is full again. Capped at the last time
// that TimePoint can hold, some 292,000 years from 1970.
std::int64_t ResetSeconds(const Decision& decision, TimePoint now);

// The one limit that the X-RateLimit fields describe, because it decides what the client can do
// next: in a denial the one that denies for longest, otherwise the one with the least left. Among
// equals, the one that takes longest to be full again. There must be at least one policy.
const Policy& Binding(std::span<const Policy> policies);

// `"burst";q=100;w=60,"daily";q=1000;w=86400`
void AppendPolicyValue(std::string& out, std::span<const Policy> policies);

// `"burst";r=50;t=30`: for `t` seconds at most `r` units are available. That is until the budget is
// full again or, for a limit that denies, until it would admit the request. As the draft asks,
// nothing exceeds Retry-After, if `overall` has one.
void AppendRateLimitValue(std::string& out, const Decision& overall,
                          std::span<const Policy> policies);

// All of them as HTTP/1.1 field lines, each with its CRLF; Retry-After only for a denial. Nothing
// if there is no policy.
void AppendRateLimitFields(std::string& out, const Decision& overall,
                           std::span<const Policy> policies, TimePoint now);

// Whether answers also have fields for each band, by its label.
enum class BandFields : std::uint8_t { kNo, kYes };

// X-RateLimit-Limit-<label>, -Remaining-<label> and -Reset-<label>, as the APIs of language models
// have them: "requests" and "tokens". The label is what follows the last slash of a policy's name.
// Of several policies with one label, the one with the least left counts.
void AppendBandFields(std::string& out, std::span<const Policy> policies);

// application/problem+json
struct Problem {
  std::string_view type = "about:blank";
  std::string_view title;
  int status = 0;
  std::string_view detail = {};                    // Omitted if empty.
  std::string_view code = {};                      // One of our error codes; omitted if empty.
  std::span<const Policy> violated_policies = {};  // The names of those that deny.
};

inline constexpr std::string_view kProblemContentType = "application/problem+json";
inline constexpr std::string_view kQuotaExceededType =
    "https://iana.org/assignments/http-problem-types#quota-exceeded";

void AppendProblem(std::string& out, const Problem& problem);

// The answer to a request denied by `policies`.
void AppendQuotaExceeded(std::string& out, std::span<const Policy> policies,
                         std::string_view detail = {});

}  // namespace sluice::service
