// SPDX-License-Identifier: Apache-2.0
// The commands that the store decides: CL.THROTTLE, THROTTLE, SLUICE.CHECK and those like it, DEL.
// Those about a hold that exists are in hold_commands.cc.
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "base/text.h"
#include "net/address.h"
#include "resp/arguments.h"
#include "resp/check_words.h"
#include "resp/session.h"

namespace sluice::resp {
namespace {

// The state of a key under CL.THROTTLE: only one, whatever numbers its commands have, like
// redis-cell. What was used stays used when they change. THROTTLE has its own, because its bucket
// differs. The single slash occurs in no name of a limit or rule.
constexpr std::string_view kCellState = "resp/cl.throttle";
constexpr std::string_view kCrabState = "resp/throttle";

constexpr std::int64_t kMicrosPerSecond = 1'000'000;

constexpr Number kCount{.name = "count", .min = 1, .max = kNumberMax};
constexpr Number kPeriod{
    .name = "period_seconds", .min = 1, .max = kSpanMax.count() / kMicrosPerSecond};
constexpr Number kQuantity{
    .name = "quantity", .min = 0, .max = std::numeric_limits<std::int64_t>::max()};

// The limit given by the three numbers after the key, for a bucket that holds `extra` more than the
// first of them.
Expected<Limit::GcraSpec> ParseSpec(Arguments arguments, std::int64_t extra) {
  const Number max_burst{.name = "max_burst", .min = 1 - extra, .max = kNumberMax - extra};
  const auto burst = max_burst.Parse(arguments[2]);
  if (!burst) return max_burst.NotIn(arguments[2]);
  const auto count = kCount.Parse(arguments[3]);
  if (!count) return kCount.NotIn(arguments[3]);
  const auto period = kPeriod.Parse(arguments[4]);
  if (!period) return kPeriod.NotIn(arguments[4]);
  return Limit::GcraSpec{
      .burst = *burst + extra - 1, .count = *count, .period = Micros{*period * kMicrosPerSecond}};
}

}  // namespace

Expected<void> Session::Throttle(Arguments arguments, Dialect dialect) {
  constexpr std::size_t kArgumentsMax = 6;
  const bool cell = dialect == Dialect::kCell;
  if (arguments.size() > kArgumentsMax) {
    return Refuse(text::Cat("wrong number of arguments for '", cell ? "cl.throttle" : "throttle",
                            "' command"));
  }
  const auto spec = ParseSpec(arguments, cell ? 1 : 0);
  if (!spec) return std::unexpected(spec.error());
  std::int64_t quantity = 1;
  if (arguments.size() == kArgumentsMax) {
    const auto parsed = kQuantity.Parse(arguments[5]);
    if (!parsed) return kQuantity.NotIn(arguments[5]);
    quantity = *parsed;
  }
  const Limit* limit = worker_.limits().Find(*spec);
  if (!limit) {
    const auto made = Limit::Gcra(*spec);
    if (!made) return std::unexpected(made.error());
    limit = &worker_.limits().Keep(*spec, *made);
  }
  const Batch::Check check{.limit = *limit,
                           .key = arguments[1],
                           .name = cell ? kCellState : kCrabState,
                           .said = {},
                           .cost = quantity,
                           .on_store_failure = worker_.options().on_store_failure};
  if (quantity > limit->amount()) {
    batch_->AddNever(check, dialect, protocol_);
  } else {
    batch_->AddCheck(check, dialect, protocol_);
  }
  return {};
}

Expected<void> Session::Check(Arguments arguments, Taking taking) {
  if (text::EqualsIgnoreCase(arguments[1], "LIMIT")) return CheckLimit(arguments, taking);
  if (text::EqualsIgnoreCase(arguments[1], "RULESET")) return CheckRules(arguments, taking);
  return Refuse(text::Cat(text::Quote(arguments[1]), " is neither LIMIT nor RULESET"));
}

Expected<void> Session::CheckLimit(Arguments arguments, Taking taking) {
  CheckWords words;
  if (auto read = words.ReadLimit(arguments, taking); !read) return read;
  const std::string_view said = arguments[2];
  const std::string_view key = arguments[3];
  if (taking == Taking::kHold) {
    auto hold = std::make_unique<service::LimitHold>(worker_.engine().catalog());
    const auto prepared = hold->Prepare({.limit = said,
                                         .key = key,
                                         .cost = words.cost,
                                         .on_store_failure = worker_.options().on_store_failure,
                                         .wish = words.wish});
    if (!prepared) return prepared;
    batch_->AddHold(std::move(hold), said, protocol_);
    return {};
  }
  const auto named = service::FindLimit(*worker_.engine().catalog(), said);
  if (!named) return std::unexpected(named.error());
  if (taking == Taking::kReset) {
    batch_->AddReset(named->limit, named->name, {&key, 1});
    return {};
  }
  const Batch::Check check{.limit = named->limit,
                           .key = key,
                           .name = named->name,
                           .said = said,
                           .cost = words.cost,
                           .on_store_failure = worker_.options().on_store_failure};
  if (taking == Taking::kGive) {
    batch_->AddGive(check, protocol_);
  } else {
    batch_->AddCheck(check, Dialect::kFields, protocol_);
  }
  return {};
}

Expected<void> Session::CheckRules(Arguments arguments, Taking taking) {
  CheckWords words;
  if (auto read = words.ReadRules(arguments, taking, worker_.attributes()); !read) return read;
  const std::string ip = net::ClientKey(words.context.ip, worker_.options().ipv6_prefix);
  words.context.ip = ip;
  service::RuleCheck& rules = batch_->NextRules();
  const std::string_view id = arguments[2];
  if (taking == Taking::kHold) {
    auto prepared = rules.PrepareHold(id, words.context, words.cost, words.wish);
    if (!prepared) return prepared;
    batch_->AddRulesHold(words.detail, protocol_);
    return {};
  }
  auto prepared = taking == Taking::kGive ? rules.PrepareGive(id, words.context, words.cost)
                                          : rules.Prepare(id, words.context, words.cost);
  if (!prepared) return prepared;
  if (taking == Taking::kReset) {
    batch_->AddRulesReset();
  } else if (taking == Taking::kGive) {
    batch_->AddRulesGive(protocol_);
  } else {
    batch_->AddRules(words.detail, protocol_);
  }
  return {};
}

Expected<void> Session::ResetThrottle(Arguments keys) {
  // The state is found by its name alone.
  const auto any = Limit::Gcra({.burst = 0, .count = 1, .period = Micros{kMicrosPerSecond}});
  if (!any) return std::unexpected(any.error());
  batch_->AddReset(*any, kCellState, keys);
  return {};
}

}  // namespace sluice::resp
