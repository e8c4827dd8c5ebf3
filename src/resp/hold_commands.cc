// SPDX-License-Identifier: Apache-2.0
// The commands about a hold that a client has: SLUICE.SETTLE, SLUICE.EXTEND, SLUICE.RELEASE.
// SLUICE.HOLD, which makes one, is like a check: see limit_commands.cc.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "resp/arguments.h"
#include "resp/check_words.h"
#include "resp/session.h"
#include "service/hold_call.h"

namespace sluice::resp {
namespace {

// [COST cost | RULE rule cost [RULE rule cost ...]]
Expected<void> ReadSettle(service::HoldCall& call, Options options) {
  constexpr std::string_view kUsage = "expected COST cost, or RULE rule cost for each rule";
  call.Settle();
  bool for_all = false;
  std::vector<std::string_view> rules;
  while (!options.done()) {
    const std::string_view word = options.next();
    std::string_view rule;
    std::string_view text;
    if (options.Take("COST", text)) {
      for_all = true;
    } else if (options.Take("RULE", rule, text)) {
      if (std::ranges::find(rules, rule) != rules.end()) {
        return RefuseRepeated(text::Cat("RULE ", text::Quote(rule)));
      }
      rules.push_back(rule);
    } else {
      return Refuse(text::Cat("syntax error at ", text::Quote(word), "; ", kUsage));
    }
    if (!options.repeated().empty()) return RefuseRepeated(options.repeated());
    if (for_all && !rules.empty()) {
      return Refuse(text::Cat("COST and RULE exclude each other; ", kUsage));
    }
    const auto cost = kCost.Parse(text);
    if (!cost) return kCost.NotIn(text);
    if (auto set = for_all ? call.Settle(*cost) : call.SettleRule(rule, *cost); !set) return set;
  }
  return {};
}

// [TTL ttl]
Expected<void> ReadExtend(service::HoldCall& call, Options options) {
  std::optional<Micros> ttl;
  while (!options.done()) {
    std::string_view text;
    if (!options.Take("TTL", text)) {
      return Refuse(text::Cat("syntax error at ", text::Quote(options.next()),
                              "; expected TTL ttl, or nothing"));
    }
    if (!options.repeated().empty()) return RefuseRepeated(options.repeated());
    const auto read = ReadTtl(text);
    if (!read) return std::unexpected(read.error());
    ttl = *read;
  }
  call.Extend(ttl);
  return {};
}

Expected<void> Read(service::HoldCall& call, HoldChange change, const Options& options) {
  switch (change) {
    case HoldChange::kSettle:
      return ReadSettle(call, options);
    case HoldChange::kExtend:
      return ReadExtend(call, options);
    case HoldChange::kRelease:
      call.Release();
      return {};
  }
  std::unreachable();
}

}  // namespace

Expected<void> Session::ChangeHold(Arguments arguments, HoldChange change) {
  auto call = std::make_unique<service::HoldCall>(worker_.engine().catalog());
  if (auto open = call->Open(arguments[1]); !open) return open;
  if (auto read = Read(*call, change, Options(arguments.subspan(2))); !read) return read;
  batch_->AddHoldChange(std::move(call), change, protocol_);
  return {};
}

}  // namespace sluice::resp
