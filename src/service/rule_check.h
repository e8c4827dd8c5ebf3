// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "rules/context.h"
#include "rules/rule_set.h"
#include "service/engine.h"
#include "service/hold_ticket.h"
#include "telemetry/log.h"

namespace sluice::service {

// Checks that a client may ask together.
inline constexpr std::size_t kBatchMax = 1000;

// One request to a rule set: which rules apply, what each of their bands says, and the decision
// over all of them. Shadow rules are charged separately and never deny.
//
//   auto check = std::make_unique<RuleCheck>(engine.catalog());
//   if (auto ready = check->Prepare("api", context, 1); !ready) Refuse(ready.error());
//   RuleCheck& it = *check;
//   it.Run(engine, [check = std::move(check)] { Answer(*check); });
//
// Reusable: Prepare starts over, and allocates nothing once it has grown. Not thread-safe.
class RuleCheck {
 public:
  explicit RuleCheck(std::shared_ptr<const Catalog> catalog) : catalog_(std::move(catalog)) {}
  RuleCheck(const RuleCheck&) = delete;
  RuleCheck& operator=(const RuleCheck&) = delete;

  // Starts over with this catalog.
  void Reuse(std::shared_ptr<const Catalog> catalog) { catalog_ = std::move(catalog); }

  // 0 permits: a look. Run takes nothing, is not counted, and the decisions say what a request of
  // one permit would get. Errors: kNotFound if there is no such rule set; kInvalidCost; kNeedsHold
  // if a rule that counts has a limit that can only be held. What the context points to is used
  // only during the call.
  Expected<void> Prepare(std::string_view rule_set, const rules::Context& context,
                         std::int64_t permits);

  // Run will hold what it charges. Errors: as above, and kInvalidRequest if nothing says how long
  // the hold lasts.
  Expected<void> PrepareHold(std::string_view rule_set, const rules::Context& context,
                             std::int64_t permits, const HoldWish& wish);

  // Run will give back what a check of the same would charge, and is not counted. Errors: as
  // Prepare.
  Expected<void> PrepareGive(std::string_view rule_set, const rules::Context& context,
                             std::int64_t permits);

  // From Prepare until the next: what Run will charge, and a reset makes full again.
  std::span<const Charge> charges() const { return charges_; }

  // Decides. `done` is called as by Engine::Apply.
  template <std::invocable Done>
  void Run(Engine& engine, Done done) {
    if (requests_.empty()) {
      Conclude(engine, {});
      return done();
    }
    auto conclude = [this, &engine, done = std::move(done)](const Engine::Span& span) mutable {
      Conclude(engine, span);
      done();
    };
    if (!holds_) return engine.ApplyParts(requests_, std::move(conclude));
    // A shadow rule holds only beside a hold that was made: nobody would release it.
    engine.ApplyParts(CountingRequests(), [this, &engine, conclude = std::move(conclude)](
                                              const Engine::Span& span) mutable {
      const std::span<Request> shadows = ShadowRequests();
      if (shadows.empty()) return conclude(span);
      engine.ApplyParts(shadows, std::move(conclude));
    });
  }

  // Whether Run asks the store twice, the second time when it has answered.
  bool asks_twice() const { return holds_ && limited_ && requests_.size() > 1; }

  // The same for several prepared checks, none of them a hold: the store is asked once for all of
  // them, in order.
  template <std::invocable Done>
  static void RunAll(Engine& engine, std::vector<RuleCheck*> checks, Done done) {
    std::vector<Request> all = Join(checks);
    const std::span<Request> requests = all;
    auto conclude = [&engine, checks = std::move(checks), all = std::move(all),
                     done = std::move(done)](const Engine::Span& span) mutable {
      ConcludeAll(engine, checks, all, span);
      done();
    };
    if (requests.empty()) return conclude({});
    engine.ApplyParts(requests, std::move(conclude));
  }

  // One rule that applied, and its own numbers.
  struct Outcome {
    const rules::Selected* selected;
    std::span<const Decision> bands;  // As many as selected->bands if those were charged.
    bool denied = false;              // By this rule; a shadow rule would have.
    std::optional<Error> error;       // Of an undecided shadow rule.
    Source source = Source::kStore;   // The same for all rules that count.
  };

  const Catalog& catalog() const { return *catalog_; }
  const rules::RuleSet& rule_set() const { return *rule_set_; }
  std::span<const Outcome> outcomes() const { return outcomes_; }
  std::span<const rules::Rule* const> skipped() const { return selection_.skipped(); }

  // After Run. The decision over all rules that count; if none applied, or all that did are
  // unlimited, it allows and `limited` is false. The error is an outage: never a denial.
  const Expected<Decision>& decision() const { return decision_; }
  bool limited() const { return limited_; }
  bool looked() const { return looks_; }
  // Whether the request is refused. A look is not, even if a request of 1 would be; but what a rule
  // refuses by itself is refused for looks, too.
  bool refuses() const { return decision_ && !decision_->allowed && !(looks_ && denied_band_); }
  Source source() const { return source_; }

  // After Run of a hold that was allowed.
  HoldTicket MakeTicket() const;

  // The first rule that denied and, if one of its bands did, that band.
  const rules::Rule* denied_by() const { return denied_by_; }
  const rules::Band* denied_band() const { return denied_band_; }

 private:
  Expected<void> Select(std::string_view rule_set, const rules::Context& context,
                        std::int64_t permits);
  Expected<void> PrepareUnheld(std::string_view rule_set, const rules::Context& context,
                               std::int64_t permits);
  Expected<void> SetTerms(const HoldWish& wish);
  const Outcome* FindUncheckable() const;
  void AddParts(HoldTicket& ticket, const Outcome& outcome) const;
  static std::vector<Request> Join(std::span<RuleCheck* const> checks);
  static void ConcludeAll(Engine& engine, std::span<RuleCheck* const> checks,
                          std::span<Request> all, const Engine::Span& span);

  void Gather();
  std::span<Request> CountingRequests();
  std::span<Request> ShadowRequests();
  void Conclude(Engine& engine, const Engine::Span& span);
  void Foresee();
  void Summarise();
  void Count(Engine& engine, const Engine::Span& span) const;
  void CountLimits(Engine& engine, const Outcome& outcome, const Engine::Span& span) const;
  void CountRule(const Outcome& outcome) const;
  const Limit* DecidingLimit() const;
  std::size_t FirstOf(const Outcome& outcome) const;

  std::shared_ptr<const Catalog> catalog_;
  const rules::RuleSet* rule_set_ = nullptr;
  rules::Selection selection_;
  std::vector<Charge> charges_;
  std::vector<Decision> each_;
  std::vector<SeenState> seen_;    // For looks only, one per charge.
  std::vector<Request> requests_;  // The first, if any rule counts, covers all that count.
  std::vector<Outcome> outcomes_;
  Expected<Decision> decision_ = Decision{};
  bool looks_ = false;
  bool holds_ = false;
  bool gives_ = false;
  std::string hold_id_;
  HoldTerms terms_;                      // Of the request that covers all rules that count.
  std::vector<HoldTerms> shadow_terms_;  // Of the others.
  bool limited_ = false;
  bool refused_ = false;  // By a rule that needs no store: blocked, or no key.
  Source source_ = Source::kStore;
  const rules::Rule* denied_by_ = nullptr;
  const rules::Band* denied_band_ = nullptr;
};

// Logs what refused a request, to look up a client's complaint: at debug level, with what
// identifies the request, such as its id. Call it after Run.
void LogDenial(telemetry::Logger& logger, const RuleCheck& check, const telemetry::LogField& which);

}  // namespace sluice::service
