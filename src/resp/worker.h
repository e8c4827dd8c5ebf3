// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "net/counter.h"
#include "resp/batch.h"
#include "resp/limit_cache.h"
#include "resp/options.h"
#include "rules/context.h"
#include "service/engine.h"

namespace sluice::resp {

// What INFO says about the whole server.
struct ServerInfo {
  int port = 0;
  std::chrono::seconds uptime{0};
  std::size_t connections_max = 0;
  std::uint64_t connections = 0;
  std::uint64_t connections_accepted = 0;
  std::uint64_t connections_refused = 0;
  std::uint64_t commands = 0;
  std::uint64_t protocol_errors = 0;
};

// What the sessions of one loop share. Used only on that loop, except for the counters.
class Worker {
 public:
  using GetInfo = std::function<ServerInfo()>;

  Worker(service::Engine& engine, const SessionOptions& options, GetInfo info)
      : engine_(engine), options_(options), info_(std::move(info)) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  service::Engine& engine() { return engine_; }
  const SessionOptions& options() const { return options_; }
  ServerInfo info() const { return info_(); }
  LimitCache& limits() { return limits_; }
  std::vector<rules::Attribute>& attributes() { return attributes_; }

  // With a store that answers inline, at most one is in use, and it stays in the processor's cache.
  std::unique_ptr<Batch> TakeBatch() {
    if (batches_.empty()) return std::make_unique<Batch>(engine_);
    std::unique_ptr<Batch> batch = std::move(batches_.back());
    batches_.pop_back();
    return batch;
  }
  void GiveBack(std::unique_ptr<Batch> batch) {
    if (batches_.size() < kIdleBatchesMax) batches_.push_back(std::move(batch));
  }

  net::Counter commands;
  net::Counter protocol_errors;

 private:
  static constexpr std::size_t kIdleBatchesMax = 64;

  service::Engine& engine_;
  const SessionOptions options_;
  const GetInfo info_;
  LimitCache limits_;
  std::vector<rules::Attribute> attributes_;
  std::vector<std::unique_ptr<Batch>> batches_;
};

}  // namespace sluice::resp
