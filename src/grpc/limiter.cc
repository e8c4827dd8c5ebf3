// SPDX-License-Identifier: Apache-2.0
#include "grpc/limiter.h"

#include <sluice/v1/limiter.pb.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/hex.h"
#include "base/utf8.h"
#include "core/algorithms.h"
#include "core/seen.h"
#include "grpc/duration.h"
#include "grpc/limiter_request.h"
#include "net/address.h"
#include "service/hold_call.h"
#include "service/limit_hold.h"
#include "service/rule_check.h"

namespace sluice::grpc {
namespace {

using service::Engine;
using service::HoldCall;
using service::RuleCheck;
using Type = CheckMessage::Type;
using Made = std::expected<std::unique_ptr<LimiterCall>, Status>;

std::unexpected<Status> Refuse(Status status) { return std::unexpected(std::move(status)); }
std::unexpected<Status> Refuse(const Error& error) { return Refuse(StatusOf(error)); }

// Keys are any bytes, and the texts of protobuf are UTF-8. No two keys become alike, as in
// AppendJsonBytes.
std::string AsUtf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    std::size_t length = text::Utf8Length(bytes);
    if (length == 0 || bytes.starts_with(text::kReplacementCharacter)) {
      length = 1;
      text += text::kReplacementCharacter;
      text::AppendHex(text, static_cast<unsigned char>(bytes.front()), text::kUpperHex);
    } else {
      text += bytes.substr(0, length);
    }
    bytes.remove_prefix(length);
  }
  return text;
}

v1::Source SourceOf(Source source) {
  switch (source) {
    case Source::kStore:
      return v1::SOURCE_STORE;
    case Source::kDenyCache:
      return v1::SOURCE_DENY_CACHE;
    case Source::kLocal:
      return v1::SOURCE_LOCAL;
    case Source::kOverload:
      return v1::SOURCE_OVERLOAD;
    case Source::kFailOpen:
      return v1::SOURCE_FAIL_OPEN;
  }
  std::unreachable();
}

// The numbers that all answers have.
template <typename Response>
void PutNumbers(Response& response, const Decision& decision) {
  response.set_limit(decision.limit);
  response.set_remaining(decision.remaining);
  response.set_held(decision.held);
  if (decision.reset_after > Micros{0}) {
    Set(*response.mutable_reset_after(), decision.reset_after);
  }
}

template <typename Response>
void PutVerdict(Response& response, const Decision& decision) {
  response.set_allowed(decision.allowed);
  PutNumbers(response, decision);
  if (decision.retry_after > Micros{0}) {
    Set(*response.mutable_retry_after(), decision.retry_after);
  }
}

void PutCheck(v1::CheckResponse& response, const Decision& decision, bool limited, Source source) {
  PutVerdict(response, decision);
  if (decision.delay > Micros{0}) Set(*response.mutable_delay(), decision.delay);
  if (!limited) {
    response.clear_limit();
    response.clear_remaining();
  }
  response.set_source(SourceOf(source));
}

void PutBands(v1::CheckResponse& response, const RuleCheck& check) {
  for (const RuleCheck::Outcome& outcome : check.outcomes()) {
    for (std::size_t i = 0; i < outcome.bands.size(); ++i) {
      v1::Band& band = *response.add_bands();
      band.set_rule(outcome.selected->rule->id);
      band.set_label(outcome.selected->bands[i].label);
      band.set_shadow(outcome.selected->rule->shadow);
      PutVerdict(band, outcome.bands[i]);
    }
  }
}

// Of a check that was decided.
void PutCheck(v1::CheckResponse& response, const RuleCheck& check, bool detail) {
  PutCheck(response, *check.decision(), check.limited(), check.source());
  if (const rules::Rule* const rule = check.denied_by()) {
    response.mutable_denied_by()->set_rule(rule->id);
    if (check.denied_band()) response.mutable_denied_by()->set_band(check.denied_band()->label);
  }
  if (detail) PutBands(response, check);
}

void PutHold(v1::HoldResponse& response, service::MadeHold made) {
  response.set_id(std::move(made.id));
  response.set_holds(made.holds);
  if (made.holds) Set(*response.mutable_expires_at(), made.expires);
}

void PutGiven(v1::GiveResponse& response, const Decision& decision, bool limited, Source source) {
  PutNumbers(response, decision);
  if (!limited) {
    response.clear_limit();
    response.clear_remaining();
  }
  response.set_source(SourceOf(source));
}

// A check of one limit and key, or what gives back to them.
class LimitCheck {
 public:
  LimitCheck(const service::ChosenLimit& limit, const CheckMessage& message,
             OnStoreFailure on_store_failure)
      : limit_(limit.limit),
        name_(limit.name),
        key_(message.key),
        charge_{.key = key_,
                .limit = &limit_,
                .name = name_,
                .cost = message.permits,
                .on_store_failure = on_store_failure} {}
  LimitCheck(const LimitCheck&) = delete;
  LimitCheck& operator=(const LimitCheck&) = delete;

  static std::expected<std::unique_ptr<LimitCheck>, Status> Make(const Engine& engine,
                                                                 const LimiterOptions& options,
                                                                 const CheckMessage& message) {
    const auto limit = service::FindLimit(*engine.catalog(), message.limit);
    if (!limit) return Refuse(limit.error());
    return std::make_unique<LimitCheck>(*limit, message, options.on_store_failure);
  }

  // What to ask; points into this.
  Request Ask(Action action) {
    Request request{.charges = {&charge_, 1}, .action = action};
    if (looks(action)) request.seen = {&seen_, 1};
    return request;
  }

  // A look is answered with what a request of 1 would get.
  Decision Told(const Request& decided) const {
    return looks(decided.action) ? core::Foresee(limit_, *decided.outcome, seen_, 1)
                                 : *decided.outcome;
  }

 private:
  bool looks(Action action) const { return action == Action::kCheck && charge_.cost == 0; }

  const Limit limit_;
  const std::string name_;
  const std::string key_;
  const Charge charge_;
  SeenState seen_;
};

// Prepares a check, a hold or giving back by rules.
std::expected<std::unique_ptr<RuleCheck>, Status> PrepareRules(const Engine& engine,
                                                               const LimiterOptions& options,
                                                               CheckMessage& message, Type type) {
  const std::string ip = net::ClientKey(message.context.ip, options.ipv6_prefix);
  message.context.ip = ip;
  auto check = std::make_unique<RuleCheck>(engine.catalog());
  const auto prepare = [&] {
    switch (type) {
      case Type::kCheck:
        return check->Prepare(message.rule_set, message.context, message.permits);
      case Type::kHold:
        return check->PrepareHold(message.rule_set, message.context, message.permits, message.wish);
      case Type::kGive:
        return check->PrepareGive(message.rule_set, message.context, message.permits);
    }
    std::unreachable();
  };
  if (const auto ready = prepare(); !ready) return Refuse(ready.error());
  return check;
}

void LogDenial(const Engine& engine, const RuleCheck& check, std::string_view request_id) {
  service::LogDenial(engine.logger(), check, {"request_id", request_id});
}

// Check, Hold or Give by rules.
class RulesCall final : public LimiterCall {
 public:
  RulesCall(std::unique_ptr<RuleCheck> check, Type type, bool detail, std::string_view request_id)
      : check_(std::move(check)), type_(type), detail_(detail), request_id_(request_id) {}

 private:
  void Decide(std::unique_ptr<LimiterCall> self, Engine& engine, Done done) override {
    check_->Run(engine, [this, &engine, self = std::move(self), done = std::move(done)]() mutable {
      done(Answer(engine));
    });
  }

  LimiterAnswer Answer(Engine& engine) const {
    if (!check_->decision()) return Refuse(check_->decision().error());
    if (type_ == Type::kGive) {
      v1::GiveResponse response;
      // A rule that refuses without a limit has no numbers.
      PutGiven(response, *check_->decision(), check_->limited() && check_->decision()->allowed,
               check_->source());
      return response.SerializeAsString();
    }
    LogDenial(engine, *check_, request_id_);
    if (type_ == Type::kCheck) {
      v1::CheckResponse response;
      PutCheck(response, *check_, detail_);
      return response.SerializeAsString();
    }
    v1::HoldResponse response;
    PutCheck(*response.mutable_check(), *check_, detail_);
    if (!check_->refuses()) {
      auto made = service::CountMade(engine, check_->catalog(), check_->MakeTicket());
      if (!made) return Refuse(made.error());
      PutHold(response, *std::move(made));
    }
    return response.SerializeAsString();
  }

  const std::unique_ptr<RuleCheck> check_;
  const Type type_;
  const bool detail_;
  const std::string request_id_;
};

// Check or Give of one limit and key.
class LimitCall final : public LimiterCall {
 public:
  LimitCall(std::unique_ptr<LimitCheck> check, Action action)
      : check_(std::move(check)), request_(check_->Ask(action)) {}

 private:
  void Decide(std::unique_ptr<LimiterCall> self, Engine& engine, Done done) override {
    engine.Apply({&request_, 1}, [this, self = std::move(self), done = std::move(done)]() mutable {
      done(Answer());
    });
  }

  LimiterAnswer Answer() const {
    if (!request_.outcome) return Refuse(request_.outcome.error());
    if (request_.action == Action::kGive) {
      v1::GiveResponse response;
      PutGiven(response, *request_.outcome, true, request_.source);
      return response.SerializeAsString();
    }
    v1::CheckResponse response;
    PutCheck(response, check_->Told(request_), true, request_.source);
    return response.SerializeAsString();
  }

  const std::unique_ptr<LimitCheck> check_;
  Request request_;
};

// Hold on one limit and key.
class LimitHoldCall final : public LimiterCall {
 public:
  explicit LimitHoldCall(const Engine& engine) : hold_(engine.catalog()) {}

  Expected<void> Prepare(const CheckMessage& message, OnStoreFailure on_store_failure) {
    return hold_.Prepare({.limit = message.limit,
                          .key = message.key,
                          .cost = message.permits,
                          .on_store_failure = on_store_failure,
                          .wish = message.wish});
  }

 private:
  void Decide(std::unique_ptr<LimiterCall> self, Engine& engine, Done done) override {
    hold_.Run(engine, [this, &engine, self = std::move(self), done = std::move(done)]() mutable {
      done(Answer(engine));
    });
  }

  LimiterAnswer Answer(Engine& engine) const {
    if (!hold_.decision()) return Refuse(hold_.decision().error());
    v1::HoldResponse response;
    PutCheck(*response.mutable_check(), *hold_.decision(), true, hold_.source());
    if (hold_.decision()->allowed) {
      auto made = service::CountMade(engine, hold_.catalog(), hold_.MakeTicket());
      if (!made) return Refuse(made.error());
      PutHold(response, *std::move(made));
    }
    return response.SerializeAsString();
  }

  service::LimitHold hold_;
};

// Settle, Release or Extend.
class ChangeCall final : public LimiterCall {
 public:
  ChangeCall(const Engine& engine, LimiterMethod method)
      : call_(engine.catalog()), method_(method) {}

  Status Prepare(std::string_view message) {
    if (method_ == LimiterMethod::kSettle) return PrepareSettle(message);
    const bool extends = method_ == LimiterMethod::kExtend;
    ExtendMessage read;
    using enum ExtendMessage::Type;
    if (Status status = read.Parse(message, extends ? kExtend : kRelease); !status.ok()) {
      return status;
    }
    if (const auto open = call_.Open(read.id); !open) return StatusOf(open.error());
    if (extends) {
      call_.Extend(read.ttl);
    } else {
      call_.Release();
    }
    return {};
  }

 private:
  Status PrepareSettle(std::string_view message) {
    SettleMessage read;
    if (Status status = read.Parse(message); !status.ok()) return status;
    if (const auto open = call_.Open(read.id); !open) return StatusOf(open.error());
    call_.Settle();
    if (read.permits) {
      if (const auto set = call_.Settle(*read.permits); !set) return StatusOf(set.error());
    }
    for (const auto& [rule, permits] : read.rules) {
      if (const auto set = call_.SettleRule(rule, permits); !set) return StatusOf(set.error());
    }
    return {};
  }

  void Decide(std::unique_ptr<LimiterCall> self, Engine& engine, Done done) override {
    call_.Run(engine,
              [this, self = std::move(self), done = std::move(done)]() mutable { done(Answer()); });
  }

  LimiterAnswer Answer() const {
    if (!call_.decision()) return Refuse(call_.decision().error());
    if (method_ == LimiterMethod::kExtend) {
      v1::ExtendResponse response;
      Set(*response.mutable_expires_at(), call_.terms().expires);
      PutBudgets(response);
      return response.SerializeAsString();
    }
    v1::SettleResponse response;
    response.set_late(call_.terms().late);
    response.set_overdrawn(call_.terms().overdrawn);
    PutBudgets(response);
    return response.SerializeAsString();
  }

  template <typename Response>
  void PutBudgets(Response& response) const {
    response.set_source(SourceOf(call_.source()));
    for (const HoldCall::Outcome& outcome : call_.outcomes()) {
      v1::Budget& budget = *response.add_budgets();
      budget.set_name(outcome.part.name.empty() ? outcome.limit.ToString()
                                                : AsUtf8(outcome.part.name));
      budget.set_key(AsUtf8(outcome.part.key));
      if (method_ == LimiterMethod::kSettle && !core::NeedsHold(outcome.limit)) {
        budget.set_cost(outcome.actual);
      }
      PutNumbers(budget, outcome.decision);
    }
  }

  HoldCall call_;
  const LimiterMethod method_;
};

// Checks that the store is asked about together: once for all that are by rules, and once for all
// others, which have no budget in common with those.
class BatchCall final : public LimiterCall {
 public:
  explicit BatchCall(std::string_view request_id) : request_id_(request_id) {}

  Status Prepare(const Engine& engine, const LimiterOptions& options, std::string_view message) {
    BatchMessage read;
    if (Status status = read.Parse(message); !status.ok()) return status;
    items_.reserve(read.checks.size());
    for (const std::string_view check : read.checks) {
      Item& item = items_.emplace_back();
      if (Status status = Add(item, engine, options, check); !status.ok()) {
        item.error = std::move(status);
      }
    }
    return {};
  }

  std::size_t checks() const override { return items_.size(); }

 private:
  // One of the three.
  struct Item {
    std::optional<Status> error;
    std::unique_ptr<RuleCheck> rules;
    std::unique_ptr<LimitCheck> limit;
  };

  Status Add(Item& item, const Engine& engine, const LimiterOptions& options,
             std::string_view message) {
    CheckMessage read;
    if (Status status = read.Parse(message, Type::kCheck); !status.ok()) return status;
    // What was charged must not fail because its answer is too long.
    if (read.detail) {
      return StatusOf(
          {ErrorCode::kInvalidInput, "detail: not in a batch; expected a call of Check for each"});
    }
    if (read.by_rules()) {
      auto check = PrepareRules(engine, options, read, Type::kCheck);
      if (!check) return std::move(check.error());
      item.rules = *std::move(check);
    } else {
      auto check = LimitCheck::Make(engine, options, read);
      if (!check) return std::move(check.error());
      item.limit = *std::move(check);
      requests_.push_back(item.limit->Ask(Action::kCheck));
    }
    return {};
  }

  void Decide(std::unique_ptr<LimiterCall> self, Engine& engine, Done done) override {
    done_ = std::move(done);
    std::vector<RuleCheck*> rules;
    for (const Item& item : items_) {
      if (item.rules) rules.push_back(item.rules.get());
    }
    const std::shared_ptr<LimiterCall> kept = std::move(self);
    const auto decided = [this, &engine, kept] {
      if (--undecided_ == 0) done_(Answer(engine));
    };
    undecided_ = requests_.empty() ? 1 : 2;
    RuleCheck::RunAll(engine, std::move(rules), decided);
    if (!requests_.empty()) engine.Apply(requests_, decided);
  }

  LimiterAnswer Answer(const Engine& engine) const {
    v1::CheckBatchResponse response;
    auto request = requests_.begin();
    for (const Item& item : items_) {
      v1::CheckResult& result = *response.add_results();
      if (item.error) {
        PutError(engine, result, *item.error);
      } else if (item.rules && !item.rules->decision()) {
        PutError(engine, result, StatusOf(item.rules->decision().error()));
      } else if (item.rules) {
        LogDenial(engine, *item.rules, request_id_);
        PutCheck(*result.mutable_check(), *item.rules, false);
      } else if (const Request& decided = *request++; !decided.outcome) {
        PutError(engine, result, StatusOf(decided.outcome.error()));
      } else {
        PutCheck(*result.mutable_check(), item.limit->Told(decided), true, decided.source);
      }
    }
    return response.SerializeAsString();
  }

  static void PutError(const Engine& engine, v1::CheckResult& result, const Status& status) {
    engine.metrics().Failed(ToString(status.code));
    result.mutable_error()->set_code(std::to_underlying(status.code));
    result.mutable_error()->set_message(AsUtf8(status.message));
  }

  const std::string request_id_;
  std::vector<Item> items_;
  std::vector<Request> requests_;  // Of the items with a limit, in their order.
  Done done_;
  int undecided_ = 0;
};

Made ReadCheck(const Engine& engine, const LimiterOptions& options, Type type,
               std::string_view message, std::string_view request_id) {
  CheckMessage read;
  if (Status status = read.Parse(message, type); !status.ok()) return Refuse(std::move(status));
  if (read.by_rules()) {
    auto check = PrepareRules(engine, options, read, type);
    if (!check) return Refuse(std::move(check.error()));
    return std::make_unique<RulesCall>(*std::move(check), type, read.detail, request_id);
  }
  if (type == Type::kHold) {
    auto hold = std::make_unique<LimitHoldCall>(engine);
    const auto ready = hold->Prepare(read, options.on_store_failure);
    if (!ready) return Refuse(ready.error());
    return hold;
  }
  auto check = LimitCheck::Make(engine, options, read);
  if (!check) return Refuse(std::move(check.error()));
  return std::make_unique<LimitCall>(*std::move(check),
                                     type == Type::kGive ? Action::kGive : Action::kCheck);
}

}  // namespace

Made LimiterCall::Read(const Engine& engine, const LimiterOptions& options, LimiterMethod method,
                       std::string_view message, std::string_view request_id) {
  switch (method) {
    case LimiterMethod::kCheck:
      return ReadCheck(engine, options, Type::kCheck, message, request_id);
    case LimiterMethod::kHold:
      return ReadCheck(engine, options, Type::kHold, message, request_id);
    case LimiterMethod::kGive:
      return ReadCheck(engine, options, Type::kGive, message, request_id);
    case LimiterMethod::kCheckBatch: {
      auto batch = std::make_unique<BatchCall>(request_id);
      if (Status status = batch->Prepare(engine, options, message); !status.ok()) {
        return Refuse(std::move(status));
      }
      return batch;
    }
    case LimiterMethod::kSettle:
    case LimiterMethod::kRelease:
    case LimiterMethod::kExtend: {
      auto change = std::make_unique<ChangeCall>(engine, method);
      if (Status status = change->Prepare(message); !status.ok()) return Refuse(std::move(status));
      return change;
    }
  }
  std::unreachable();
}

}  // namespace sluice::grpc
