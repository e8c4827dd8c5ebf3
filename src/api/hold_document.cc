// SPDX-License-Identifier: Apache-2.0
#include "api/hold_document.h"

#include <algorithm>
#include <boost/json.hpp>
#include <string>
#include <utility>

#include "base/duration.h"
#include "base/text.h"

namespace sluice::api {
namespace {

namespace json = boost::json;

Expected<std::optional<OnExpiry>> ReadOnExpiry(const json::value& value) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) {
    for (const OnExpiry on_expiry : {OnExpiry::kCharge, OnExpiry::kRelease}) {
      if (text::EqualsIgnoreCase(value.get_string(), ToString(on_expiry))) return on_expiry;
    }
  }
  return InvalidDocument("onExpiry: expected CHARGE or RELEASE");
}

Expected<bool> ReadField(HoldDocument& document, std::string_view name, json::value& member) {
  Expected<void> read;
  if (name == "limit") {
    read = ReadText(document.limit, name, member);
  } else if (name == "key") {
    read = ReadText(document.key, name, member);
  } else if (name == "id") {
    read = ReadText(document.id, name, member);
  } else if (name == "ttl") {
    const auto ttl = ReadTtl(member);
    if (!ttl) return std::unexpected(ttl.error());
    document.ttl = *ttl;
  } else if (name == "onExpiry") {
    const auto on_expiry = ReadOnExpiry(member);
    if (!on_expiry) return std::unexpected(on_expiry.error());
    document.on_expiry = *on_expiry;
  } else {
    return document.check.ReadField(name, member);
  }
  if (!read) return std::unexpected(std::move(read.error()));
  return true;
}

// A body that may be missing.
Expected<json::object> ParseOptional(std::string_view body) {
  if (body.empty()) return json::object();
  auto value = ParseJson(body);
  if (!value) return std::unexpected(std::move(value.error()));
  if (!value->is_object()) return InvalidDocument("expected an object, or no body");
  return std::move(value->get_object());
}

constexpr std::string_view kPermitsShape =
    "permits: expected a whole number of 0 or more, or an object of such numbers by rule, such as "
    "{\"tokens\": 250}";

}  // namespace

Expected<std::optional<Micros>> ReadTtl(const json::value& value) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) {
    const auto ttl = text::ParseDuration(value.get_string());
    if (ttl && *ttl >= kHoldTtlMin && *ttl <= kHoldTtlMax) return *ttl;
  }
  return InvalidDocument(text::Cat("ttl: expected a duration such as \"30s\", from ",
                                   text::FormatDuration(kHoldTtlMin), " to ",
                                   text::FormatDuration(kHoldTtlMax)));
}

Expected<HoldDocument> HoldDocument::Read(json::value& value) {
  if (!value.is_object()) {
    return InvalidDocument("expected an object such as {\"ruleSet\": \"api\", \"ttl\": \"30s\"}");
  }
  HoldDocument document;
  bool has_context = false;
  for (auto& pair : value.get_object()) {
    const auto read = ReadField(document, pair.key(), pair.value());
    if (!read) return std::unexpected(read.error());
    if (!*read) {
      return InvalidDocument(text::Cat("there is no field ", text::Quote(pair.key()),
                                       "; expected ruleSet and context, or limit and key; and "
                                       "permits, ttl, id or onExpiry"));
    }
    has_context = has_context || pair.key() == "context";
  }
  const bool by_rules = !document.check.rule_set.empty();
  const bool by_limit = !document.limit.empty();
  const bool mixes = by_rules ? !document.key.empty() : has_context;
  if (by_rules == by_limit || mixes) {
    return InvalidDocument("expected ruleSet and perhaps context, or else limit and key");
  }
  document.check.Finish();
  return document;
}

Expected<void> ReadSettle(service::HoldCall& call, std::string_view body) {
  const auto document = ParseOptional(body);
  if (!document) return std::unexpected(document.error());
  call.Settle();
  for (const auto& pair : *document) {
    const json::value& permits = pair.value();
    if (pair.key() != "permits") {
      return InvalidDocument(
          text::Cat("there is no field ", text::Quote(pair.key()), "; expected permits"));
    }
    if (permits.is_int64()) {
      if (auto set = call.Settle(permits.get_int64()); !set) return set;
    } else if (permits.is_object()) {
      for (const auto& rule : permits.get_object()) {
        if (!rule.value().is_int64()) return InvalidDocument(std::string(kPermitsShape));
        if (auto set = call.SettleRule(rule.key(), rule.value().get_int64()); !set) return set;
      }
    } else if (!permits.is_null()) {
      return InvalidDocument(std::string(kPermitsShape));
    }
  }
  return {};
}

Expected<void> ReadExtend(service::HoldCall& call, std::string_view body) {
  const auto document = ParseOptional(body);
  if (!document) return std::unexpected(document.error());
  std::optional<Micros> ttl;
  for (const auto& pair : *document) {
    if (pair.key() != "ttl") {
      return InvalidDocument(
          text::Cat("there is no field ", text::Quote(pair.key()), "; expected ttl"));
    }
    const auto read = ReadTtl(pair.value());
    if (!read) return std::unexpected(read.error());
    ttl = *read;
  }
  call.Extend(ttl);
  return {};
}

}  // namespace sluice::api
