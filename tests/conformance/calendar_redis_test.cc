// SPDX-License-Identifier: Apache-2.0
// States of calendars that were written with other data about time zones, or by a clock that was
// ahead: the script decides on them as the kernel does.
#include <gtest/gtest.h>

#include <string>

#include "base/text.h"
#include "conformance/script.h"
#include "conformance/traffic.h"
#include "core/seen.h"
#include "store/redis/state_key.h"

namespace sluice {
namespace {

using core::Calendar;

constexpr std::int64_t kHour = 3'600'000'000;

class CalendarRedisTest : public ScriptTest {
 protected:
  void Put(const Charge& charge, const Calendar::State& state) {
    const Limit& limit = *charge.limit;
    const std::string value =
        text::Cat("k:", limit.amount(), ":", limit.unit(), ":", limit.refill(), ":1 ", state.start,
                  " ", state.length, " ", state.count);
    ASSERT_EQ(Tell(redis::Command("SET", redis::StateKey("p", charge), value, "PX", "86400000")),
              "OK");
  }
};

TEST_F(CalendarRedisTest, DecidesOnWindowsOfOtherDataAsTheKernelDoes) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE(text::Cat("SLUICE_TEST_SEED=", seed));
    Random random(seed);
    int denied = 0;
    int lasting = 0;
    for (int round = 0; round < 1'000; ++round) {
      const Limit limit = RandomCalendar(random);
      const std::int64_t now =
          kStartUs + random.Between(-400, 400) * 24 * kHour + random.Between(0, 24 * kHour);
      // One of the windows nearby, with bounds that are some hours off.
      const auto window = Calendar::WindowAt(
          limit, now + random.Between(-2, 1) * random.Between(0, limit.span().count()));
      const auto off = [&] { return random.OneIn(3) ? 0 : random.Between(-26, 26) * kHour / 2; };
      Calendar::State state{.start = window.start + off(), .length = 0, .count = 0};
      state.length = std::max<std::int64_t>(1, window.end + off() - state.start);
      state.count = random.Between(0, limit.amount());
      const std::string key = text::Cat(seed, "-", round);
      const Charge charge{.key = key, .limit = &limit, .cost = RandomCost(random, limit)};
      if (charge.cost > limit.amount()) continue;
      Put(charge, state);
      for (int again = 0; again < 2; ++again) {
        SCOPED_TRACE(text::Cat(limit.ToString(), " now=", now, " start=", state.start, " length=",
                               state.length, " count=", state.count, " cost=", charge.cost));
        const auto expected = Calendar::Decide(limit, &state, At(now), charge.cost);
        Decision each;
        SeenState seen;
        Request request{
            .charges = {&charge, 1}, .now = At(now), .each = {&each, 1}, .seen = {&seen, 1}};
        Run({.request = &request});
        ASSERT_TRUE(request.outcome) << request.outcome.error().message;
        ASSERT_EQ(*request.outcome, expected.decision);
        ASSERT_EQ(core::StateOf<Calendar>(seen), expected.next);
        denied += !expected.decision.allowed;
        lasting += expected.next.start == state.start;
        if (expected.decision.allowed && charge.cost > 0) state = expected.next;
      }
    }
    EXPECT_GT(denied, 100);
    EXPECT_GT(lasting, 100);
  }
}

}  // namespace
}  // namespace sluice
