// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "sluice/redis_store.h"
#include "sluice/time.h"
#include "support/redis_server.h"

namespace sluice::testing_support {

// Its own Redis, which decides at the time of a given clock, and answers before Apply returns: for
// tests that know what is right at each moment.
class RedisAtTime final : public Store {
 public:
  explicit RedisAtTime(const Clock& clock) : clock_(clock) {}

  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    for (Request& request : requests) request.now = clock_.Now();
    std::promise<void> answered;
    redis_->Apply(requests, [&] { answered.set_value(); });
    answered.get_future().wait();
    done();
  }

 private:
  const Clock& clock_;
  RedisServer server_;
  const std::unique_ptr<RedisStore> redis_ =
      RedisStore::Create({.uri = server_.Uri("?timeout=60s")}).value();
};

}  // namespace sluice::testing_support
