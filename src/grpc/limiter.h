// SPDX-License-Identifier: Apache-2.0
// sluice.v1.Limiter: turns its calls into requests to the engine, and decisions into answers. No
// I/O. limiter.proto explains what each field means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "grpc/status.h"
#include "service/engine.h"
#include "sluice/store.h"

namespace sluice::grpc {

struct LimiterOptions {
  OnStoreFailure on_store_failure = OnStoreFailure::kFailOpen;  // For limits that clients name.
  int ipv6_prefix = 64;  // IPv6 addresses that share so many bits are one client.
};

// In the order of limiter.proto.
enum class LimiterMethod : std::uint8_t {
  kCheck,
  kCheckBatch,
  kHold,
  kSettle,
  kRelease,
  kExtend,
  kGive,
};

// The serialized answer, or why there is none.
using LimiterAnswer = std::expected<std::string, Status>;

// A call that was read, and waits to be decided:
//
//   auto call = LimiterCall::Read(engine, options, method, message, request_id);
//   if (!call) return Refuse(call.error());
//   LimiterCall::Run(*std::move(call), engine, [](LimiterAnswer answer) { … });
//
// Not thread-safe.
class LimiterCall {
 public:
  using Done = std::move_only_function<void(LimiterAnswer)>;

  virtual ~LimiterCall() = default;

  // Keeps nothing of the message. The id, if the client gave one, is for the log.
  static std::expected<std::unique_ptr<LimiterCall>, Status> Read(const service::Engine& engine,
                                                                  const LimiterOptions& options,
                                                                  LimiterMethod method,
                                                                  std::string_view message,
                                                                  std::string_view request_id);

  // How many checks it has, if it is a batch.
  virtual std::size_t checks() const { return 1; }

  // `done` is called as by Engine::Apply.
  static void Run(std::unique_ptr<LimiterCall> call, service::Engine& engine, Done done) {
    LimiterCall& it = *call;
    it.Decide(std::move(call), engine, std::move(done));
  }

 private:
  // `self` stays until `done` was called.
  virtual void Decide(std::unique_ptr<LimiterCall> self, service::Engine& engine, Done done) = 0;
};

}  // namespace sluice::grpc
