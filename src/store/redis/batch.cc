// SPDX-License-Identifier: Apache-2.0
#include "store/redis/batch.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "core/bucket.h"
#include "core/combine.h"
#include "core/fixed_window.h"
#include "core/text.h"
#include "core/window_counter.h"
#include "core/window_log.h"
#include "store/redis/state_key.h"
#include "store/validate.h"

namespace sluice::redis {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
constexpr std::size_t kNumbersPerState = 3;

bool IsSame(const Charge& a, const Charge& b) {
  return a.cost == b.cost && a.key == b.key && a.name == b.name && *a.limit == *b.limit;
}

char KindOf(const Limit& limit) {
  switch (limit.algorithm()) {
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
    case Algorithm::kGcra:
      return 'b';
    case Algorithm::kFixedWindow:
      return 'w';
    case Algorithm::kSlidingWindow:
      return 'l';
    case Algorithm::kSlidingWindowCounter:
      return 'c';
  }
  std::unreachable();
}

std::string SignatureOf(const Limit& limit) {
  return text::Cat(std::string_view(std::array{KindOf(limit)}.data(), 1), ":", limit.amount(), ":",
                   limit.unit(), ":", limit.rate(), ":", limit.tick().count());
}

// A state as the script returned it, moved on request by request.
class Budget {
 public:
  Budget(const Limit& limit, TimePoint now, std::int64_t a, std::int64_t b, std::int64_t c)
      : limit_(limit), now_(now) {
    switch (KindOf(limit)) {
      case 'b':
        if (b >= 0) state_ = core::BucketState{.level = a, .time = b};
        break;
      case 'w':
        if (b >= 0) state_ = core::WindowState{.start = a, .count = b};
        break;
      case 'c':
        if (b >= 0) state_ = core::CounterState{.window = a, .previous = b, .current = c};
        break;
      default:
        state_ = core::LogFacts{.now_us = std::max(now.time_since_epoch().count(), b),
                                .used = a,
                                .newest = b,
                                .leaves = c};
    }
  }

  Decision Look(std::int64_t cost) const { return Step(cost).first; }

  // Decides, and moves on if the request was admitted.
  Decision Take(std::int64_t cost, bool admitted) {
    auto [decision, next] = Step(cost);
    if (admitted && cost > 0) state_ = next;
    return decision;
  }

 private:
  using State = std::variant<std::monostate, core::BucketState, core::WindowState,
                             core::CounterState, core::LogFacts>;

  template <typename Kernel>
  std::pair<Decision, State> StepAs(std::int64_t cost) const {
    const auto step = core::Decide(limit_, std::get_if<Kernel>(&state_), now_, cost);
    return {step.decision, step.next};
  }

  std::pair<Decision, State> Step(std::int64_t cost) const {
    switch (KindOf(limit_)) {
      case 'b':
        return StepAs<core::BucketState>(cost);
      case 'w':
        return StepAs<core::WindowState>(cost);
      case 'c':
        return StepAs<core::CounterState>(cost);
      default: {
        core::LogFacts next = std::get<core::LogFacts>(state_);
        const Decision decision = core::Decide(limit_, next, cost);
        next.used += cost;
        next.newest = next.now_us;
        return {decision, next};
      }
    }
  }

  const Limit& limit_;
  const TimePoint now_;
  State state_;
};

}  // namespace

std::size_t Batch::LimitNumber(const Limit& limit) {
  const auto found = std::ranges::find(limits_, limit);
  if (found == limits_.end()) {
    limits_.push_back(limit);
    signatures_.push_back(SignatureOf(limit));
    return limits_.size() - 1;
  }
  return static_cast<std::size_t>(found - limits_.begin());
}

// The operation that a single charge can join: the last one on its state, if that asks for the
// same.
Batch::Operation* Batch::Foldable(const std::string& key, Action action, const Part& part) {
  const auto last = last_operation_.find(key);
  if (last == last_operation_.end()) return nullptr;
  Operation& operation = operations_[last->second];
  const bool same =
      operation.action == action && operation.parts == 1 && parts_[operation.first_part] == part;
  return same ? &operation : nullptr;
}

void Batch::Append(Operation& operation, Request& request) {
  const std::size_t number = requests_.size();
  requests_.push_back({&request, kNone});
  if (operation.times++ == 0) {
    operation.first_request = number;
  } else {
    requests_[operation.last_request].next = number;
  }
  operation.last_request = number;
}

Batch::Added Batch::Add(Request& request, std::string_view prefix, std::size_t operations_max) {
  if (!empty() && request.now != now_) return Added::kFull;
  const auto refuse = [&](Error error) {
    request.outcome = std::unexpected(std::move(error));
    return Added::kAnswered;
  };
  const auto charges = request.charges;
  if (!HasValidShape(charges, request.each)) return refuse(InvalidShape(charges, request.each));
  const TimePoint now = request.now.value_or(TimePoint{});
  for (const Charge& charge : charges) {
    if (!IsValid(charge, now, request.action)) return refuse(Invalid(charge, now, request.action));
  }

  if (charges.size() == 1) {
    // A hot key comes many times in a row; its state need not be looked up each time.
    if (previous_ && operations_.back().action == request.action &&
        IsSame(*previous_, charges.front())) {
      Append(operations_.back(), request);
      return Added::kTaken;
    }
    const Part part{LimitNumber(*charges.front().limit), CostOf(charges.front())};
    std::string key = StateKey(prefix, charges.front());
    if (Operation* same = Foldable(key, request.action, part)) {
      Append(*same, request);
      return Added::kTaken;
    }
    if (operations_.size() == operations_max || keys_.size() == kKeysMax) return Added::kFull;
    now_ = request.now;
    last_operation_.insert_or_assign(key, operations_.size());
    Operation operation{.action = request.action,
                        .first_part = parts_.size(),
                        .parts = 1,
                        .first_charge = part_of_charge_.size(),
                        .times = 0,
                        .first_request = 0,
                        .last_request = 0};
    part_of_charge_.push_back(0);
    parts_.push_back(part);
    keys_.push_back(std::move(key));
    Append(operation, request);
    operations_.push_back(operation);
    previous_ = &charges.front();
    return Added::kTaken;
  }

  if (operations_.size() == operations_max || keys_.size() + charges.size() > kKeysMax) {
    return Added::kFull;
  }
  // Charges of one state add up.
  std::vector<Part> parts;
  std::vector<std::string> keys;
  std::vector<std::size_t> asked;  // Which charge brought each part.
  std::vector<std::uint8_t> part_of_charge;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    std::string key = StateKey(prefix, charges[i]);
    const auto same = std::ranges::find(keys, key);
    part_of_charge.push_back(static_cast<std::uint8_t>(same - keys.begin()));
    if (same == keys.end()) {
      parts.push_back({LimitNumber(*charges[i].limit), CostOf(charges[i])});
      keys.push_back(std::move(key));
      asked.push_back(i);
      continue;
    }
    const std::size_t part = part_of_charge.back();
    if (*charges[asked[part]].limit != *charges[i].limit) {
      return refuse(TwoLimitsUnderOneName(charges[asked[part]], charges[i]));
    }
    parts[part].cost += CostOf(charges[i]);
    if (parts[part].cost <= charges[i].limit->amount()) continue;
    if (request.action == Action::kCheck) {
      return refuse(InvalidCost(*charges[i].limit, parts[part].cost));
    }
    parts[part].cost = charges[i].limit->amount();
  }
  if (parts.size() == 1) {
    // After all one state, so that no state occurs twice in a run of single ones.
    if (Operation* same = Foldable(keys.front(), request.action, parts.front())) {
      Append(*same, request);
      return Added::kTaken;
    }
  }
  now_ = request.now;
  Operation operation{.action = request.action,
                      .first_part = parts_.size(),
                      .parts = parts.size(),
                      .first_charge = part_of_charge_.size(),
                      .times = 0,
                      .first_request = 0,
                      .last_request = 0};
  part_of_charge_.insert(part_of_charge_.end(), part_of_charge.begin(), part_of_charge.end());
  for (const std::string& key : keys) last_operation_.insert_or_assign(key, operations_.size());
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  std::ranges::move(keys, std::back_inserter(keys_));
  Append(operation, request);
  operations_.push_back(operation);
  previous_ = nullptr;
  return Added::kTaken;
}

void Batch::AppendCommand(std::string& out, std::string_view sha) const {
  const auto parts_of = [&](const Operation& operation) {
    return std::span(parts_).subspan(operation.first_part, operation.parts);
  };
  const auto same_shape = [&](const Operation& a, const Operation& b) {
    return a.action == b.action && a.times == b.times &&
           std::ranges::equal(parts_of(a), parts_of(b));
  };
  // The arguments are counted before they are written.
  std::string arguments;
  std::size_t count = 0;
  const auto put = [&](std::string_view text) {
    AppendBulkString(arguments, text);
    ++count;
  };
  const auto put_number = [&](auto number) { put(std::to_string(number)); };

  put("EVALSHA");
  put(sha);
  put_number(keys_.size());
  for (const std::string& key : keys_) put(key);
  put(now_ ? std::to_string(now_->time_since_epoch().count()) : "");
  put_number(limits_.size());
  for (std::size_t i = 0; i < limits_.size(); ++i) {
    put(signatures_[i]);
    put_number(limits_[i].amount());
    put_number(limits_[i].unit());
    put_number(limits_[i].rate());
    put_number(limits_[i].tick().count());
  }
  for (std::size_t begin = 0; begin < operations_.size();) {
    std::size_t end = begin + 1;
    while (end < operations_.size() && same_shape(operations_[begin], operations_[end])) ++end;
    put(operations_[begin].action == Action::kDebit ? "debit" : "check");
    put_number(end - begin);
    put_number(operations_[begin].parts);
    put_number(operations_[begin].times);
    for (const Part& part : parts_of(operations_[begin])) {
      put_number(part.limit + 1);
      put_number(part.cost);
    }
    begin = end;
  }
  AppendArrayHeader(out, count);
  out += arguments;
}

Expected<void> Batch::Decode(std::span<const RespNode> reply) {
  const auto unexpected_reply = [] {
    return std::unexpected(Error{ErrorCode::kStoreError, "the script's reply is not as expected"});
  };
  const std::size_t numbers = 1 + operations_.size() + kNumbersPerState * parts_.size();
  if (reply.size() != numbers + 1 || reply.front().type != RespType::kArray) {
    return unexpected_reply();
  }
  reply = reply.subspan(1);
  for (const RespNode& node : reply) {
    if (node.type != RespType::kInteger) return unexpected_reply();
  }
  const std::int64_t now_us = reply.front().number;
  std::size_t at = 1;
  for (const Operation& operation : operations_) {
    const std::size_t states = kNumbersPerState * operation.parts;
    Answer(operation, now_us, reply[at].number, reply.subspan(at + 1, states));
    at += 1 + states;
  }
  return {};
}

void Batch::Answer(const Operation& operation, std::int64_t now_us, std::int64_t admitted,
                   std::span<const RespNode> states) {
  const TimePoint now{Micros{now_us}};
  const auto budget_of = [&](std::size_t part) {
    const auto numbers = states.subspan(kNumbersPerState * part, kNumbersPerState);
    return Budget(limits_[parts_[operation.first_part + part].limit], now, numbers[0].number,
                  numbers[1].number, numbers[2].number);
  };
  const auto decide = [&](Budget& budget, std::int64_t cost, bool allowed) {
    if (operation.action == Action::kDebit) {
      return budget.Take(std::min(cost, budget.Look(0).remaining), true);
    }
    Decision decision = budget.Take(cost, allowed);
    if (allowed) return decision;
    // Those that would have let it pass are not charged either, and say so.
    if (decision.allowed) decision = budget.Look(0);
    decision.delay = Micros{0};
    return decision;
  };
  const auto answer = [&](Request& request, const Decision& overall, bool allowed) {
    request.outcome = overall;
    if (overall.allowed != allowed) {
      request.outcome = std::unexpected(
          Error{ErrorCode::kStoreError, "the script and the library disagree on a decision"});
    }
  };

  if (operation.parts == 1) {
    Budget budget = budget_of(0);
    const std::int64_t cost = parts_[operation.first_part].cost;
    for (std::size_t number = operation.first_request; number != kNone;
         number = requests_[number].next) {
      Request& request = *requests_[number].request;
      const bool allowed = admitted-- > 0;
      const Decision decision = decide(budget, cost, allowed);
      std::ranges::fill(request.each, decision);
      answer(request, decision, allowed);
    }
    return;
  }

  // Requests over several states are not folded.
  Request& request = *requests_[operation.first_request].request;
  std::array<Decision, kChargesMax> of_part;
  for (std::size_t part = 0; part < operation.parts; ++part) {
    Budget budget = budget_of(part);
    of_part[part] = decide(budget, parts_[operation.first_part + part].cost, admitted > 0);
  }
  for (std::size_t i = 0; i < request.each.size(); ++i) {
    request.each[i] = of_part[part_of_charge_[operation.first_charge + i]];
  }
  answer(request, core::Combine(std::span(of_part).first(operation.parts)), admitted > 0);
}

void Batch::Fail(const Error& error) {
  for (const Asked& asked : requests_) asked.request->outcome = std::unexpected(error);
}

}  // namespace sluice::redis
