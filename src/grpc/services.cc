// SPDX-License-Identifier: Apache-2.0
#include "grpc/services.h"

#include <grpc/health/v1/health.pb.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "grpc/reflection.h"
#include "service/service_metrics.h"
#include "telemetry/log.h"

namespace sluice::grpc {
namespace {

namespace health = ::grpc::health::v1;

constexpr std::size_t kSpareBatchesMax = 4;

constexpr Method kShouldRateLimit = {"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
                                     Method::Requests::kOne, Method::For::kCallers};
constexpr Method kCheck = {"/grpc.health.v1.Health/Check", Method::Requests::kOne};
constexpr Method kWatch = {"/grpc.health.v1.Health/Watch", Method::Requests::kOne};
constexpr Method kReflect = {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                             Method::Requests::kMany, Method::For::kCallers};
constexpr Method kReflectAlpha = {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                  Method::Requests::kMany, Method::For::kCallers};
constexpr std::array<const Method*, 5> kMethods = {&kShouldRateLimit, &kCheck, &kWatch, &kReflect,
                                                   &kReflectAlpha};

constexpr Method LimiterMethodAt(std::string_view path) {
  return {path, Method::Requests::kOne, Method::For::kCallers};
}
// In the order of LimiterMethod.
constexpr std::array kLimiterMethods = {
    LimiterMethodAt("/sluice.v1.Limiter/Check"),   LimiterMethodAt("/sluice.v1.Limiter/CheckBatch"),
    LimiterMethodAt("/sluice.v1.Limiter/Hold"),    LimiterMethodAt("/sluice.v1.Limiter/Settle"),
    LimiterMethodAt("/sluice.v1.Limiter/Release"), LimiterMethodAt("/sluice.v1.Limiter/Extend"),
    LimiterMethodAt("/sluice.v1.Limiter/Give"),
};

// So many checks of a batch weigh as much as a call: as the descriptors of a call do.
constexpr std::size_t kChecksACall = kDescriptorsMax;

constexpr std::array<std::string_view, 5> kServiceNames = {
    kRlsServiceName, kLimiterServiceName, "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"};

const Reflection& TheReflection() {
  static const Reflection reflection(kServiceNames);
  return reflection;
}

// The service that a request asks for; nothing if it is not a valid request.
std::optional<std::string> HealthService(std::string_view message) {
  health::HealthCheckRequest request;
  if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
    return std::nullopt;
  }
  return request.service();
}

Status NotHealthCheck() {
  return {StatusCode::kInternal, "the message is not a HealthCheckRequest"};
}

bool IsServed(std::string_view service) {
  return service.empty() || service == kRlsServiceName || service == kLimiterServiceName;
}

std::string HealthReply(health::HealthCheckResponse::ServingStatus status) {
  health::HealthCheckResponse response;
  response.set_status(status);
  return response.SerializeAsString();
}

std::string HealthReply(Serving serving) {
  return HealthReply(serving == Serving::kYes ? health::HealthCheckResponse::SERVING
                                              : health::HealthCheckResponse::NOT_SERVING);
}

}  // namespace

Services::Services(service::Engine& engine, const Options& options, Counters& counters,
                   Serving serving, std::function<void()> on_answered, Certified certified)
    : engine_(engine),
      options_(options),
      open_(!options.access || options.access->open() || certified == Certified::kYes),
      on_answered_(std::move(on_answered)),
      session_(*this, options.limits, counters),
      serving_(serving) {}

Services::~Services() = default;

void Services::Receive(std::string_view bytes, SteadyTime now) {
  receiving_ = true;
  session_.Receive(bytes, now);
  Decide();
  receiving_ = false;
}

void Services::SetServing(Serving serving) {
  if (std::exchange(serving_, serving) == serving) return;
  // A copy: one reply too many ends the call, and thus removes its watcher.
  for (const Watcher& watcher : std::vector(watchers_)) {
    if (watcher.served) session_.Reply(watcher.id, HealthReply(serving_));
  }
}

void Services::Drain() {
  SetServing(Serving::kNo);
  for (const Watcher& watcher : std::exchange(watchers_, {})) {
    session_.Finish(watcher.id, {StatusCode::kUnavailable, "the server is shutting down"});
  }
  session_.Drain();
}

const Method* Services::FindMethod(std::string_view path) {
  const auto found = std::ranges::find(kMethods, path, &Method::path);
  if (found != kMethods.end()) return *found;
  const auto limiter = std::ranges::find(kLimiterMethods, path, &Method::path);
  return limiter == kLimiterMethods.end() ? nullptr : &*limiter;
}

bool Services::LetsIn(std::string_view authorization) {
  return open_ || options_.access->Knows(net::BearerToken(authorization));
}

bool Services::WantsRequestIds() { return engine_.logger().Enabled(telemetry::LogLevel::kDebug); }

void Services::OnMessage(StreamId id, const Method& method, std::string_view message) {
  if (&method == &kShouldRateLimit) {
    ShouldRateLimit(id, message);
  } else if (&method == &kCheck) {
    CheckHealth(id, message);
  } else if (&method == &kWatch) {
    WatchHealth(id, message);
  } else if (&method == &kReflect || &method == &kReflectAlpha) {
    Reflect(id, method, message);
  } else {
    AskLimiter(id, static_cast<LimiterMethod>(&method - kLimiterMethods.data()), message);
  }
}

void Services::OnHalfClose(StreamId id, const Method& /*method*/) { session_.Finish(id, {}); }

void Services::OnAbandoned(StreamId id, const Method& method) {
  if (&method == &kWatch) {
    std::erase_if(watchers_, [&](const Watcher& watcher) { return watcher.id == id; });
  }
}

void Services::OnError(StatusCode code) { engine_.metrics().Failed(ToString(code)); }

// Streams are bounded, but clients can give up calls that the engine still has.
bool Services::HasRoom(StreamId id) {
  if (in_flight_ < options_.limits.streams_max) return true;
  session_.Finish(id, {StatusCode::kResourceExhausted, "too many calls wait for the store"});
  return false;
}

void Services::ShouldRateLimit(StreamId id, std::string_view message) {
  if (!HasRoom(id)) return;
  if (!batch_) {
    if (spare_.empty()) spare_.push_back(std::make_unique<Batch>(options_.rls));
    batch_ = std::move(spare_.back());
    spare_.pop_back();
    batch_->rls.Start(engine_.catalog(), options_.rls.headers ? engine_.Now() : TimePoint{});
  }
  Status refused = batch_->rls.Add(message, session_.RequestIdOf(id));
  if (!refused.ok()) {
    session_.Finish(id, std::move(refused));
    return;
  }
  batch_->streams.push_back(id);
  ++in_flight_;
}

void Services::Decide() {
  if (!batch_) return;
  const std::span<Request> requests = batch_->rls.Requests();
  auto conclude = [weak = weak_from_this(), &engine = engine_,
                   batch = std::move(batch_)](const service::Engine::Span& span) mutable {
    batch->rls.Count(engine, span);
    const std::shared_ptr<Services> self = weak.lock();
    if (!self) return;
    self->Answer(*batch);
    self->Keep(std::move(batch));
    if (!self->receiving_) self->on_answered_();
  };
  if (requests.empty()) return conclude({});
  engine_.ApplyParts(requests, std::move(conclude));
}

void Services::Answer(Batch& batch) {
  for (std::size_t i = 0; i < batch.streams.size(); ++i) {
    Status status = batch.rls.Answer(i, reply_);
    if (status.ok()) {
      session_.ReplyAndFinish(batch.streams[i], reply_);
    } else {
      session_.Finish(batch.streams[i], std::move(status));
    }
  }
  in_flight_ -= batch.streams.size();
  batch.streams.clear();
}

// For future calls, which may see other rules.
void Services::Keep(std::unique_ptr<Batch> batch) {
  batch->rls.End();
  if (spare_.size() < kSpareBatchesMax) spare_.push_back(std::move(batch));
}

void Services::AskLimiter(StreamId id, LimiterMethod method, std::string_view message) {
  if (!HasRoom(id)) return;
  auto call =
      LimiterCall::Read(engine_, options_.limiter, method, message, session_.RequestIdOf(id));
  if (!call) return session_.Finish(id, std::move(call.error()));
  const std::size_t weight = 1 + (*call)->checks() / kChecksACall;
  in_flight_ += weight;
  LimiterCall::Run(*std::move(call), engine_,
                   [weak = weak_from_this(), id, weight](LimiterAnswer answer) {
                     const std::shared_ptr<Services> self = weak.lock();
                     if (!self) return;
                     self->in_flight_ -= weight;
                     if (answer) {
                       self->session_.ReplyAndFinish(id, *answer);
                     } else {
                       self->session_.Finish(id, std::move(answer.error()));
                     }
                     if (!self->receiving_) self->on_answered_();
                   });
}

void Services::CheckHealth(StreamId id, std::string_view message) {
  const auto service = HealthService(message);
  if (!service) {
    session_.Finish(id, NotHealthCheck());
  } else if (!IsServed(*service)) {
    session_.Finish(id,
                    {StatusCode::kNotFound, text::Cat("unknown service ", text::Quote(*service))});
  } else {
    session_.ReplyAndFinish(id, HealthReply(serving_));
  }
}

void Services::WatchHealth(StreamId id, std::string_view message) {
  const auto service = HealthService(message);
  if (!service) {
    session_.Finish(id, NotHealthCheck());
  } else {
    // An unknown service might appear later, as far as a watcher knows: the watch goes on.
    const bool served = IsServed(*service);
    watchers_.push_back({.id = id, .served = served});
    session_.Reply(id, served ? HealthReply(serving_)
                              : HealthReply(health::HealthCheckResponse::SERVICE_UNKNOWN));
  }
}

void Services::Reflect(StreamId id, const Method& method, std::string_view message) {
  const auto version = &method == &kReflect ? ReflectionVersion::kV1 : ReflectionVersion::kV1Alpha;
  auto reply = TheReflection().Answer(version, message);
  if (reply) {
    session_.Reply(id, *reply);
  } else {
    session_.Finish(id, {StatusCode::kInternal, std::move(reply.error().message)});
  }
}

}  // namespace sluice::grpc
