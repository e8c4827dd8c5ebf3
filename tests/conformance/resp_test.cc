// SPDX-License-Identifier: Apache-2.0
// CL.THROTTLE, from its bytes to its replies, against the reference model.
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string>

#include "conformance/model.h"
#include "conformance/traffic.h"
#include "support/resp_session.h"

namespace sluice {
namespace {

using testing_support::RespCommand;
using testing_support::RespEngine;
using testing_support::RespPeer;

std::string Integers(std::initializer_list<std::int64_t> numbers) {
  std::string reply;
  redis::AppendArrayHeader(reply, numbers.size());
  for (const std::int64_t number : numbers) redis::AppendInteger(reply, number);
  return reply;
}

TEST(ClThrottleProperty, AgreesWithTheModelOnRandomTraffic) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE(testing::Message() << "SLUICE_TEST_SEED=" << seed);
    Random random(seed);
    RespEngine parts;
    resp::Worker worker(parts.engine, {}, [] { return resp::ServerInfo{}; });
    RespPeer peer(worker);
    for (int round = 0; round < 60; ++round) {
      model::Model model;
      const std::int64_t burst = random.AnySize(1000) - 1;
      const std::int64_t count = random.AnySize(10'000);
      const std::int64_t period = random.AnySize(100'000);
      const std::string key = "key" + std::to_string(round);
      const model::Spec spec{.kind = model::Kind::kTokenBucket,
                             .amount = burst + 1,
                             .refill = count,
                             .span_us = period * 1'000'000};
      for (int i = 0; i < 30; ++i) {
        parts.clock.Advance(Micros{random.AnySize(period * 1'000'000 / count + 1)});
        // A few at once, in one round.
        std::string sent;
        std::string expected;
        for (std::int64_t n = random.Between(1, 4); n > 0; --n) {
          const std::int64_t quantity = random.Between(0, random.OneIn(4) ? burst + 3 : 3);
          sent += RespCommand({"CL.THROTTLE", key, std::to_string(burst), std::to_string(count),
                               std::to_string(period), std::to_string(quantity)});
          const std::int64_t now_us = parts.clock.Now().time_since_epoch().count();
          const bool never = quantity > spec.amount;
          const auto answer = model.Decide(
              {{.key = "k", .name = "n", .spec = spec, .cost = never ? 0 : quantity}}, now_us);
          const auto seconds = [](std::int64_t us) { return (us + 999'999) / 1'000'000; };
          const bool limited = never || !answer.overall.allowed;
          expected += Integers({limited ? 1 : 0, spec.amount, answer.overall.remaining,
                                never || !limited ? -1 : seconds(answer.overall.retry_after_us),
                                seconds(answer.overall.reset_after_us)});
        }
        ASSERT_EQ(peer.Send(sent), expected) << sent;
      }
    }
  }
}

}  // namespace
}  // namespace sluice
