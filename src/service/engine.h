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
#include "sluice/store.h"
#include "telemetry/thread_slot.h"

namespace sluice::telemetry {
class HeavyHitters;
class LimitedLog;
class Logger;
}  // namespace sluice::telemetry

namespace sluice::service {

class ServiceMetrics;

// Whether 80 % and more of a budget are used.
inline bool IsNear(const Decision& decision) { return decision.remaining <= decision.limit / 5; }

// Finds which of the limits of a request decided: the first that denied, else the one that has the
// least left.
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
// of what is configured. Every method may be called from any thread.
class Engine {
 public:
  struct Parts {
    Store& store;
    service::ServiceMetrics& metrics;
    telemetry::HeavyHitters& keys;  // Which are asked for most, and denied most.
    telemetry::Logger& logger;
    const Clock& clock = SystemClock();
  };

  Engine(const Parts& parts, std::shared_ptr<const Catalog> catalog);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  using Steady = std::chrono::steady_clock;

  // From when to when the store was asked.
  struct Span {
    Steady::time_point start = {};
    Steady::time_point end = {};
  };

  // Each of the requests is one of a client's, and counted as such. All that the requests point to
  // stays alive until `done` has been called: before this returns, or later by the loop that called
  // this, from its mailbox. Only threads that are no loop are called back wherever the store is.
  // The store ends before the loops, and these stop before the engine ends.
  template <std::invocable Done>
  void Apply(std::span<Request> requests, Done done) {
    Ask(requests, [this, requests, done = std::move(done)](const Span& span) mutable {
      CountWhole(requests, span);
      done();
    });
  }

  // As Apply, but a client's request is made of several of these, or they of several: whoever asks
  // knows, and counts limits and requests with what follows.
  template <std::invocable<const Span&> Done>
  void ApplyParts(std::span<Request> requests, Done done) {
    Ask(requests, [this, requests, done = std::move(done)](const Span& span) mutable {
      Account(requests);
      done(span);
    });
  }

  // A limit as it was checked.
  struct Checked {
    const Charge& charge;
    const Decision& decision;  // Its own.
    Source source = Source::kStore;
    service::Standing standing = service::Standing::kCounts;
    bool first = true;  // Of the limits of a rule: those count a request of their key once.
  };
  void CountLimit(const Checked& checked, Steady::time_point now);

  // A key that a rule denies without a limit. `name` is that of its bands, up to their label.
  void CountBlocked(std::string_view name, std::string_view key,
                    service::Standing standing = service::Standing::kCounts);

  // A client's request was answered. `deciding` is null if no limit had a say.
  void CountRequest(const Limit* deciding, bool allowed, const Span& span) const;

  // A client's request was denied because it costs more than its limit can ever grant.
  void CountNeverGranted(const Charge& charge);

  // For what answers say about moments; limits are decided by the store's own time.
  TimePoint Now() const { return clock_.Now(); }

  // Where doors log, and count their answers.
  telemetry::Logger& logger() const { return logger_; }
  const service::ServiceMetrics& metrics() const { return metrics_; }

  // The current catalog. Keep it as long as anything in it is in use. A loop keeps the one it saw
  // last, and whoever asks there shares it without touching memory of other threads. It lets go of
  // an old one when it is asked again: whoever calls SetCatalog sees to it that every loop is.
  std::shared_ptr<const Catalog> catalog() const {
    const std::shared_ptr<const Catalog>& kept = kept_[telemetry::ThreadSlot()].catalog;
    if (kept.get() == latest_.load(std::memory_order_acquire)) [[likely]] {
      return kept;
    }
    return ReadCatalog();
  }
  void SetCatalog(std::shared_ptr<const Catalog> catalog);

 private:
  // What a store that takes its time was asked. Run concludes it.
  class Question : public Mailbox::Task {
   public:
    Span span;
    // Of the thread that asked, if that is a loop.
    bool asking = true;     // The store has not returned yet.
    bool answered = false;  // Before it did.
  };

  template <typename Conclude>
  class QuestionOf final : public Question {
   public:
    explicit QuestionOf(Conclude conclude) : conclude_(std::move(conclude)) {}
    void Run() override { conclude_(span); }

   private:
    Conclude conclude_;
  };

  // A store that answers inline costs no more than the calls: nothing is allocated or type-erased.
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

  const std::unique_ptr<telemetry::LimitedLog> degraded_;
  const std::unique_ptr<telemetry::LimitedLog> failed_;

  // What the loop on a thread keeps, under a count of references that is the thread's own. As long
  // as it does, no other catalog has the same address. Null for threads that are no loop.
  struct alignas(64) Kept {
    std::shared_ptr<const Catalog> catalog;
  };
  mutable std::array<Kept, telemetry::kSlots> kept_;

  mutable std::mutex catalog_mutex_;
  std::shared_ptr<const Catalog> catalog_;       // By catalog_mutex_.
  std::atomic<const Catalog*> latest_{nullptr};  // Changes with it; only ever compared.
};

}  // namespace sluice::service
