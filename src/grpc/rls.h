// SPDX-License-Identifier: Apache-2.0
// Envoy's Rate Limit Service v3: turns calls of ShouldRateLimit into requests to the engine, and
// decisions into answers. No I/O. docs/reference/grpc.md explains what each field means here.
#pragma once

#include <envoy/service/ratelimit/v3/rls.pb.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grpc/rls_request.h"
#include "grpc/status.h"
#include "rules/envoy.h"
#include "service/catalog.h"
#include "service/engine.h"
#include "sluice/store.h"

namespace sluice::grpc {

struct RlsOptions {
  OnStoreFailure on_store_failure = OnStoreFailure::kFailOpen;

  // X-RateLimit-*, RateLimit, RateLimit-Policy and Retry-After in response_headers_to_add.
  bool headers = false;
};

// Calls that are decided together, in one Engine::ApplyParts:
//
//   batch.Start(engine.catalog(), engine.Now());
//   const Status refused = batch.Add(message);               // For each call.
//   engine.ApplyParts(batch.Requests(), [&](const auto& span) { batch.Count(engine, span); });
//   const Status failed = batch.Answer(0, reply);            // For each call that was added.
//
// When reused, it allocates next to nothing. Not thread-safe.
class RlsBatch {
 public:
  using Response = envoy::service::ratelimit::v3::RateLimitResponse;

  explicit RlsBatch(const RlsOptions& options) : options_(options) {}
  RlsBatch(const RlsBatch&) = delete;
  RlsBatch& operator=(const RlsBatch&) = delete;

  // Forgets all calls; the next ones see this catalog. `now` is for headers, and from before the
  // engine decides: a time at the end of a second must not be rounded up to the next one.
  void Start(std::shared_ptr<const service::Catalog> catalog, TimePoint now);

  // Adds a serialized RateLimitRequest as the next call. If the status is not OK, nothing was
  // added. The id, if the client gave one, is for the log.
  Status Add(std::string_view message, std::string_view request_id = {});

  std::size_t size() const { return calls_.size(); }

  // What the engine has to decide; may be empty. Call after the last Add; valid until Start.
  std::span<Request> Requests();

  // After the engine has decided, once: counts the calls as requests, their limits and descriptors.
  // If there was nothing to decide, the span is empty.
  void Count(service::Engine& engine, const service::Engine::Span& span);

  // After the engine has decided: the serialized RateLimitResponse, or why there is none:
  // kUnavailable if a store has failed and its policy does not let the request pass.
  Status Answer(std::size_t call, std::string& reply);

  // After the last Answer: releases the catalog, which may have been replaced. Only Start may be
  // called next.
  void End() { catalog_.reset(); }

 private:
  // A descriptor and its match. Charges point to it, so its address must not change.
  struct Asked {
    enum class Kind : std::uint8_t { kFree, kUnlimited, kBlocked, kLimited };

    Kind kind = Kind::kFree;
    bool shadow = false;
    bool quota = false;
    bool postpaid = false;  // The cost is taken as far as it is there; looks deny.
    bool gives = false;     // The cost is refunded.
    bool never = false;     // The cost can never be granted.
    std::int64_t cost = 1;
    const service::RlsMetrics* metrics = nullptr;
    rules::RlsMatch match;
    std::optional<Limit> brought;  // From the request itself.
    std::string brought_state;     // The name of its state.
    rules::RlsUnit unit = rules::RlsUnit::kUnknown;
    std::int64_t needed = 0;  // If only looked at: denies if less than this remains.
    std::size_t charge = 0;   // For kLimited.
    std::size_t request = 0;

    // Neither looks nor refunds.
    bool takes() const { return cost > 0 && !gives; }
    // Charged on its own, regardless of the others.
    bool apart() const { return shadow || quota || postpaid || gives; }
    Action action() const {
      if (gives) return Action::kGive;
      return postpaid && cost > 0 ? Action::kDebit : Action::kCheck;
    }
    const Limit& limit() const { return brought ? *brought : *match.limit->limit; }
    std::string_view state() const { return brought ? brought_state : rules::kRlsStateName; }
    // Denies whatever the store says.
    bool refused() const { return takes() && (kind == Kind::kBlocked || never); }
  };
  struct Call {
    std::size_t first = 0;
    std::size_t count = 0;
    std::string request_id;
  };
  struct Planned {
    Action action = Action::kCheck;
    std::size_t charges = 0;
  };

  Status Ask(const rules::RlsDomain* domain, const RlsDescriptor& descriptor, Asked& asked);
  std::span<const rules::RlsEntry> EntriesOf(const RlsDescriptor& descriptor) const;
  auto AskedBy(const Call& call) {
    const auto first = asked_.begin() + static_cast<std::ptrdiff_t>(call.first);
    return std::ranges::subrange(first, first + static_cast<std::ptrdiff_t>(call.count));
  }
  void Replace(const Call& call);
  void Plan(const Call& call, bool all_or_nothing);
  void PlanTogether(const Call& call);
  std::int64_t CostOfState(const Call& call, const Asked& of);
  void PlanCharge(Asked& asked, std::int64_t cost);
  void StartRequest(Action action) { planned_.push_back({.action = action}); }

  // For one call, while it is counted.
  void LogDenial(telemetry::Logger& logger, const Call& call);
  void CountLimit(service::Engine& engine, const Asked& asked, bool over,
                  const service::Engine::Span& span) const;
  void CountDescriptor(const Asked& asked) const;
  const Limit* DecidingLimit(const Call& call, bool over);

  // For one call, while it is answered.
  Status CheckStore(const Asked& asked) const;
  bool IsOver(const Asked& asked) const;
  bool Denies(const Asked& asked) const { return !asked.shadow && IsOver(asked); }
  // Looks and refunds are no requests of a client, except for looks that deny.
  bool IsRequest(const Asked& asked) const {
    return asked.takes() || (asked.postpaid && IsOver(asked));
  }
  bool IsOver(const Call& call);
  void AddStatus(const Asked& asked);
  Micros DelayOf(const Call& call);
  void AddMetadata(const Call& call);
  void AddHeaders(const Call& call);
  void AddHeader(std::string_view name, std::string_view value);
  std::string_view NameOf(const Asked& asked) const;

  // Constant after construction.
  const RlsOptions options_;

  std::shared_ptr<const service::Catalog> catalog_;
  TimePoint now_;
  RlsRequest request_;
  std::deque<Asked> asked_;  // Those in use come first; the others keep their memory.
  std::size_t asked_count_ = 0;
  std::vector<Call> calls_;
  std::vector<Charge> charges_;
  std::vector<Planned> planned_;     // One per request.
  std::vector<Decision> decisions_;  // One per charge.
  std::vector<Request> requests_;
  Response response_;
};

}  // namespace sluice::grpc
