// SPDX-License-Identifier: Apache-2.0
#include "service/rate_limit_fields.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include "base/json_writer.h"
#include "base/text.h"
#include "base/utf8.h"

namespace sluice::service {
namespace {

constexpr std::int64_t kMicrosPerSecond = 1'000'000;
constexpr std::int64_t kFieldIntegerMax = 999'999'999'999'999;  // Of Structured Fields.

std::int64_t CeilDivide(std::int64_t a, std::int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

// A Structured Field String: printable ASCII, quoted.
void AppendFieldString(std::string& out, std::string_view text) {
  const auto is_printable = [](char c) { return c >= ' ' && c <= '~'; };
  const auto is_special = [](char c) { return c == '"' || c == '\\'; };
  text = text.substr(0, kPolicyNameBytesMax);
  out += '"';
  if (std::ranges::all_of(text, [&](char c) { return is_printable(c) && !is_special(c); })) {
    out += text;  // As most names are.
  } else {
    for (const char c : text) {
      if (is_special(c)) out += '\\';
      out += is_printable(c) ? c : '?';
    }
  }
  out += '"';
}

void AppendFieldInteger(std::string& out, std::int64_t number) {
  AppendNumber(out, std::clamp<std::int64_t>(number, 0, kFieldIntegerMax));
}

// Calls `append` for those that are shown: first those that deny, then the others.
template <typename AppendPolicy>
void AppendList(std::string& out, std::span<const Policy> policies, AppendPolicy append) {
  std::size_t shown = 0;
  for (const bool allowed : {false, true}) {
    for (const Policy& policy : policies) {
      if (policy.decision.allowed != allowed) continue;
      if (shown == kPoliciesShownMax) return;
      if (shown++ > 0) out += ',';
      AppendFieldString(out, policy.name);
      append(policy);
    }
  }
}

void AppendLine(std::string& out, std::string_view name, std::int64_t number) {
  out += name;
  AppendNumber(out, number);
  out += "\r\n";
}

// 120ms, 6m0s, 1h0m30s: rounded up to milliseconds, and from a second on to seconds.
std::string ShortDuration(Micros duration) {
  using namespace std::chrono;
  if (duration < seconds{1}) return text::Cat(ceil<milliseconds>(duration).count(), "ms");
  const hh_mm_ss clock(ceil<seconds>(duration));
  std::string out;
  if (clock.hours().count() > 0) out = text::Cat(clock.hours().count(), "h");
  if (!out.empty() || clock.minutes().count() > 0) out += text::Cat(clock.minutes().count(), "m");
  return text::Cat(out, clock.seconds().count(), "s");
}

}  // namespace

std::int64_t CeilSeconds(Micros duration) { return CeilDivide(duration.count(), kMicrosPerSecond); }

std::int64_t WindowSeconds(const Limit& limit) {
  if (limit.rate() == 0) return std::max<std::int64_t>(CeilSeconds(limit.span()), 1);
  // Not in microseconds, of which a slow and large bucket exceeds 64 bits.
  const std::int64_t ticks = CeilDivide(limit.whole(), limit.rate());
  const std::int64_t ticks_per_second = kMicrosPerSecond / limit.tick().count();
  return std::max<std::int64_t>(CeilDivide(ticks, ticks_per_second), 1);
}

std::int64_t RetryAfterSeconds(const Decision& overall) {
  return std::max<std::int64_t>(CeilSeconds(overall.retry_after), 1);
}

std::int64_t ResetSeconds(const Decision& decision, TimePoint now) {
  const Micros since_epoch = now.time_since_epoch();
  if (decision.reset_after > Micros::max() - since_epoch) return CeilSeconds(Micros::max());
  return CeilSeconds(since_epoch + decision.reset_after);
}

const Policy& Binding(std::span<const Policy> policies) {
  // Smaller ranks bind more.
  const auto rank = [](const Policy& policy) {
    const Decision& decision = policy.decision;
    return std::tuple(decision.allowed, -decision.retry_after, decision.remaining,
                      -decision.reset_after);
  };
  return *std::ranges::min_element(policies, {}, rank);
}

void AppendPolicyValue(std::string& out, std::span<const Policy> policies) {
  AppendList(out, policies, [&](const Policy& policy) {
    out += ";q=";
    AppendFieldInteger(out, policy.limit->amount());
    out += ";w=";
    AppendFieldInteger(out, WindowSeconds(*policy.limit));
  });
}

void AppendRateLimitValue(std::string& out, const Decision& overall,
                          std::span<const Policy> policies) {
  const bool has_retry_after = overall.retry_after > Micros{0};
  AppendList(out, policies, [&](const Policy& policy) {
    const Decision& decision = policy.decision;
    const bool has_wait = decision.retry_after > Micros{0};
    std::int64_t seconds = CeilSeconds(has_wait ? decision.retry_after : decision.reset_after);
    if (has_retry_after) seconds = std::min(seconds, RetryAfterSeconds(overall));
    out += ";r=";
    AppendFieldInteger(out, decision.remaining);
    out += ";t=";
    AppendFieldInteger(out, seconds);
  });
}

void AppendRateLimitFields(std::string& out, const Decision& overall,
                           std::span<const Policy> policies, TimePoint now) {
  if (policies.empty()) return;
  const Decision& binding = Binding(policies).decision;
  AppendLine(out, "X-RateLimit-Limit: ", binding.limit);
  AppendLine(out, "X-RateLimit-Remaining: ", binding.remaining);
  AppendLine(out, "X-RateLimit-Reset: ", ResetSeconds(binding, now));
  if (!overall.allowed) AppendLine(out, "Retry-After: ", RetryAfterSeconds(overall));
  out += "RateLimit-Policy: ";
  AppendPolicyValue(out, policies);
  out += "\r\nRateLimit: ";
  AppendRateLimitValue(out, overall, policies);
  out += "\r\n";
}

void AppendBandFields(std::string& out, std::span<const Policy> policies) {
  const auto label_of = [](const Policy& policy) {
    return policy.name.substr(policy.name.rfind('/') + 1);
  };
  std::map<std::string_view, const Policy*> by_label;
  for (const Policy& policy : policies) {
    const Policy*& least = by_label[label_of(policy)];
    if (!least || policy.decision.remaining < least->decision.remaining) least = &policy;
  }
  for (const auto& [label, policy] : by_label) {
    const Decision& decision = policy->decision;
    out +=
        text::Cat("X-RateLimit-Limit-", label, ": ", decision.limit, "\r\nX-RateLimit-Remaining-",
                  label, ": ", decision.remaining, "\r\nX-RateLimit-Reset-", label, ": ",
                  ShortDuration(decision.reset_after), "\r\n");
  }
}

void AppendProblem(std::string& out, const Problem& problem) {
  JsonWriter json(out);
  json.BeginObject().Field("type", problem.type).Field("title", problem.title);
  json.Field("status", problem.status);
  if (!problem.detail.empty()) json.Field("detail", problem.detail);
  if (!problem.code.empty()) json.Field("code", problem.code);
  if (!problem.violated_policies.empty()) {
    json.Key("violated-policies").BeginArray();
    std::size_t shown = 0;
    for (const Policy& policy : problem.violated_policies) {
      if (policy.decision.allowed || shown++ >= kPoliciesShownMax) continue;
      json.String(text::CutUtf8(policy.name, kPolicyNameBytesMax));
    }
    json.EndArray();
  }
  json.EndObject();
}

void AppendQuotaExceeded(std::string& out, std::span<const Policy> policies,
                         std::string_view detail) {
  AppendProblem(out, {.type = kQuotaExceededType,
                      .title = "Request cannot be satisfied as assigned quota has been exceeded",
                      .status = 429,
                      .detail = detail,
                      .violated_policies = policies});
}

}  // namespace sluice::service
