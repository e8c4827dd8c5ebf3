// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>

#include "base/mailbox.h"
#include "service/catalog.h"
#include "service/live_holds.h"
#include "sluice/store.h"
#include "telemetry/thread_slot.h"

namespace sluice::telemetry {
class HeavyHitters;
class LimitedLog;
class Logger;
}  // namespace sluice::telemetry

namespace sluice::service {

class ServiceMetrics;

// Whether at least 80 % of a budget are used.
inline bool IsNear(const Decision& decision) { return decision.remaining <= decision.limit / 5; }

// Finds which of a request's limits decided: the first that denied, else the one with the least
// left.
class Deciding {
 public:
  void Add(const Limit& limit, const Decision& own) {
    if (limit_ && (!allowed_ || (own.allowed && own.remaining >= remaining_))) return;
    limit_ = &limit;
    allowed_ = own.allowed;
    remaining_ = own.remaining;
  }
  const Limit* limit() const { return limit_; }  // Null if there was none.

 private:
  const Limit* limit_ = nullptr;
  bool allowed_ = true;
  std::int64_t remaining_ = 0;
};

// What every door asks: a store whose decisions are counted, timed and remembered, and the catalog
// of the configuration. Every method may be called from any thread.
class Engine {
 public:
  struct Parts {
    Store& store;
    service::ServiceMetrics& metrics;
    telemetry::HeavyHitters& keys;  // Finds the busiest and the most denied.
    telemetry::Logger& logger;
    const Clock& clock = SystemClock();
  };

  Engine(const Parts& parts, std::shared_ptr<const Catalog> catalog);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  using Steady = std::chrono::steady_clock;

  // When the store was asked, and when it answered.
  struct Span {
    Steady::time_point start = {};
    Steady::time_point end = {};
  };

  // Each request is one request of a client, and counted as such. Everything that the requests
  // point to stays alive until `done` has been called: before this returns, or later by the loop
  // that called this, from its mailbox. Only threads without a loop are called back on whichever
  // thread the store answers. The store ends before the loops, which stop before the engine ends.
  template <std::invocable Done>
  void Apply(std::span<Request> requests, Done done) {
    Ask(requests, [this, requests, done = std::move(done)](const Span& span) mutable {
      CountWhole(requests, span);
      done();
    });
  }

  // Like Apply, but a client's request may be several of these, or share one with others: the
  // caller knows, and counts limits and requests with the functions below.
  template <std::invocable<const Span&> Done>
  void ApplyParts(std::span<Request> requests, Done done) {
    Ask(requests, [this, requests, done = std::move(done)](const Span& span) mutable {
      Account(requests);
      done(span);
    });
  }

  // A limit that was checked.
  struct Checked {
    const Charge& charge;
    const Decision& decision;  // Its own.
    Source source = Source::kStore;
    service::Standing standing = service::Standing::kCounts;
    bool first = true;  // Among a rule's limits, which count their key's request once.
  };
  void CountLimit(const Checked& checked, Steady::time_point now);

  // A rule denies this key without a limit. `name` is that of its bands, up to their label.
  void CountBlocked(std::string_view name, std::string_view key,
                    service::Standing standing = service::Standing::kCounts);

  // A client's request was answered. `deciding` is null if no limit decided.
  void CountRequest(const Limit* deciding, bool allowed, const Span& span) const;

  // A client's request was denied because it costs more than its limit can ever grant.
  void CountNeverGranted(const Charge& charge);

  // For times in answers; limits are decided by the store's own time.
  TimePoint Now() const { return clock_.Now(); }

  // For doors to log, and to count their answers.
  telemetry::Logger& logger() const { return logger_; }
  const service::ServiceMetrics& metrics() const { return metrics_; }
  LiveHolds& live_holds() { return live_holds_; }

  // The current catalog. Keep it as long as anything in it is in use. A loop keeps the one it saw
  // last, and callers there share it without touching memory of other threads. The loop releases an
  // old one when it is asked again: whoever calls SetCatalog must make sure that every loop is.
  std::shared_ptr<const Catalog> catalog() const {
    const std::shared_ptr<const Catalog>& kept = kept_[telemetry::ThreadSlot()].catalog;
    if (kept.get() == latest_.load(std::memory_order_acquire)) [[likely]] {
      return kept;
    }
    return ReadCatalog();
  }
  void SetCatalog(std::shared_ptr<const Catalog> catalog);

 private:
  // A request to a store that does not answer inline. Run concludes it.
  class Question : public Mailbox::Task {
   public:
    Span span;
    // Used by the asking thread, if that is a loop.
    bool asking = true;     // The store has not returned yet.
    bool answered = false;  // Before it returned.
  };

  template <typename Conclude>
  class QuestionOf final : public Question {
   public:
    explicit QuestionOf(Conclude conclude) : conclude_(std::move(conclude)) {}
    void Run() override { conclude_(span); }

   private:
    Conclude conclude_;
  };

  // A store that answers inline costs only the calls: nothing is allocated or type-erased.
  template <typename Conclude>
  void Ask(std::span<Request> requests, Conclude conclude) {
    if (answers_inline_) return conclude(DecideInline(requests));
    AskStore(requests, std::make_unique<QuestionOf<Conclude>>(std::move(conclude)));
  }
  Span DecideInline(std::span<Request> requests);
  void AskStore(std::span<Request> requests, std::unique_ptr<Question> question);

  std::shared_ptr<const Catalog> ReadCatalog() const;

  void CountWhole(std::span<const Request> requests, const Span& span);
  void Account(std::span<const Request> requests);
  void AccountWithoutStore(const Request& request);
  void AccountFailure(const Request& request);

  // Constant after construction.
  Store& store_;
  const bool answers_inline_;
  service::ServiceMetrics& metrics_;
  telemetry::HeavyHitters& keys_;
  telemetry::Logger& logger_;
  const Clock& clock_;
  LiveHolds live_holds_;

  const std::unique_ptr<telemetry::LimitedLog> degraded_;
  const std::unique_ptr<telemetry::LimitedLog> failed_;

  // What the loop on a thread keeps, with a reference count of the thread's own. As long as it
  // does, no other catalog has the same address. Null for threads without a loop.
  struct alignas(64) Kept {
    std::shared_ptr<const Catalog> catalog;
  };
  mutable std::array<Kept, telemetry::kSlots> kept_;

  mutable std::mutex catalog_mutex_;
  std::shared_ptr<const Catalog> catalog_;       // Guarded by catalog_mutex_.
  std::atomic<const Catalog*> latest_{nullptr};  // Changes with it; only compared.
};

}  // namespace sluice::service
