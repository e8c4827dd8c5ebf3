// SPDX-License-Identifier: Apache-2.0
// The services on a client's connection: the Rate Limit Service, sluice.v1.Limiter, grpc.health and
// grpc.reflection. No I/O.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grpc/counters.h"
#include "grpc/limiter.h"
#include "grpc/rls.h"
#include "grpc/session.h"
#include "net/access.h"
#include "service/engine.h"

namespace sluice::grpc {

inline constexpr std::string_view kRlsServiceName = "envoy.service.ratelimit.v3.RateLimitService";
inline constexpr std::string_view kLimiterServiceName = "sluice.v1.Limiter";

enum class Serving { kNo, kYes };

// Whether the client has shown a certificate: see net::Stream::certified.
enum class Certified { kNo, kYes };

// Created with std::make_shared, and used on one loop. Answers of the engine that come after it is
// gone are counted and dropped.
class Services final : private Session::Handler, public std::enable_shared_from_this<Services> {
 public:
  struct Options {
    Session::Limits limits = {};
    RlsOptions rls = {};
    LimiterOptions limiter = {};
    // The tokens of callers; health needs none. Null: open. Outlives the services.
    const net::Access* access = nullptr;
  };

  // `on_answered` runs when calls were answered after the Receive that brought them. The engine and
  // the counters outlive this object.
  Services(service::Engine& engine, const Options& options, Counters& counters, Serving serving,
           std::function<void()> on_answered, Certified certified = Certified::kNo);
  ~Services() override;

  // All calls that these bytes complete are decided together.
  void Receive(std::string_view bytes, SteadyTime now);

  // Notifies watchers.
  void SetServing(Serving serving);

  // Ends watches, too: they would never end by themselves.
  void Drain();

  // Frees what is kept for future calls.
  void DropSpare() {
    spare_.clear();
    session_.DropSpare();
  }

  Session& session() { return session_; }

 private:
  // Calls that the engine decides together. Lives until the engine has answered.
  struct Batch {
    explicit Batch(const RlsOptions& options) : rls(options) {}

    RlsBatch rls;
    std::vector<StreamId> streams;
  };

  struct Watcher {
    StreamId id;
    bool served;  // Whether the watched service exists.
  };

  const Method* FindMethod(std::string_view path) override;
  bool LetsIn(std::string_view authorization) override;
  bool WantsRequestIds() override;
  void OnMessage(StreamId id, const Method& method, std::string_view message) override;
  void OnHalfClose(StreamId id, const Method& method) override;
  void OnAbandoned(StreamId id, const Method& method) override;
  void OnError(StatusCode code) override;

  bool HasRoom(StreamId id);
  void ShouldRateLimit(StreamId id, std::string_view message);
  void Decide();
  void Answer(Batch& batch);
  void Keep(std::unique_ptr<Batch> batch);
  void AskLimiter(StreamId id, LimiterMethod method, std::string_view message);
  void CheckHealth(StreamId id, std::string_view message);
  void WatchHealth(StreamId id, std::string_view message);
  void Reflect(StreamId id, const Method& method, std::string_view message);

  service::Engine& engine_;
  const Options options_;
  const bool open_;  // To this client.
  const std::function<void()> on_answered_;
  Session session_;
  Serving serving_;
  std::vector<Watcher> watchers_;
  std::unique_ptr<Batch> batch_;  // Of what is being received; null if there is none.
  std::vector<std::unique_ptr<Batch>> spare_;
  bool receiving_ = false;
  // Calls that the engine has, including those given up; a large batch counts as several.
  std::size_t in_flight_ = 0;
  std::string reply_;
};

}  // namespace sluice::grpc
