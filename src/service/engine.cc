// SPDX-License-Identifier: Apache-2.0
#include "service/engine.h"

#include <utility>

#include "service/service_metrics.h"
#include "telemetry/heavy_hitters.h"
#include "telemetry/log.h"

namespace sluice::service {
namespace {

using telemetry::HeavyHitters;
using telemetry::LogLevel;

// The first charge that denied, or just the first if the request was allowed.
const Charge& DecidingOf(const Request& request) {
  const auto denied = std::ranges::find(request.each, false, &Decision::allowed);
  if (denied == request.each.end()) return request.charges.front();
  return request.charges[static_cast<std::size_t>(denied - request.each.begin())];
}

// Whether a client's request is decided. Everything else is a correction.
bool Decides(Action action) { return action == Action::kCheck || action == Action::kHold; }

}  // namespace

Engine::Engine(const Parts& parts, std::shared_ptr<const Catalog> catalog)
    : store_(parts.store),
      answers_inline_(store_.AnswersInline()),
      metrics_(parts.metrics),
      keys_(parts.keys),
      logger_(parts.logger),
      clock_(parts.clock),
      live_holds_(parts.metrics),
      degraded_(std::make_unique<telemetry::LimitedLog>(parts.logger)),
      failed_(std::make_unique<telemetry::LimitedLog>(parts.logger)),
      catalog_(std::move(catalog)),
      latest_(catalog_.get()) {}

Engine::~Engine() = default;

void Engine::SetCatalog(std::shared_ptr<const Catalog> catalog) {
  const std::scoped_lock lock(catalog_mutex_);
  latest_.store(catalog.get(), std::memory_order_release);
  catalog_.swap(catalog);
}

std::shared_ptr<const Catalog> Engine::ReadCatalog() const {
  std::shared_ptr<const Catalog> catalog;
  {
    const std::scoped_lock lock(catalog_mutex_);
    catalog = catalog_;
  }
  const std::uint32_t slot = telemetry::ThreadSlot();
  if (Mailbox::Here() == nullptr || slot == telemetry::kSharedSlot) return catalog;
  const Catalog* const seen = catalog.get();
  kept_[slot].catalog = {seen, [held = std::move(catalog)](const Catalog*) {}};
  return kept_[slot].catalog;
}

Engine::Span Engine::DecideInline(std::span<Request> requests) {
  const Steady::time_point start = Steady::now();
  store_.ApplyInline(requests);
  return {.start = start, .end = Steady::now()};
}

// The answer goes to the loop that asked. If it comes on that thread while the loop still asks, it
// is concluded as soon as the store returns. If it comes there later, while somebody else asks, it
// goes through the mailbox, so that nobody is answered in the middle of another's call.
void Engine::AskStore(std::span<Request> requests, std::unique_ptr<Question> question) {
  Mailbox* const home = Mailbox::Here();
  Question* const asked = question.release();  // Owned by the store until it calls back.
  asked->span.start = Steady::now();
  store_.Apply(requests, [asked, home] {
    std::unique_ptr<Question> answer(asked);
    answer->span.end = Steady::now();
    if (home == nullptr) return answer->Run();
    if (Mailbox::Here() == home && answer->asking) {
      answer.release()->answered = true;
    } else {
      home->Post(std::move(answer));
    }
  });
  if (home == nullptr) return;
  // Only this thread ends its own questions, so it still exists.
  asked->asking = false;
  if (asked->answered) std::unique_ptr<Question>(asked)->Run();
}

void Engine::CountWhole(std::span<const Request> requests, const Span& span) {
  Account(requests);
  for (const Request& request : requests) {
    if (!request.outcome || !Decides(request.action)) continue;
    Deciding deciding;
    for (std::size_t i = 0; i < request.charges.size(); ++i) {
      const Charge& charge = request.charges[i];
      if (charge.cost == 0) continue;  // A look is not a request.
      const Decision& own = request.each.empty() ? *request.outcome : request.each[i];
      deciding.Add(*charge.limit, own);
      CountLimit({.charge = charge, .decision = own, .source = request.source}, span.end);
    }
    if (deciding.limit()) CountRequest(deciding.limit(), request.outcome->allowed, span);
  }
}

void Engine::CountRequest(const Limit* deciding, bool allowed, const Span& span) const {
  if (deciding == nullptr) return metrics_.RequestDecidedWithoutLimit(allowed);
  metrics_.RequestDecided(deciding->algorithm(), allowed, span.end - span.start);
}

void Engine::CountLimit(const Checked& checked, Steady::time_point now) {
  const auto& [charge, decision, source, standing, first] = checked;
  if (charge.cost == 0) return;
  metrics_.LimitChecked(charge.limit->algorithm(), decision.allowed, standing);
  HeavyHitters::Kinds kinds;
  if (standing == service::Standing::kShadow) {
    if (!decision.allowed) kinds.Add(HeavyHitters::Kind::kShadowDenied);
  } else {
    if (first) kinds.Add(HeavyHitters::Kind::kBusy);
    if (!decision.allowed) kinds.Add(HeavyHitters::Kind::kDenied);
    if (source != Source::kFailOpen && IsNear(decision)) kinds.Add(HeavyHitters::Kind::kNear);
  }
  if (!kinds.empty()) keys_.Record(kinds, charge.name, charge.key, now);
}

void Engine::CountBlocked(std::string_view name, std::string_view key, service::Standing standing) {
  using enum HeavyHitters::Kind;
  const bool shadow = standing == service::Standing::kShadow;
  keys_.Record(shadow ? HeavyHitters::Kinds{kShadowDenied} : HeavyHitters::Kinds{kBusy, kDenied},
               name, key, Steady::now());
}

void Engine::CountNeverGranted(const Charge& charge) {
  using enum HeavyHitters::Kind;
  metrics_.RequestNeverGranted(charge.limit->algorithm());
  metrics_.LimitChecked(charge.limit->algorithm(), false, service::Standing::kCounts);
  keys_.Record({kBusy, kDenied}, charge.name, charge.key, Steady::now());
}

// Logs and counts failures and decisions made without the store.
void Engine::Account(std::span<const Request> requests) {
  for (const Request& request : requests) {
    if (!request.outcome) {
      AccountFailure(request);
      continue;
    }
    if (!Decides(request.action)) continue;
    const bool allowed = request.outcome->allowed;
    if (request.source != Source::kStore) AccountWithoutStore(request);
    if (logger_.Enabled(LogLevel::kDebug)) [[unlikely]] {
      const Charge& charge = DecidingOf(request);
      logger_.Debug(allowed ? "request allowed" : "request denied",
                    {{"key", charge.key},
                     {"limit", charge.name},
                     {"remaining", request.outcome->remaining},
                     {"cost", charge.cost}});
    }
  }
}

void Engine::AccountWithoutStore(const Request& request) {
  metrics_.Decided(request.source);
  if (request.source == Source::kDenyCache) return;  // Nothing failed.
  if (request.source != Source::kOverload) {
    for (const Charge& charge : request.charges) metrics_.StoreFailed(charge.on_store_failure);
  }
  degraded_->Log(LogLevel::kWarn, "decided without the store",
                 {{"source", ToString(request.source)},
                  {"allowed", request.outcome->allowed},
                  {"key", request.charges.front().key}});
}

void Engine::AccountFailure(const Request& request) {
  const Error& error = request.outcome.error();
  if (!error.outage()) return;  // The request's own fault; its answer says so.
  for (const Charge& charge : request.charges) metrics_.StoreFailed(charge.on_store_failure);
  failed_->Log(
      LogLevel::kError, "the store failed a request",
      {{"code", ToString(error.code)},
       {"error", error.message},
       {"key", request.charges.empty() ? std::string_view{} : request.charges.front().key}});
}

}  // namespace sluice::service
