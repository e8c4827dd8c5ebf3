// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <span>
#include <utility>

#include "sluice/store.h"
#include "telemetry/service_metrics.h"

namespace sluice::service {

// Counts how long a store far away takes to answer.
class TimedStore final : public Store {
 public:
  TimedStore(Store& inner, const telemetry::ServiceMetrics& metrics)
      : inner_(inner), metrics_(metrics) {}

  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    inner_.Apply(requests, [this, start = std::chrono::steady_clock::now(),
                            done = std::move(done)]() mutable {
      metrics_.RedisCall(std::chrono::steady_clock::now() - start);
      done();
    });
  }

  void Reset(const Charge& charge, std::move_only_function<void(Expected<bool>)> done) override {
    inner_.Reset(charge, std::move(done));
  }

  void Watch(OnRaised on_raised) override { inner_.Watch(std::move(on_raised)); }

 private:
  Store& inner_;
  const telemetry::ServiceMetrics& metrics_;
};

}  // namespace sluice::service
