// SPDX-License-Identifier: Apache-2.0
#include "cli/check_command.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cstdio>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/exit_code.h"
#include "cli/spool.h"
#include "cli/stores.h"
#include "core/algorithms.h"
#include "core/combine.h"
#include "core/seen.h"
#include "sluice/memory_store.h"
#include "sluice/redis_store.h"

namespace sluice::cli {
namespace {

// 1.5 s, 20 ms, 7 us: whole numbers and at most three decimals.
std::string Readable(Micros wait) {
  const std::int64_t us = wait.count();
  if (us < 1'000) return text::Cat(us, " us");
  const bool seconds = us >= 1'000'000;
  const std::int64_t thousandths = seconds ? us / 1'000 : us;
  std::string fraction = std::to_string(1'000 + thousandths % 1'000).substr(1);
  fraction.erase(fraction.find_last_not_of('0') + 1);
  return text::Cat(thousandths / 1'000, fraction.empty() ? "" : ".", fraction,
                   seconds ? " s" : " ms");
}

std::string ToText(const Decision& decision) {
  std::string out = text::Cat(decision.allowed ? "allowed" : "denied", ", ", decision.remaining,
                              " of ", decision.limit, " left");
  if (!decision.allowed) out += text::Cat(", retry in ", Readable(decision.retry_after));
  if (decision.delay > Micros{0}) out += text::Cat(", go on in ", Readable(decision.delay));
  return text::Cat(out, ", full again in ", Readable(decision.reset_after), "\n");
}

// Several limits get a line each, below the combined one.
std::string ToText(const Decision& decision, std::span<const Limit> limits,
                   std::span<const Decision> each) {
  std::string out = ToText(decision);
  if (limits.size() == 1) return out;
  for (std::size_t i = 0; i < limits.size(); ++i) {
    out += text::Cat("  ", limits[i].ToString(), ": ", ToText(each[i]));
  }
  return out;
}

boost::json::object ToObject(const Decision& decision) {
  return {{"allowed", decision.allowed},
          {"limit", decision.limit},
          {"remaining", decision.remaining},
          {"retry_after_us", decision.retry_after.count()},
          {"reset_after_us", decision.reset_after.count()},
          {"delay_us", decision.delay.count()}};
}

std::string ToJson(const Decision& decision, std::span<const Limit> limits,
                   std::span<const Decision> each) {
  boost::json::array numbers;
  for (std::size_t i = 0; i < limits.size(); ++i) {
    boost::json::object own = ToObject(each[i]);
    own["spec"] = limits[i].ToString();
    if (core::RowOf(limits[i].algorithm()).queues) {
      own["queued"] = each[i].limit - each[i].remaining;
    }
    numbers.push_back(std::move(own));
  }
  boost::json::object out = ToObject(decision);
  out["limits"] = std::move(numbers);
  return boost::json::serialize(out) + "\n";
}

}  // namespace

CheckCommand::CheckCommand(CLI::App& app)
    : app_(app.add_subcommand("check", "Checks once whether a request may pass")) {
  app_->footer(
      "Exit status: 0 allowed or looked, 1 denied, 2 error. With several limits, the first line\n"
      "is the decision. Below it, a line for each limit says whether that one denied.\n"
      "\n"
      "Example:\n"
      "  sluice check --store redis://127.0.0.1:6379 --limit limit=5,window=1m --key alice\n");
  app_->add_option("--store", store_, "Where the state lives, such as redis://127.0.0.1:6379")
      ->required()
      ->envname("SLUICE_STORE")
      ->type_name("URI");
  app_->add_option("--limit", limits_, "Limit to charge; several are all or nothing")
      ->required()
      ->type_name("SPEC")
      ->allow_extra_args(false);
  app_->add_option("--key", key_, "Key whose budget is charged")->required()->type_name("KEY");
  app_->add_option("--cost", cost_,
                   "Units to take; 0 only looks, and shows what a cost of 1 would get")
      ->type_name("N")
      ->capture_default_str();
  app_->add_flag("--json", json_,
                 "Print the decision, and that of each limit, as JSON; times are in microseconds");
}

int CheckCommand::Run() const {
  const auto limits = ParseLimits(limits_);
  if (!limits) return Fail("check", limits.error());
  std::unique_ptr<Store> store;
  if (store_ == kMemory) {
    store = std::make_unique<MemoryStore>();
  } else {
    auto redis = OpenRedis({.uri = store_});
    if (!redis) return Fail("check", redis.error());
    store = *std::move(redis);
  }
  std::vector<Charge> charges;
  for (const Limit& limit : *limits) {
    charges.push_back({.key = key_, .limit = &limit, .cost = cost_});
  }
  const bool looks = cost_ == 0;
  std::vector<Decision> each(charges.size());
  std::vector<SeenState> seen(looks ? charges.size() : 0);
  Request request{.charges = charges, .each = each, .seen = seen};
  const auto decision = Decide(*store, request);
  if (!decision) return Fail("check", decision.error());
  // A peek reports what a request of 1 would get; its exit status is that of the peek itself.
  for (std::size_t i = 0; i < seen.size(); ++i) {
    each[i] = core::Foresee((*limits)[i], each[i], seen[i], 1);
  }
  const Decision shown = looks ? core::Combine(each) : *decision;
  std::string answer = json_ ? ToJson(shown, *limits, each) : ToText(shown, *limits, each);
  if (looks && !json_) answer.insert(0, "nothing charged; a request of 1: ");
  if (const auto written = WriteAll(stdout, answer); !written)
    return Fail("check", written.error());
  return decision->allowed ? kExitOk : kExitDenied;
}

}  // namespace sluice::cli
