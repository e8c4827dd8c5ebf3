// SPDX-License-Identifier: Apache-2.0
#include "resp/batch.h"

#include <algorithm>

#include "core/seen.h"
#include "telemetry/log.h"

namespace sluice::resp {
namespace {

// Approximate sizes of replies, to bound what is held for a peer that does not read.
constexpr std::size_t kIntegersBytes = 48;
constexpr std::size_t kFieldsBytes = 256;
constexpr std::size_t kDetailBytes = 16 << 10;

// Of the part of a hold's id that a budget of this key and name takes, in base64.
std::size_t TicketBytes(std::string_view key, std::string_view name) {
  constexpr std::size_t kNumbersBytes = 64;
  return (key.size() + name.size()) * 4 / 3 + kNumbersBytes;
}

}  // namespace

void Batch::Answered() {
  if (!steps_.empty() && steps_.back().kind == Kind::kText) {
    steps_.back().size += text_.size() - text_answered_;
  } else {
    steps_.push_back({.kind = Kind::kText,
                      .dialect = {},
                      .protocol = {},
                      .detail = false,
                      .size = text_.size() - text_answered_});
  }
  text_answered_ = text_.size();
}

void Batch::AddCheck(const Check& check, Dialect dialect, Protocol protocol) {
  Ask(check, check.cost);
  steps_.push_back(
      {.kind = Kind::kCheck, .dialect = dialect, .protocol = protocol, .detail = false, .size = 1});
}

void Batch::AddNever(const Check& check, Dialect dialect, Protocol protocol) {
  Ask(check, 0);
  steps_.push_back(
      {.kind = Kind::kNever, .dialect = dialect, .protocol = protocol, .detail = false, .size = 1});
}

void Batch::AddGive(const Check& check, Protocol protocol) {
  Ask(check, check.cost, Action::kGive);
  steps_.push_back(
      {.kind = Kind::kGive, .dialect = {}, .protocol = protocol, .detail = false, .size = 1});
}

void Batch::Ask(const Check& check, std::int64_t cost, Action action) {
  asked_.push_back({.limit = check.limit,
                    .said = check.said,
                    .charge = {.key = check.key,
                               .limit = nullptr,
                               .name = check.name,
                               .cost = cost,
                               .on_store_failure = check.on_store_failure},
                    .action = action});
  reply_bytes_ += check.said.empty() ? kIntegersBytes : kFieldsBytes;
}

service::RuleCheck& Batch::NextRules() {
  if (rules_count_ == rules_.size()) {
    rules_.push_back(std::make_unique<service::RuleCheck>(engine_.catalog()));
  } else {
    rules_[rules_count_]->Reuse(engine_.catalog());
  }
  return *rules_[rules_count_];
}

void Batch::AddRules(bool detail, Protocol protocol) {
  AddRulesStep(Kind::kRules, detail, protocol);
}

void Batch::AddRulesGive(Protocol protocol) { AddRulesStep(Kind::kRulesGive, false, protocol); }

void Batch::AddRulesHold(bool detail, Protocol protocol) {
  for (const Charge& charge : rules_[rules_count_]->charges()) {
    reply_bytes_ += TicketBytes(charge.key, charge.name);
  }
  AddRulesStep(Kind::kRulesHold, detail, protocol);
}

void Batch::AddRulesStep(Kind kind, bool detail, Protocol protocol) {
  ++rules_count_;
  reply_bytes_ += detail ? kDetailBytes : kFieldsBytes;
  steps_.push_back(
      {.kind = kind, .dialect = {}, .protocol = protocol, .detail = detail, .size = 1});
}

void Batch::AddHold(std::unique_ptr<service::LimitHold> hold, std::string_view said,
                    Protocol protocol) {
  reply_bytes_ += kFieldsBytes + TicketBytes(hold->part().key, hold->part().name);
  holds_.push_back({.call = std::move(hold), .said = said});
  steps_.push_back(
      {.kind = Kind::kHold, .dialect = {}, .protocol = protocol, .detail = false, .size = 1});
}

void Batch::AddHoldChange(std::unique_ptr<service::HoldCall> call, HoldChange change,
                          Protocol protocol) {
  reply_bytes_ += kFieldsBytes;
  for (const service::HoldTicket::Part& part : call->ticket().parts) {
    reply_bytes_ += kFieldsBytes + part.key.size() + part.name.size();
  }
  changes_.push_back({.call = std::move(call), .change = change});
  steps_.push_back(
      {.kind = Kind::kHoldChange, .dialect = {}, .protocol = protocol, .detail = false, .size = 1});
}

void Batch::AddReset(const Limit& limit, std::string_view name,
                     std::span<const std::string_view> keys) {
  for (const std::string_view key : keys) {
    asked_.push_back({.limit = limit,
                      .said = {},
                      .charge = {.key = key, .limit = nullptr, .name = name},
                      .action = Action::kReset});
  }
  steps_.push_back(
      {.kind = Kind::kReset, .dialect = {}, .protocol = {}, .detail = false, .size = keys.size()});
}

// The keys belong to the check, which stays until Write.
void Batch::AddRulesReset() {
  const std::span<const Charge> charges = rules_[rules_count_++]->charges();
  for (const Charge& charge : charges) {
    asked_.push_back(
        {.limit = *charge.limit, .said = {}, .charge = charge, .action = Action::kReset});
  }
  steps_.push_back({.kind = Kind::kRulesReset,
                    .dialect = {},
                    .protocol = {},
                    .detail = false,
                    .size = charges.size()});
}

bool Batch::Run(std::move_only_function<void()>& ready) {
  ready_ = &ready;
  if (next_step_ == 0) Link();
  while (next_step_ < steps_.size()) {
    // One more than there is to decide, so that `ready` is not called from within.
    undecided_ = 1;
    BeginStage();
    if (--undecided_ > 0) return false;
  }
  return true;
}

// Only now do the vectors stop growing.
void Batch::Link() {
  seen_.resize(static_cast<std::size_t>(
      std::ranges::count_if(asked_, [](const Asked& asked) { return asked.foresees(); })));
  auto seen = seen_.begin();
  for (Asked& asked : asked_) {
    asked.charge.limit = &asked.limit;
    requests_.push_back({.charges = {&asked.charge, 1}, .action = asked.action});
    if (asked.foresees()) requests_.back().seen = {&*seen++, 1};
  }
}

// In the order of the commands, which is the order in which the store decides on one state;
// neighbours of one kind are asked together. A reset waits for rules that were asked before it:
// over several slots of a Cluster they are decided in two steps, and it must not come between. What
// comes after a hold under rules waits for it if the store will be asked again for its shadows.
void Batch::BeginStage() {
  std::size_t requests = 0;
  std::size_t rules = 0;
  bool any_rules = false;
  const auto begin = [&] {
    if (rules > 0) BeginRules(std::exchange(rules, 0));
    BeginRequests(std::exchange(requests, 0));
  };
  for (; next_step_ < steps_.size(); ++next_step_) {
    const Step& step = steps_[next_step_];
    const bool resets = step.kind == Kind::kReset || step.kind == Kind::kRulesReset;
    if (resets && any_rules) break;
    switch (step.kind) {
      case Kind::kText:
        break;
      case Kind::kRulesReset:
        ++next_rules_;
        [[fallthrough]];
      case Kind::kCheck:
      case Kind::kNever:
      case Kind::kGive:
      case Kind::kReset:
        if (rules > 0) BeginRules(std::exchange(rules, 0));
        requests += step.size;
        break;
      case Kind::kRules:
      case Kind::kRulesGive:
        BeginRequests(std::exchange(requests, 0));
        ++rules;
        any_rules = true;
        break;
      case Kind::kRulesHold: {
        begin();
        const bool asks_twice = rules_[next_rules_]->asks_twice();
        BeginRules(1);
        any_rules = true;
        if (!asks_twice) break;
        ++next_step_;
        return;
      }
      case Kind::kHold:
        begin();
        BeginHold();
        break;
      case Kind::kHoldChange:
        begin();
        BeginHoldChange();
        break;
    }
  }
  begin();
}

void Batch::BeginRequests(std::size_t count) {
  if (count == 0) return;
  const std::span<Request> run = std::span(requests_).subspan(next_request_, count);
  next_request_ += count;
  ++undecided_;
  engine_.Apply(run, [this] { Decided(); });
}

void Batch::BeginRules(std::size_t count) {
  ++undecided_;
  if (count == 1) return rules_[next_rules_++]->Run(engine_, [this] { Decided(); });
  std::vector<service::RuleCheck*> run;
  for (; count > 0; --count) run.push_back(rules_[next_rules_++].get());
  service::RuleCheck::RunAll(engine_, std::move(run), [this] { Decided(); });
}

void Batch::BeginHold() {
  ++undecided_;
  holds_[next_hold_++].call->Run(engine_, [this] { Decided(); });
}

void Batch::BeginHoldChange() {
  ++undecided_;
  changes_[next_change_++].call->Run(engine_, [this] { Decided(); });
}

void Batch::Decided() {
  if (--undecided_ == 0) (*ready_)();
}

void Batch::Write(std::string& out, std::int64_t connection) {
  std::size_t text = 0;
  std::size_t request = 0;
  std::size_t rules = 0;
  auto hold = holds_.cbegin();
  auto change = changes_.cbegin();
  const bool logs = engine_.logger().Enabled(telemetry::LogLevel::kDebug);
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kText:
        out.append(text_, text, step.size);
        text += step.size;
        break;
      case Kind::kCheck:
      case Kind::kNever:
        if (logs) LogDenied(step, request, connection);
        WriteCheck(out, step, request++);
        break;
      case Kind::kGive:
        WriteGive(out, step, request++);
        break;
      case Kind::kRules:
        service::LogDenial(engine_.logger(), *rules_[rules], {"connection", connection});
        WriteRules(Writer(out, step), *rules_[rules++], step.detail);
        break;
      case Kind::kRulesHold:
        service::LogDenial(engine_.logger(), *rules_[rules], {"connection", connection});
        WriteRulesHold(Writer(out, step), *rules_[rules++], step.detail);
        break;
      case Kind::kRulesGive:
        WriteRulesGiven(Writer(out, step), *rules_[rules++]);
        break;
      case Kind::kHold:
        WriteHold(Writer(out, step), *hold++, connection);
        break;
      case Kind::kHoldChange:
        WriteHoldChange(Writer(out, step), *change->call, change->change);
        ++change;
        break;
      case Kind::kRulesReset:
        ++rules;
        [[fallthrough]];
      case Kind::kReset:
        WriteReset(out, std::span(requests_).subspan(request, step.size));
        request += step.size;
        break;
    }
  }
  Clear();
}

void Batch::LogDenied(const Step& step, std::size_t request, std::int64_t connection) const {
  const Asked& asked = asked_[request];
  const Expected<Decision>& outcome = requests_[request].outcome;
  if (!outcome || (outcome->allowed && step.kind == Kind::kCheck)) return;
  LogDenial(asked.said.empty() ? asked.charge.name : asked.said, asked.charge.key, connection);
}

void Batch::LogDenial(std::string_view limit, std::string_view key, std::int64_t connection) const {
  engine_.logger().Debug("denied by a limit",
                         {{"limit", limit}, {"key", key}, {"connection", connection}});
}

void Batch::WriteCheck(std::string& out, const Step& step, std::size_t index) const {
  const Request& request = requests_[index];
  ReplyWriter reply = Writer(out, step);
  if (!request.outcome) {
    reply.Error(request.outcome.error());
  } else if (step.dialect == Dialect::kFields) {
    const Asked& asked = asked_[index];
    const Decision decision =
        asked.foresees() ? core::Foresee(asked.limit, *request.outcome, request.seen.front(), 1)
                         : *request.outcome;
    WriteFields(reply, decision, request.source, asked.limit, asked.said);
  } else {
    if (step.kind == Kind::kNever) engine_.CountNeverGranted(asked_[index].charge);
    WriteIntegers(out, *request.outcome, step.dialect,
                  step.kind == Kind::kNever ? Grant::kNever : Grant::kDecided);
  }
}

void Batch::WriteGive(std::string& out, const Step& step, std::size_t index) const {
  const Request& request = requests_[index];
  ReplyWriter reply = Writer(out, step);
  if (!request.outcome) return reply.Error(request.outcome.error());
  WriteGiven(reply, *request.outcome, request.source);
}

void Batch::WriteRulesHold(ReplyWriter reply, const service::RuleCheck& check, bool detail) const {
  if (!check.decision() || check.refuses()) {
    return WriteRulesHeld(reply, check, detail, std::nullopt);
  }
  const auto made = service::CountMade(engine_, check.catalog(), check.MakeTicket());
  if (!made) return reply.Error(made.error());
  WriteRulesHeld(reply, check, detail, *made);
}

void Batch::WriteHold(ReplyWriter reply, const Hold& hold, std::int64_t connection) const {
  const service::LimitHold& call = *hold.call;
  if (!call.decision()) return reply.Error(call.decision().error());
  if (!call.decision()->allowed) {
    LogDenial(hold.said, call.part().key, connection);
    return WriteHeld(reply, call, hold.said, std::nullopt);
  }
  const auto made = service::CountMade(engine_, call.catalog(), call.MakeTicket());
  if (!made) return reply.Error(made.error());
  WriteHeld(reply, call, hold.said, *made);
}

void Batch::WriteReset(std::string& out, std::span<const Request> resets) const {
  ReplyWriter reply(out, Protocol::kResp2, engine_.metrics());
  for (const Request& reset : resets) {
    if (!reset.outcome) return reply.Error(reset.outcome.error());
  }
  reply.Integer(std::ranges::count_if(resets, &Request::existed));
}

void Batch::Clear() {
  steps_.clear();
  text_.clear();
  text_answered_ = 0;
  reply_bytes_ = 0;
  asked_.clear();
  requests_.clear();
  seen_.clear();
  // Must not keep alive a catalog that was replaced meanwhile.
  for (std::size_t i = 0; i < rules_count_; ++i) rules_[i]->Reuse(nullptr);
  rules_count_ = 0;
  next_step_ = 0;
  next_request_ = 0;
  next_rules_ = 0;
  holds_.clear();
  changes_.clear();
  next_hold_ = 0;
  next_change_ = 0;
}

}  // namespace sluice::resp
