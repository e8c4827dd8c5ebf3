// SPDX-License-Identifier: Apache-2.0
// What a session of the RESP door needs: an engine on a memory store, with rules and a manual
// clock.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "redis/resp.h"
#include "resp/session.h"
#include "rules/parse.h"
#include "service/engine.h"
#include "service/service_metrics.h"
#include "sluice/memory_store.h"
#include "telemetry/heavy_hitters.h"
#include "telemetry/log.h"

namespace sluice::testing_support {

inline constexpr std::string_view kRespRules = R"(
ruleSets:
  - id: api
    rules:
      - id: everyone
        scope: GLOBAL
        bands:
          - {label: minute, algorithm: fixed_window, limit: 100, window: 1m}
      - id: user
        scope: PER_USER
        bands:
          - {label: burst, algorithm: token_bucket, capacity: 2, refill: 1, period: 1s}
          - {label: day, algorithm: fixed_window, limit: 50, window: 1d}
  - id: llm
    rules:
      - id: tokens
        scope: PER_USER
        cost: {attribute: tokens, default: 1}
        hold: {ttl: 1m}
        bands: [{label: tpm, algorithm: fixed_window, limit: 1000, window: 1d}]
      - id: streams
        scope: PER_USER
        bands: [{label: open, algorithm: concurrency, limit: 2, ttl: 30s}]
  - id: trial
    rules:
      - id: counts
        scope: GLOBAL
        hold: {ttl: 1m}
        bands: [{label: day, algorithm: fixed_window, limit: 5, window: 1d}]
      - id: slots
        scope: GLOBAL
        shadow: true
        bands: [{label: open, algorithm: concurrency, limit: 1, ttl: 1m}]
)";

inline std::shared_ptr<const service::Catalog> MakeRespCatalog() {
  auto catalog = std::make_shared<service::Catalog>();
  catalog->limits.emplace(
      "login", *Limit::TokenBucket({.capacity = 5, .refill = 1, .period = Micros{60'000'000}}));
  auto sets = rules::ParseRuleSets(kRespRules, "test.yaml");
  if (!sets) throw std::runtime_error(sets.error().front().ToString());
  catalog->rules = *rules::RuleBook::Build(std::move(*sets), 1);
  return catalog;
}

inline std::shared_ptr<const service::Catalog> RespCatalog() {
  static const auto catalog = MakeRespCatalog();
  return catalog;
}

struct RespEngine {
  // Decides with `store`, or else with `memory`.
  explicit RespEngine(Store* store = nullptr)
      : engine({.store = store ? *store : memory,
                .metrics = metrics,
                .keys = keys,
                .logger = logger,
                .clock = clock},
               RespCatalog()) {}

  ManualClock clock{TimePoint{Micros{1'700'000'000'000'000}}};
  MemoryStore memory{{.clock = &clock, .keys_max = 1 << 16}};
  telemetry::Registry registry;
  service::ServiceMetrics metrics{registry};
  telemetry::HeavyHitters keys;
  telemetry::Logger logger{{.level = telemetry::LogLevel::kOff, .clock = &clock}};
  service::Engine engine;
};

inline std::string RespCommand(std::initializer_list<std::string_view> arguments) {
  std::string bytes;
  redis::AppendCommand(bytes, {arguments.begin(), arguments.size()});
  return bytes;
}

// The value of a map's first field of this name, in RESP2; "null" for null.
inline std::string FieldOf(std::string_view reply, std::string_view name) {
  const std::string start = "\r\n" + std::string(name) + "\r\n";
  const std::size_t found = reply.find(start);
  if (found == std::string_view::npos) return "missing";
  const auto line = [&] {
    const std::string_view taken = reply.substr(0, reply.find("\r\n"));
    reply.remove_prefix(taken.size() + 2);
    return taken;
  };
  reply.remove_prefix(found + start.size());
  const std::string_view head = line();
  if (head == "$-1") return "null";
  return std::string(head.starts_with('$') ? line() : head.substr(1));
}

// Passes the bytes to the session as a connection would, and keeps the rest.
class RespPeer {
 public:
  explicit RespPeer(resp::Worker& worker)
      : session_(worker, {.id = 7, .address = "192.0.2.1"}, [this] { ready_ = true; }) {}

  // Returns the replies so far.
  std::string Send(std::string_view bytes) {
    std::string out;
    arrived_ += bytes;
    if (!waiting_ && !closed_) Go(out);
    return out;
  }
  std::string Send(std::initializer_list<std::string_view> arguments) {
    return Send(RespCommand(arguments));
  }

  // Call this after the store has answered.
  std::string Resume() {
    std::string out;
    if (!std::exchange(ready_, false)) return out;
    waiting_ = false;
    Take(session_.Resume(out), out);
    return out;
  }

  bool waiting() const { return waiting_; }
  bool closed() const { return closed_; }

 private:
  void Go(std::string& out) {
    unread_ += std::exchange(arrived_, {});
    Take(session_.Consume(unread_, out), out);
  }

  void Take(resp::Session::Progress progress, std::string& out) {
    waiting_ = progress.next == resp::Session::Next::kWait;
    if (waiting_) return;
    unread_.erase(0, progress.consumed);
    closed_ = progress.next == resp::Session::Next::kClose;
    if (progress.next == resp::Session::Next::kAgain) Go(out);
  }

  std::string unread_;   // Must not move while the session waits.
  std::string arrived_;  // After that.
  bool ready_ = false;
  bool waiting_ = false;
  bool closed_ = false;
  resp::Session session_;
};

}  // namespace sluice::testing_support
