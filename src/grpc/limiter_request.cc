// SPDX-License-Identifier: Apache-2.0
#include "grpc/limiter_request.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "base/duration.h"
#include "base/text.h"
#include "base/utf8.h"
#include "grpc/fields.h"
#include "service/rule_check.h"

namespace sluice::grpc {
namespace {

// google.protobuf.Duration
struct Duration {
  std::int64_t seconds = 0;
  std::int32_t nanos = 0;
};

Status Malformed(std::string_view type) {
  return {StatusCode::kInternal, text::Cat("the message is not ", type)};
}

Status Invalid(std::string message) {
  return StatusOf({ErrorCode::kInvalidInput, std::move(message)});
}

std::int64_t Signed(std::uint64_t number) { return static_cast<std::int64_t>(number); }

// A string, which is UTF-8 in protobuf.
bool ReadText(const Fields& field, std::string_view& out) {
  out = field.text();
  for (std::string_view rest = out; !rest.empty();) {
    const std::size_t length = text::Utf8Length(rest);
    if (length == 0) return false;
    rest.remove_prefix(length);
  }
  return true;
}

// An entry of a map replaces an earlier one of the same key.
template <typename Entry, typename Key>
bool PutEntry(std::vector<Entry>& entries, const Entry& entry, Key key, std::size_t most) {
  const auto same = std::ranges::find(entries, std::invoke(key, entry), key);
  if (same != entries.end()) {
    *same = entry;
  } else if (entries.size() == most) {
    return false;
  } else {
    entries.push_back(entry);
  }
  return true;
}

bool ReadDuration(std::string_view bytes, Duration& duration) {
  Fields fields(bytes);
  while (fields.Next()) {
    if (fields.IsNumber(1)) duration.seconds = Signed(fields.number());
    if (fields.IsNumber(2)) duration.nanos = static_cast<std::int32_t>(fields.number());
  }
  return fields.ok();
}

Status ReadTtl(const Duration& duration, std::optional<Micros>& ttl) {
  constexpr std::int32_t kNanosMax = 999'999'999;
  constexpr std::int64_t kSecondsMax = std::chrono::seconds(std::chrono::hours(24)).count();
  if (duration.seconds >= 0 && duration.seconds <= kSecondsMax && duration.nanos >= 0 &&
      duration.nanos <= kNanosMax) {
    ttl = std::chrono::seconds(duration.seconds) +
          std::chrono::floor<Micros>(std::chrono::nanoseconds(duration.nanos));
    if (*ttl >= kHoldTtlMin && *ttl <= kHoldTtlMax) return {};
  }
  return Invalid(text::Cat("ttl: expected a duration from ", text::FormatDuration(kHoldTtlMin),
                           " to ", text::FormatDuration(kHoldTtlMax)));
}

// Returns kOk, kInternal or kInvalidArgument.
StatusCode ReadContext(std::string_view bytes, CheckMessage& check) {
  rules::Context& context = check.context;
  Fields fields(bytes);
  bool ok = true;
  while (ok && fields.Next()) {
    if (fields.IsText(1)) ok = ReadText(fields, context.ip);
    if (fields.IsText(2)) ok = ReadText(fields, context.user_id);
    if (fields.IsText(3)) ok = ReadText(fields, context.api_key);
    if (fields.IsText(4)) ok = ReadText(fields, context.method);
    if (fields.IsText(5)) ok = ReadText(fields, context.path.emplace());
    if (!fields.IsText(6)) continue;
    rules::Attribute attribute;
    Fields parts(fields.text());
    while (ok && parts.Next()) {
      if (parts.IsText(1)) ok = ReadText(parts, attribute.name);
      if (parts.IsText(2)) ok = ReadText(parts, attribute.value);
    }
    ok = ok && parts.ok();
    if (ok &&
        !PutEntry(check.attributes, attribute, &rules::Attribute::name, rules::kAttributesMax)) {
      return StatusCode::kInvalidArgument;
    }
  }
  return ok && fields.ok() ? StatusCode::kOk : StatusCode::kInternal;
}

std::string_view NameOf(CheckMessage::Type type) {
  switch (type) {
    case CheckMessage::Type::kCheck:
      return "a CheckRequest";
    case CheckMessage::Type::kHold:
      return "a HoldRequest";
    case CheckMessage::Type::kGive:
      return "a GiveRequest";
  }
  std::unreachable();
}

}  // namespace

Status CheckMessage::Parse(std::string_view message, Type type) {
  const bool holds = type == Type::kHold;
  bool has_context = false;
  std::optional<Duration> duration;
  std::int32_t on_expiry = 0;
  Fields fields(message);
  bool ok = true;
  while (ok && fields.Next()) {
    if (fields.IsText(1)) ok = ReadText(fields, rule_set);
    if (fields.IsText(2)) {
      has_context = true;
      const StatusCode read = ReadContext(fields.text(), *this);
      if (read == StatusCode::kInvalidArgument) {
        return Invalid(text::Cat("context.attributes: more than ", rules::kAttributesMax,
                                 "; expected at most so many"));
      }
      ok = read == StatusCode::kOk;
    }
    if (fields.IsText(3)) ok = ReadText(fields, limit);
    if (fields.IsText(4)) ok = ReadText(fields, key);
    if (fields.IsNumber(5)) permits = Signed(fields.number());
    if (fields.IsNumber(6) && type != Type::kGive) detail = fields.number() != 0;
    if (fields.IsText(7) && holds) {
      if (!duration) duration.emplace();  // Parts of one message are merged.
      ok = ReadDuration(fields.text(), *duration);
    }
    if (fields.IsText(8) && holds) ok = ReadText(fields, wish.id);
    if (fields.IsNumber(9) && holds) on_expiry = static_cast<std::int32_t>(fields.number());
  }
  if (!ok || !fields.ok()) return Malformed(NameOf(type));

  const bool by_limit = !limit.empty();
  const bool mixes = by_rules() ? !key.empty() : has_context || detail;
  if (by_rules() == by_limit || mixes) {
    return Invalid("expected rule_set, and perhaps context and detail, or else limit and key");
  }
  if (permits < 0) {
    return Invalid(text::Cat("permits is ", permits,
                             "; expected a whole number from 0 to 9223372036854775807"));
  }
  if (duration) {
    if (Status status = ReadTtl(*duration, wish.ttl); !status.ok()) return status;
  }
  if (on_expiry < 0 || on_expiry > 2) {
    return Invalid(text::Cat("on_expiry is ", on_expiry, "; expected CHARGE (1) or RELEASE (2)"));
  }
  if (on_expiry > 0) wish.on_expiry = on_expiry == 1 ? OnExpiry::kCharge : OnExpiry::kRelease;
  context.attributes = attributes;
  return {};
}

Status BatchMessage::Parse(std::string_view message) {
  Fields fields(message);
  while (fields.Next()) {
    if (!fields.IsText(1)) continue;
    if (checks.size() == service::kBatchMax) {
      return Invalid(
          text::Cat("more than ", service::kBatchMax, " checks; expected at most so many"));
    }
    checks.push_back(fields.text());
  }
  return fields.ok() ? Status{} : Malformed("a CheckBatchRequest");
}

Status SettleMessage::Parse(std::string_view message) {
  Fields fields(message);
  bool ok = true;
  while (ok && fields.Next()) {
    if (fields.IsText(1)) ok = ReadText(fields, id);
    if (fields.IsNumber(2)) permits = Signed(fields.number());
    if (!fields.IsText(3)) continue;
    std::pair<std::string_view, std::int64_t> rule;
    Fields parts(fields.text());
    while (ok && parts.Next()) {
      if (parts.IsText(1)) ok = ReadText(parts, rule.first);
      if (parts.IsNumber(2)) rule.second = Signed(parts.number());
    }
    ok = ok && parts.ok();
    if (ok && !PutEntry(rules, rule, &decltype(rule)::first, service::HoldTicket::kPartsMax)) {
      return Invalid(text::Cat("rules: more than ", service::HoldTicket::kPartsMax,
                               "; expected at most so many"));
    }
  }
  if (!ok || !fields.ok()) return Malformed("a SettleRequest");
  if (permits && !rules.empty()) {
    return Invalid("permits and rules exclude each other; expected one of them, or neither");
  }
  return {};
}

Status ExtendMessage::Parse(std::string_view message, Type type) {
  const bool extends = type == Type::kExtend;
  std::optional<Duration> duration;
  Fields fields(message);
  bool ok = true;
  while (ok && fields.Next()) {
    if (fields.IsText(1)) ok = ReadText(fields, id);
    if (fields.IsText(2) && extends) {
      if (!duration) duration.emplace();
      ok = ReadDuration(fields.text(), *duration);
    }
  }
  if (!ok || !fields.ok()) return Malformed(extends ? "an ExtendRequest" : "a ReleaseRequest");
  return duration ? ReadTtl(*duration, ttl) : Status{};
}

}  // namespace sluice::grpc
