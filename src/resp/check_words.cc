// SPDX-License-Identifier: Apache-2.0
#include "resp/check_words.h"

#include <algorithm>

#include "base/duration.h"

namespace sluice::resp {
namespace {

constexpr std::string_view kTerms = " [TTL ttl] [ID id] [ONEXPIRY CHARGE|RELEASE]";

bool Costs(Taking taking) {
  return taking == Taking::kTake || taking == Taking::kHold || taking == Taking::kGive;
}

bool ShowsDetail(Taking taking) {
  return taking == Taking::kTake || taking == Taking::kPeek || taking == Taking::kHold;
}

std::string LimitUsage(Taking taking) {
  return text::Cat("expected LIMIT limit key", Costs(taking) ? " [COST cost]" : "",
                   taking == Taking::kHold ? kTerms : "");
}

std::string RulesUsage(Taking taking) {
  return text::Cat("expected RULESET id", Costs(taking) ? " [COST cost]" : "",
                   taking == Taking::kHold ? kTerms : "",
                   " [IP ip] [USER user] [APIKEY key] [METHOD method] [PATH path] "
                   "[ATTR name value ...]",
                   ShowsDetail(taking) ? " [DETAIL]" : "");
}

std::unexpected<Error> SyntaxError(const Options& options, std::string_view usage) {
  return Refuse(text::Cat("syntax error at ", text::Quote(options.next()), "; ", usage));
}

Expected<OnExpiry> ReadOnExpiry(std::string_view text) {
  for (const OnExpiry on_expiry : {OnExpiry::kCharge, OnExpiry::kRelease}) {
    if (text::EqualsIgnoreCase(text, ToString(on_expiry))) return on_expiry;
  }
  return Refuse(text::Cat("ONEXPIRY is ", text::Quote(text), "; expected CHARGE or RELEASE"));
}

}  // namespace

Expected<Micros> ReadTtl(std::string_view text) {
  const auto ttl = text::ParseDuration(text);
  if (ttl && *ttl >= kHoldTtlMin && *ttl <= kHoldTtlMax) return *ttl;
  return Refuse(text::Cat("TTL is ", text::Quote(text), "; expected a duration such as 30s, from ",
                          text::FormatDuration(kHoldTtlMin), " to ",
                          text::FormatDuration(kHoldTtlMax)));
}

// Takes the next word if it is one that limits and rule sets have in common.
Expected<bool> CheckWords::Read(Options& options, Taking taking) {
  std::string_view text;
  if (Costs(taking) && options.Take("COST", text)) {
    const auto parsed = kCost.Parse(text);
    if (!parsed) return kCost.NotIn(text);
    cost = *parsed;
    return true;
  }
  if (taking != Taking::kHold) return false;
  if (options.Take("TTL", text)) {
    const auto ttl = ReadTtl(text);
    if (!ttl) return std::unexpected(ttl.error());
    wish.ttl = *ttl;
    return true;
  }
  if (options.Take("ONEXPIRY", text)) {
    const auto on_expiry = ReadOnExpiry(text);
    if (!on_expiry) return std::unexpected(on_expiry.error());
    wish.on_expiry = *on_expiry;
    return true;
  }
  return options.Take("ID", wish.id);
}

Expected<void> CheckWords::ReadLimit(Arguments arguments, Taking taking) {
  constexpr std::size_t kFirst = 4;
  if (arguments.size() < kFirst) {
    return Refuse(text::Cat("the key is missing; ", LimitUsage(taking)));
  }
  if (!Costs(taking)) cost = 0;
  Options options(arguments.subspan(kFirst));
  while (!options.done()) {
    const auto read = Read(options, taking);
    if (!read) return std::unexpected(read.error());
    if (!*read) return SyntaxError(options, LimitUsage(taking));
    if (!options.repeated().empty()) return RefuseRepeated(options.repeated());
  }
  return {};
}

Expected<void> CheckWords::ReadRules(Arguments arguments, Taking taking,
                                     std::vector<rules::Attribute>& attributes) {
  attributes.clear();
  if (!Costs(taking)) cost = 0;
  Options options(arguments.subspan(3));
  while (!options.done()) {
    const auto read = Read(options, taking);
    if (!read) return std::unexpected(read.error());
    std::string_view path;
    rules::Attribute attribute;
    if (*read) {
      // It is in place.
    } else if (options.Take("ATTR", attribute.name, attribute.value)) {
      if (std::ranges::find(attributes, attribute.name, &rules::Attribute::name) !=
          attributes.end()) {
        return RefuseRepeated(text::Cat("ATTR ", text::Quote(attribute.name)));
      }
      attributes.push_back(attribute);
    } else if (options.Take("PATH", path)) {
      context.path = path;
    } else if (ShowsDetail(taking) && options.Take("DETAIL")) {
      detail = true;
    } else if (!options.Take("IP", context.ip) && !options.Take("USER", context.user_id) &&
               !options.Take("APIKEY", context.api_key) &&
               !options.Take("METHOD", context.method)) {
      return SyntaxError(options, RulesUsage(taking));
    }
    if (!options.repeated().empty()) return RefuseRepeated(options.repeated());
  }
  context.attributes = attributes;
  return {};
}

}  // namespace sluice::resp
