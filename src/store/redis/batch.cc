// SPDX-License-Identifier: Apache-2.0
#include "store/redis/batch.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/text.h"
#include "core/combine.h"
#include "core/seen.h"
#include "core/sound.h"
#include "redis/error_reply.h"
#include "store/redis/announcement.h"
#include "store/redis/state_key.h"
#include "store/validate.h"

namespace sluice::redis {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
constexpr std::array<std::string_view, 7> kStepNames = {"check", "hold",   "debit", "give",
                                                        "look",  "refund", "reset"};

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

// How many the script says of a state.
std::size_t NumbersOf(const Limit& limit) {
  const char kind = KindOf(limit);
  return kind == 'l' ? 4 : kind == 'c' ? 3 : 2;
}

// A state as the script returned it, moved on request by request.
class Budget {
 public:
  Budget(const Limit& limit, TimePoint now, std::span<const RespNode> numbers)
      : limit_(limit), now_(now) {
    const std::int64_t a = numbers[0].number;
    const std::int64_t b = numbers[1].number;
    switch (KindOf(limit)) {
      case 'b':
        if (b >= 0) state_ = core::BucketState{.level = a, .time = b};
        break;
      case 'w':
        if (b >= 0) state_ = core::WindowState{.start = a, .count = b};
        break;
      case 'c':
        if (b >= 0) {
          state_ = core::CounterState{.window = a, .previous = b, .current = numbers[2].number};
        }
        break;
      default:
        state_ = core::LogFacts{.now_us = std::max(now.time_since_epoch().count(), b),
                                .used = a,
                                .newest = b,
                                .oldest = numbers[2].number,
                                .leaves = numbers[3].number};
    }
  }

  // Whether the kernels may be asked about it.
  bool is_sound() const {
    return std::visit(
        [&]<typename Known>(const Known& state) {
          if constexpr (std::is_same_v<Known, std::monostate>) {
            return true;
          } else {
            return core::IsSound(limit_, state);
          }
        },
        state_);
  }

  Decision Look(std::int64_t cost) const { return Step(cost).first; }

  // Decides, and moves on if the request was admitted.
  Decision Take(std::int64_t cost, bool admitted) {
    auto [decision, next] = Step(cost);
    if (admitted && cost > 0) state_ = next;
    return decision;
  }

  // As it is now.
  SeenState See() const {
    switch (KindOf(limit_)) {
      case 'b':
        return core::See(limit_, std::get_if<core::BucketState>(&state_), now_);
      case 'w':
        return core::See(limit_, std::get_if<core::WindowState>(&state_), now_);
      case 'c':
        return core::See(limit_, std::get_if<core::CounterState>(&state_), now_);
      default:
        return core::See(std::get<core::LogFacts>(state_), now_);
    }
  }

  // When the last request took; see Receipt.
  std::int64_t When() const {
    const auto not_before = [&](std::int64_t ticks) {
      return std::max(now_.time_since_epoch().count(), ticks * limit_.tick().count());
    };
    if (const auto* bucket = std::get_if<core::BucketState>(&state_)) {
      return not_before(bucket->time);
    }
    if (const auto* window = std::get_if<core::WindowState>(&state_)) {
      return not_before(window->start);
    }
    if (const auto* counter = std::get_if<core::CounterState>(&state_)) {
      return not_before(counter->window * limit_.unit());
    }
    return std::get<core::LogFacts>(state_).newest;
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
        if (next.used == 0) next.oldest = next.now_us;
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

Batch::Step Batch::StepOf(const Task& task) {
  switch (task.kind) {
    case Task::Kind::kApply:
      if (task.request->action == Action::kDebit) return Step::kDebit;
      if (task.request->action == Action::kGive) return Step::kGive;
      if (task.request->action == Action::kReset) return Step::kReset;
      return task.receipts ? Step::kHold : Step::kCheck;
    case Task::Kind::kLook:
      return Step::kLook;
    case Task::Kind::kRefund:
      return Step::kRefund;
  }
  std::unreachable();
}

// The operation that a single charge can join: the last one on its state, if that asks for the
// same. What is given back, or was there before a reset, is told for each request.
Batch::Operation* Batch::Foldable(const std::string& key, Step step, const Part& part) {
  if (step == Step::kGive || step == Step::kReset) return nullptr;
  const auto last = last_operation_.find(key);
  if (last == last_operation_.end()) return nullptr;
  Operation& operation = operations_[last->second];
  const bool same =
      operation.step == step && operation.parts == 1 && parts_[operation.first_part] == part;
  return same ? &operation : nullptr;
}

void Batch::Append(Operation& operation, const Task& task) {
  const std::size_t number = requests_.size();
  requests_.push_back({task, kNone});
  if (operation.times++ == 0) {
    operation.first_request = number;
  } else {
    requests_[operation.last_request].next = number;
  }
  operation.last_request = number;
}

void Batch::Push(const Task& task, std::span<const Part> parts, std::span<std::string> keys,
                 std::span<const std::uint8_t> part_of_charge) {
  now_ = task.request->now;
  Operation operation{.step = StepOf(task),
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
  Append(operation, task);
  operations_.push_back(operation);
  previous_ = nullptr;
}

Batch::Added Batch::Add(const Task& task, std::string_view prefix, std::size_t operations_max) {
  Request& request = *task.request;
  if (!empty() && request.now != now_) return Added::kFull;
  const bool full = operations_.size() >= operations_max;
  if (task.kind == Task::Kind::kRefund) {
    return full || keys_.size() + task.receipts->size() > kKeysMax ? Added::kFull : AddRefund(task);
  }
  const auto charges = request.charges;
  if (const auto invalid = FirstInvalid(request)) {
    request.outcome = std::unexpected(*invalid);
    return Added::kAnswered;
  }
  if (charges.size() > 1) {
    return full || keys_.size() + charges.size() > kKeysMax ? Added::kFull : AddGroup(task, prefix);
  }

  const Charge& charge = charges.front();
  const Step step = StepOf(task);
  // A hot key comes many times in a row; its state need not be looked up each time.
  if (previous_ && step != Step::kGive && step != Step::kReset && operations_.back().step == step &&
      IsSame(*previous_, charge)) {
    Append(operations_.back(), task);
    return Added::kTaken;
  }
  const Part part{.limit = LimitNumber(*charge.limit), .cost = CostOf(charge, request.action)};
  std::string key = StateKey(prefix, charge);
  if (Operation* same = Foldable(key, step, part)) {
    Append(*same, task);
    return Added::kTaken;
  }
  if (full || keys_.size() == kKeysMax) return Added::kFull;
  constexpr std::uint8_t kFirstPart = 0;
  Push(task, {&part, 1}, {&key, 1}, {&kFirstPart, 1});
  previous_ = &charge;
  return Added::kTaken;
}

Batch::Added Batch::AddGroup(const Task& task, std::string_view prefix) {
  Request& request = *task.request;
  const auto refuse = [&](Error error) {
    request.outcome = std::unexpected(std::move(error));
    return Added::kAnswered;
  };
  // Charges of one state add up.
  const auto charges = request.charges;
  std::vector<Part> parts;
  std::vector<std::string> keys;
  std::vector<std::size_t> asked;  // Which charge brought each part.
  std::vector<std::uint8_t> part_of_charge;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    std::string key = StateKey(prefix, charges[i]);
    const auto same = std::ranges::find(keys, key);
    part_of_charge.push_back(static_cast<std::uint8_t>(same - keys.begin()));
    if (same == keys.end()) {
      parts.push_back(
          {.limit = LimitNumber(*charges[i].limit), .cost = CostOf(charges[i], request.action)});
      keys.push_back(std::move(key));
      asked.push_back(i);
      continue;
    }
    const std::size_t part = part_of_charge.back();
    if (*charges[asked[part]].limit != *charges[i].limit) {
      return refuse(TwoLimitsUnderOneName(charges[asked[part]], charges[i]));
    }
    parts[part].cost += CostOf(charges[i], request.action);
    const std::int64_t most =
        request.action == Action::kGive ? core::kExactMax : charges[i].limit->amount();
    if (parts[part].cost <= most) continue;
    if (request.action == Action::kCheck) {
      return refuse(InvalidCost(charges[i], parts[part].cost));
    }
    parts[part].cost = most;
  }
  if (parts.size() == 1) {
    // After all one state, so that no state occurs twice in a run of single ones.
    if (Operation* same = Foldable(keys.front(), StepOf(task), parts.front())) {
      Append(*same, task);
      return Added::kTaken;
    }
  }
  Push(task, parts, keys, part_of_charge);
  return Added::kTaken;
}

Batch::Added Batch::AddRefund(const Task& task) {
  std::vector<Part> parts;
  std::vector<std::string> keys;
  for (const Receipt& receipt : *task.receipts) {
    parts.push_back(
        {.limit = LimitNumber(receipt.limit), .cost = receipt.units, .when = receipt.when});
    keys.push_back(receipt.key);
  }
  Push(task, parts, keys, {});
  return Added::kTaken;
}

std::span<const Batch::Part> Batch::PartsOf(const Operation& operation) const {
  return std::span(parts_).subspan(operation.first_part, operation.parts);
}

// The first that takes from this part.
const Charge& Batch::ChargeOf(const Operation& operation, const Task& task,
                              std::size_t part) const {
  const auto part_of = std::span(part_of_charge_).subspan(operation.first_charge);
  const auto charge = std::ranges::find(part_of, part) - part_of.begin();
  return task.request->charges[static_cast<std::size_t>(charge)];
}

const Charge* Batch::AnnouncedCharge(const Operation& operation, std::size_t part) const {
  const Task& task = requests_[operation.first_request].task;
  if (operation.step == Step::kRefund) return (*task.receipts)[part].charge;
  return &ChargeOf(operation, task, part);
}

void Batch::AppendCommand(std::string& out, std::string_view sha,
                          std::string_view announce_prefix) const {
  // Twice over the same: the header says how many there are.
  std::size_t count = 0;
  PutArguments(sha, announce_prefix, [&](const auto&) { ++count; });
  AppendArrayHeader(out, count);
  PutArguments(sha, announce_prefix, [&]<typename Argument>(const Argument& argument) {
    if constexpr (std::is_integral_v<Argument>) {
      std::array<char, 20> digits;
      const char* const end =
          std::to_chars(digits.data(), digits.data() + digits.size(), argument).ptr;
      AppendBulkString(out, std::string_view(digits.data(), end));
    } else {
      AppendBulkString(out, argument);
    }
  });
}

template <typename Put>
void Batch::PutArguments(std::string_view sha, std::string_view announce_prefix, Put put) const {
  const auto same_shape = [&](const Operation& a, const Operation& b) {
    return a.step == b.step && !Announces(a.step) && a.times == b.times &&
           std::ranges::equal(PartsOf(a), PartsOf(b));
  };
  const std::string_view none;
  put(std::string_view("EVALSHA"));
  put(sha);
  put(keys_.size());
  for (const std::string& key : keys_) put(key);
  now_ ? put(now_->time_since_epoch().count()) : put(none);
  put(limits_.size());
  for (std::size_t i = 0; i < limits_.size(); ++i) {
    put(signatures_[i]);
    put(limits_[i].amount());
    put(limits_[i].unit());
    put(limits_[i].rate());
    put(limits_[i].tick().count());
  }
  for (std::size_t begin = 0; begin < operations_.size();) {
    const Operation& operation = operations_[begin];
    std::size_t end = begin + 1;
    while (end < operations_.size() && same_shape(operation, operations_[end])) ++end;
    const Step step = operation.step;
    put(kStepNames[static_cast<std::size_t>(step)]);
    put(end - begin);
    put(operation.parts);
    put(operation.times);
    for (std::size_t i = 0; i < operation.parts; ++i) {
      const Part& part = PartsOf(operation)[i];
      put(part.limit + 1);
      if (step != Step::kReset) put(part.cost);
      if (step == Step::kRefund) put(part.when);
      if (!Announces(step)) continue;
      const bool announces = !announce_prefix.empty() && (step == Step::kReset || part.cost > 0);
      announces ? put(AnnouncementChannel(announce_prefix)) : put(none);
      announces ? put(AnnouncementOf(AnnouncedCharge(operation, i))) : put(none);
    }
    begin = end;
  }
}

Expected<void> Batch::Decode(std::span<const RespNode> reply) {
  const auto unexpected_reply = [] {
    return std::unexpected(Error{ErrorCode::kStoreError, "the script's reply is not as expected"});
  };
  const auto numbers_of = [&](const Operation& operation) {
    std::size_t numbers = 0;
    for (const Part& part : PartsOf(operation)) numbers += NumbersOf(limits_[part.limit]);
    return TellsStates(operation.step) ? numbers : 0;
  };
  std::size_t numbers = 1;
  for (const Operation& operation : operations_) numbers += 1 + numbers_of(operation);
  if (reply.size() != numbers + 1 || reply.front().type != RespType::kArray) {
    return unexpected_reply();
  }
  reply = reply.subspan(1);
  const auto is_number = [](const RespNode& node) { return node.type == RespType::kInteger; };
  const std::int64_t now_us = reply.front().number;
  if (!is_number(reply.front()) || !core::InRange(now_us, kTimeMax.time_since_epoch().count())) {
    return unexpected_reply();
  }
  // All of it, before the first outcome is set.
  std::size_t at = 1;
  for (const Operation& operation : operations_) {
    const RespNode& status = reply[at];
    const std::size_t states = numbers_of(operation);
    const bool known = is_number(status)
                           ? status.number >= -static_cast<std::int64_t>(operation.parts)
                           : status.type == RespType::kBulkString;
    if (!known || !std::ranges::all_of(reply.subspan(at + 1, states), is_number)) {
      return unexpected_reply();
    }
    at += 1 + states;
  }
  at = 1;
  for (const Operation& operation : operations_) {
    const RespNode& status = reply[at];
    const std::size_t states = numbers_of(operation);
    if (!is_number(status)) {
      FailOperation(operation, ErrorOf(status.text));
    } else if (status.number < 0) {
      FailOperation(operation, Foreign(operation, static_cast<std::size_t>(-status.number - 1)));
    } else {
      Answer(operation, now_us, status.number, reply.subspan(at + 1, states));
    }
    at += 1 + states;
  }
  return {};
}

// What the script, or the library after it, cannot take for a state.
Error Batch::Foreign(const Operation& operation, std::size_t part) const {
  return {ErrorCode::kForeignState,
          text::Cat("the Redis key ", text::Quote(keys_[operation.first_part + part]),
                    " holds something that is not Sluice's; remove it, or use another prefix")};
}

void Batch::FailOperation(const Operation& operation, const Error& error) {
  for (std::size_t number = operation.first_request; number != kNone;
       number = requests_[number].next) {
    requests_[number].task.request->outcome = std::unexpected(error);
  }
}

// Its budgets are untouched.
void Batch::AnswerReset(const Operation& operation, TimePoint now, bool existed) {
  constexpr RespNode kZero{.type = RespType::kInteger, .number = 0, .text = {}};
  constexpr RespNode kAbsent{.type = RespType::kInteger, .number = -1, .text = {}};
  constexpr std::array kUntouched = {kZero, kAbsent, kZero, kZero};
  Request& request = *requests_[operation.first_request].task.request;
  std::array<Decision, kChargesMax> each;
  for (std::size_t i = 0; i < request.charges.size(); ++i) {
    const Budget budget(*request.charges[i].limit, now, kUntouched);
    each[i] = budget.Look(0);
    if (!request.seen.empty()) request.seen[i] = budget.See();
  }
  const auto all = std::span(each).first(request.charges.size());
  std::ranges::copy(all.first(request.each.size()), request.each.begin());
  request.existed = existed;
  request.outcome = core::Combine(all);
}

void Batch::Answer(const Operation& operation, std::int64_t now_us, std::int64_t admitted,
                   std::span<const RespNode> states) {
  const TimePoint now{Micros{now_us}};
  auto next_budget = [&, at = std::size_t{0}](std::size_t part) mutable {
    const Limit& limit = limits_[parts_[operation.first_part + part].limit];
    const auto numbers = states.subspan(at, NumbersOf(limit));
    at += numbers.size();
    return Budget(limit, now, numbers);
  };
  const Step step = operation.step;
  const auto decide = [&](Budget& budget, const Task& task, std::size_t part, bool allowed) {
    const std::int64_t cost = parts_[part].cost;
    if (step == Step::kDebit) return budget.Take(std::min(cost, budget.Look(0).remaining), true);
    if (step == Step::kGive) return budget.Look(0);  // It is what was left.
    const bool takes = allowed && step != Step::kLook;
    Decision decision = budget.Take(cost, takes);
    if (takes && cost > 0 && task.receipts) {
      task.receipts->push_back({.key = keys_[part],
                                .limit = limits_[parts_[part].limit],
                                .units = cost,
                                .when = budget.When(),
                                .charge = &ChargeOf(operation, task, part - operation.first_part)});
    }
    if (takes) return decision;
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

  if (step == Step::kReset) return AnswerReset(operation, now, admitted > 0);
  if (step == Step::kRefund) {
    requests_[operation.first_request].task.request->outcome = Decision{.allowed = admitted > 0};
    return;
  }
  if (operation.parts == 1) {
    Budget budget = next_budget(0);
    if (!budget.is_sound()) return FailOperation(operation, Foreign(operation, 0));
    for (std::size_t number = operation.first_request; number != kNone;
         number = requests_[number].next) {
      const Task& task = requests_[number].task;
      const bool allowed = step == Step::kLook ? admitted > 0 : admitted-- > 0;
      const Decision decision = decide(budget, task, operation.first_part, allowed);
      std::ranges::fill(task.request->each, decision);
      if (!task.request->seen.empty()) std::ranges::fill(task.request->seen, budget.See());
      answer(*task.request, decision, allowed);
    }
    return;
  }

  // Requests over several states are not folded.
  const Task& task = requests_[operation.first_request].task;
  std::array<Decision, kChargesMax> of_part;
  std::array<SeenState, kChargesMax> seen;
  for (std::size_t part = 0; part < operation.parts; ++part) {
    Budget budget = next_budget(part);
    if (!budget.is_sound()) return FailOperation(operation, Foreign(operation, part));
    of_part[part] = decide(budget, task, operation.first_part + part, admitted > 0);
    seen[part] = budget.See();
  }
  const auto part_of = std::span(part_of_charge_).subspan(operation.first_charge);
  for (std::size_t i = 0; i < task.request->each.size(); ++i) {
    task.request->each[i] = of_part[part_of[i]];
  }
  for (std::size_t i = 0; i < task.request->seen.size(); ++i) {
    task.request->seen[i] = seen[part_of[i]];
  }
  answer(*task.request, core::Combine(std::span(of_part).first(operation.parts)), admitted > 0);
}

void Batch::Fail(const Error& error) {
  for (const Asked& asked : requests_) asked.task.request->outcome = std::unexpected(error);
}

}  // namespace sluice::redis
