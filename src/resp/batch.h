// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "resp/decision_reply.h"
#include "resp/reply_writer.h"
#include "service/engine.h"
#include "service/hold_call.h"
#include "service/limit_hold.h"
#include "service/rule_check.h"
#include "sluice/limit.h"
#include "sluice/store.h"

namespace sluice::resp {

// One round of a pipeline: what its commands ask for, and how they are answered, in order. When
// reused, it allocates nothing, except for holds. What is added may point into the input, which
// must not move until Write.
class Batch {
 public:
  explicit Batch(service::Engine& engine) : engine_(engine) {}
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  bool empty() const { return steps_.empty(); }

  // The approximate size of the replies.
  std::size_t reply_bytes() const { return text_.size() + reply_bytes_; }

  // Append a reply that needs no decision here, and call Answered afterwards.
  std::string& text() { return text_; }
  void Answered();

  struct Check {
    const Limit& limit;  // Copied.
    std::string_view key;
    std::string_view name;  // Of the state.
    std::string_view said;  // The client's name of the limit.
    std::int64_t cost;
    OnStoreFailure on_store_failure;
  };
  void AddCheck(const Check& check, Dialect dialect, Protocol protocol);

  // A cost that can never be granted: the reply is the current state, and a denial without a wait.
  void AddNever(const Check& check, Dialect dialect, Protocol protocol);

  // Gives back up to the cost.
  void AddGive(const Check& check, Protocol protocol);

  // Call Prepare, PrepareHold or PrepareGive on it; if that succeeds, call AddRules or
  // AddRulesReset, AddRulesHold or AddRulesGive.
  service::RuleCheck& NextRules();
  void AddRules(bool detail, Protocol protocol);
  void AddRulesHold(bool detail, Protocol protocol);
  void AddRulesGive(Protocol protocol);

  // Prepared; `said` is the client's name of the limit.
  void AddHold(std::unique_ptr<service::LimitHold> hold, std::string_view said, Protocol protocol);

  // Open, and told what to do.
  void AddHoldChange(std::unique_ptr<service::HoldCall> call, HoldChange change, Protocol protocol);

  // Takes effect after everything added before it, and before everything added later. The reply is
  // how many of the keys had been charged.
  void AddReset(const Limit& limit, std::string_view name, std::span<const std::string_view> keys);
  void AddRulesReset();  // Everything that the rules would charge.

  // Decides. True: everything is decided; call Write. False: `ready` will be called once; then call
  // Run again, and nothing else until then.
  bool Run(std::move_only_function<void()>& ready);

  // Appends all replies and clears the batch. The connection is shown in the log of denials.
  void Write(std::string& out, std::int64_t connection);

 private:
  enum class Kind : std::uint8_t {
    kText,
    kCheck,
    kNever,
    kGive,
    kReset,
    kRules,
    kRulesHold,
    kRulesGive,
    kRulesReset,
    kHold,
    kHoldChange,
  };

  struct Step {
    Kind kind;
    Dialect dialect;
    Protocol protocol;
    bool detail;
    std::size_t size;  // kText: bytes of text_. Resets: number of requests_.
  };

  struct Asked {
    Limit limit;
    std::string_view said;
    Charge charge;
    Action action = Action::kCheck;

    // A look whose reply says what a request of 1 would get.
    bool foresees() const { return charge.cost == 0 && !said.empty() && action == Action::kCheck; }
  };

  struct Hold {
    std::unique_ptr<service::LimitHold> call;
    std::string_view said;
  };

  struct Change {
    std::unique_ptr<service::HoldCall> call;
    HoldChange change;
  };

  void Ask(const Check& check, std::int64_t cost, Action action = Action::kCheck);
  void AddRulesStep(Kind kind, bool detail, Protocol protocol);
  void Link();
  void BeginStage();
  void BeginRequests(std::size_t count);
  void BeginRules(std::size_t count);
  void BeginHold();
  void BeginHoldChange();
  void Decided();
  ReplyWriter Writer(std::string& out, const Step& step) const {
    return {out, step.protocol, engine_.metrics()};
  }
  void LogDenial(std::string_view limit, std::string_view key, std::int64_t connection) const;
  void LogDenied(const Step& step, std::size_t request, std::int64_t connection) const;
  void WriteCheck(std::string& out, const Step& step, std::size_t index) const;
  void WriteGive(std::string& out, const Step& step, std::size_t index) const;
  void WriteRulesHold(ReplyWriter reply, const service::RuleCheck& check, bool detail) const;
  void WriteHold(ReplyWriter reply, const Hold& hold, std::int64_t connection) const;
  void WriteReset(std::string& out, std::span<const Request> resets) const;
  void Clear();

  service::Engine& engine_;
  std::vector<Step> steps_;
  std::string text_;
  std::size_t text_answered_ = 0;  // Bytes of text_ that belong to a step.
  std::size_t reply_bytes_ = 0;    // Of all other steps, approximately.
  std::vector<Asked> asked_;
  std::vector<Request> requests_;
  std::vector<SeenState> seen_;  // One per look that foresees.
  std::vector<std::unique_ptr<service::RuleCheck>> rules_;
  std::size_t rules_count_ = 0;
  std::vector<Hold> holds_;
  std::vector<Change> changes_;

  // Where Run continues.
  std::size_t next_step_ = 0;
  std::size_t next_request_ = 0;
  std::size_t next_rules_ = 0;
  std::size_t next_hold_ = 0;
  std::size_t next_change_ = 0;

  std::move_only_function<void()>* ready_ = nullptr;
  std::size_t undecided_ = 0;
};

}  // namespace sluice::resp
