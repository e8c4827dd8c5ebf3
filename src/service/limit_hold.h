// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "service/engine.h"
#include "service/hold_ticket.h"

namespace sluice::service {

// A hold on one limit and key, which a client names. Under rules, it is a RuleCheck.
//
//   auto hold = std::make_unique<LimitHold>(engine.catalog());
//   if (auto ready = hold->Prepare(wanted); !ready) Refuse(ready.error());
//   LimitHold& it = *hold;
//   it.Run(engine, [hold = std::move(hold)] { Answer(*hold); });
//
// Not thread-safe.
class LimitHold {
 public:
  explicit LimitHold(std::shared_ptr<const Catalog> catalog) : catalog_(std::move(catalog)) {}
  LimitHold(const LimitHold&) = delete;
  LimitHold& operator=(const LimitHold&) = delete;

  struct Wanted {
    std::string_view limit;  // See service::FindLimit.
    std::string_view key;
    std::int64_t cost = 1;
    OnStoreFailure on_store_failure = OnStoreFailure::kFailClosed;
    HoldWish wish = {};  // Without a ttl: as the limit says.
  };

  // Once, before Run. Nothing is kept that `wanted` points to. Errors: those of FindLimit.
  Expected<void> Prepare(const Wanted& wanted);

  // `done` is called as by Engine::Apply.
  template <std::invocable Done>
  void Run(Engine& engine, Done done) {
    engine.Apply({&request_, 1}, std::move(done));
  }

  const Catalog& catalog() const { return *catalog_; }

  // What it is on, after Prepare.
  const HoldTicket::Part& part() const { return ticket_.parts.front(); }

  // After Run.
  const Expected<Decision>& decision() const { return request_.outcome; }
  Source source() const { return request_.source; }

  // After Run of a hold that was allowed.
  HoldTicket MakeTicket() const;

 private:
  std::shared_ptr<const Catalog> catalog_;
  HoldTicket ticket_;  // What the request points to.
  Charge charge_{.key = {}, .limit = nullptr};
  HoldTerms terms_;
  Request request_;
};

}  // namespace sluice::service
