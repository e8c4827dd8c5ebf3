// SPDX-License-Identifier: Apache-2.0
// CL.THROTTLE, from its bytes to its replies, against the reference model, on both stores.
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string>

#include "conformance/model.h"
#include "conformance/traffic.h"
#include "support/redis_at_time.h"
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

// A few commands on one key at one moment, and the expected answers.
struct Exchange {
  std::string sent;
  std::string expected;
};

Exchange RandomCommands(Random& random, model::Model& model, const std::string& key,
                        const model::Spec& spec, std::int64_t now_us) {
  Exchange exchange;
  for (std::int64_t n = random.Between(1, 4); n > 0; --n) {
    const std::int64_t quantity = random.Between(0, random.OneIn(4) ? spec.amount + 2 : 3);
    exchange.sent += RespCommand(
        {"CL.THROTTLE", key, std::to_string(spec.amount - 1), std::to_string(spec.refill),
         std::to_string(spec.span_us / 1'000'000), std::to_string(quantity)});
    const bool never = quantity > spec.amount;
    const auto answer = model.Decide(
        {{.key = key, .name = "n", .spec = spec, .cost = never ? 0 : quantity}}, now_us);
    const auto seconds = [](std::int64_t us) { return (us + 999'999) / 1'000'000; };
    const bool limited = never || !answer.overall.allowed;
    exchange.expected += Integers({limited ? 1 : 0, spec.amount, answer.overall.remaining,
                                   never || !limited ? -1 : seconds(answer.overall.retry_after_us),
                                   seconds(answer.overall.reset_after_us)});
  }
  return exchange;
}

void ExpectAsTheModel(Random& random, RespEngine& parts, ManualClock& clock, int rounds) {
  resp::Worker worker(parts.engine, {}, [] { return resp::ServerInfo{}; });
  RespPeer peer(worker);
  model::Model model;
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t count = random.AnySize(10'000);
    const std::int64_t period = random.AnySize(100'000);
    const std::string key = "key" + std::to_string(round);
    const model::Spec spec{.kind = model::Kind::kTokenBucket,
                           .amount = random.AnySize(1000),
                           .refill = count,
                           .span_us = period * 1'000'000};
    for (int i = 0; i < 30; ++i) {
      clock.Advance(Micros{random.AnySize(period * 1'000'000 / count + 1)});
      const std::int64_t now_us = clock.Now().time_since_epoch().count();
      const Exchange exchange = RandomCommands(random, model, key, spec, now_us);
      std::string replies = peer.Send(exchange.sent);
      if (peer.waiting()) replies += peer.Resume();
      ASSERT_EQ(replies, exchange.expected) << exchange.sent;
    }
  }
}

TEST(ClThrottleProperty, AgreesWithTheModelOnRandomTraffic) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE(testing::Message() << "SLUICE_TEST_SEED=" << seed);
    Random random(seed);
    RespEngine parts;
    ExpectAsTheModel(random, parts, parts.clock, 60);
  }
}

TEST(ClThrottleProperty, AgreesWithTheModelOnRedis) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE(testing::Message() << "SLUICE_TEST_SEED=" << seed);
    Random random(seed);
    ManualClock clock{At(kStartUs)};
    testing_support::RedisAtTime redis(clock);
    RespEngine parts(&redis);
    ExpectAsTheModel(random, parts, clock, 20);
  }
}

}  // namespace
}  // namespace sluice
