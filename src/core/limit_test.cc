// SPDX-License-Identifier: Apache-2.0
#include "sluice/limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace sluice {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

std::string ParseError(std::string_view text) {
  const auto limit = Limit::Parse(text);
  if (limit) return "no error: " + limit->ToString();
  EXPECT_EQ(limit.error().code, ErrorCode::kInvalidLimit);
  return limit.error().message;
}

TEST(LimitText, ReadsEveryAlgorithm) {
  EXPECT_EQ(*Limit::Parse("algorithm=token_bucket,capacity=100,refill=10,period=1s"),
            *Limit::TokenBucket({.capacity = 100, .refill = 10, .period = 1s}));
  EXPECT_EQ(*Limit::Parse("algorithm=leaky_bucket,capacity=10,leak=1,period=1s"),
            *Limit::LeakyBucket({.capacity = 10, .leak = 1, .period = 1s}));
  EXPECT_EQ(*Limit::Parse("algorithm=gcra,burst=5,count=30,period=60s"),
            *Limit::Gcra({.burst = 5, .count = 30, .period = 1min}));
  EXPECT_EQ(*Limit::Parse("algorithm=fixed_window,limit=100,window=60s"),
            *Limit::FixedWindow({.limit = 100, .window = 1min}));
  EXPECT_EQ(*Limit::Parse("algorithm=sliding_window,limit=100,window=60s"),
            *Limit::SlidingWindow({.limit = 100, .window = 1min}));
  EXPECT_EQ(*Limit::Parse("algorithm=sliding_window_log,limit=100,window=60s"),
            *Limit::SlidingWindow({.limit = 100, .window = 1min}));
  EXPECT_EQ(*Limit::Parse("algorithm=sliding_window_counter,limit=100,window=60s"),
            *Limit::SlidingWindowCounter({.limit = 100, .window = 1min}));
}

TEST(MakeLimit, MakesWhatALimitSaysOfItself) {
  for (const Limit& limit : {*Limit::TokenBucket({.capacity = 100, .refill = 10, .period = 1s}),
                             *Limit::LeakyBucket({.capacity = 10, .leak = 1, .period = 1s}),
                             *Limit::Gcra({.burst = 5, .count = 30, .period = 1min}),
                             *Limit::FixedWindow({.limit = 100, .window = 1min}),
                             *Limit::SlidingWindow({.limit = 100, .window = 1min}),
                             *Limit::SlidingWindowCounter({.limit = 100, .window = 1min})}) {
    EXPECT_EQ(Limit::Make(limit.algorithm(), limit.amount(), limit.refill(), limit.span()), limit);
    for (const std::int64_t amount : {std::int64_t{0}, std::numeric_limits<std::int64_t>::min()}) {
      EXPECT_FALSE(Limit::Make(limit.algorithm(), amount, limit.refill(), limit.span()));
    }
  }
}

TEST(LimitText, IsASlidingWindowCounterUnlessNamed) {
  EXPECT_EQ(Limit::Parse("limit=100,window=60s")->algorithm(), Algorithm::kSlidingWindowCounter);
}

TEST(LimitText, TakesNamesInEitherCaseInAnyOrderWithBlanks) {
  EXPECT_EQ(*Limit::Parse(" PERIOD = 1S , Refill=10, capacity=100 ,algorithm=TOKEN_BUCKET "),
            *Limit::TokenBucket({.capacity = 100, .refill = 10, .period = 1s}));
}

TEST(LimitText, TakesEveryUnitOfTime) {
  for (const auto& [text, span] : std::initializer_list<std::pair<std::string, Micros>>{
           {"7us", 7us}, {"7ms", 7ms}, {"7s", 7s}, {"7m", 7min}, {"7h", 7h}, {"7d", 24h * 7}}) {
    EXPECT_EQ(Limit::Parse("limit=1,window=" + text)->span(), span) << text;
  }
}

TEST(LimitText, SurvivesTheRoundTrip) {
  for (const std::string text :
       {"algorithm=token_bucket,capacity=100,refill=10,period=1s",
        "algorithm=leaky_bucket,capacity=10,leak=1,period=1500us",
        "algorithm=gcra,burst=0,count=30,period=1m", "algorithm=fixed_window,limit=100,window=1h",
        "algorithm=sliding_window,limit=100,window=250ms",
        "algorithm=sliding_window_counter,limit=100,window=30d"}) {
    EXPECT_EQ(Limit::Parse(text)->ToString(), text);
  }
}

TEST(LimitText, ErrorsNameTheFieldTheValueAndWhatIsAccepted) {
  EXPECT_THAT(ParseError(""), HasSubstr("name=value"));
  EXPECT_THAT(ParseError("100/s"), AllOf(HasSubstr("\"100/s\""), HasSubstr("algorithm=")));
  EXPECT_THAT(ParseError("algorithm=tokens,capacity=1"),
              AllOf(HasSubstr("\"tokens\""), HasSubstr("token_bucket, leaky_bucket, gcra")));
  EXPECT_THAT(ParseError("algorithm=token_bucket,capacity=1,refill=1"),
              AllOf(HasSubstr("token_bucket needs period"), HasSubstr("capacity, refill, period")));
  EXPECT_THAT(ParseError("algorithm=leaky_bucket,capacity=1,refill=1,period=1s"),
              AllOf(HasSubstr("no field \"refill\""), HasSubstr("capacity, leak, period")));
  EXPECT_THAT(ParseError("limit=1,limit=2,window=1s"), HasSubstr("\"limit\" is given twice"));
  EXPECT_THAT(ParseError("limit=ten,window=1s"), AllOf(HasSubstr("limit"), HasSubstr("\"ten\"")));
  EXPECT_THAT(ParseError("limit=1.5,window=1s"), HasSubstr("whole number"));
  EXPECT_THAT(ParseError("limit=99999999999999999999,window=1s"), HasSubstr("whole number"));
  // Elsewhere it is a month.
  EXPECT_THAT(ParseError("limit=1,window=1M"),
              AllOf(HasSubstr("window"), HasSubstr("months"), HasSubstr("1m for minutes")));
  EXPECT_TRUE(Limit::Parse("limit=1,window=1MS"));
  EXPECT_TRUE(Limit::Parse("limit=1,window=1H"));
  EXPECT_THAT(ParseError("limit=1,window=60"), AllOf(HasSubstr("window"), HasSubstr("us, ms, s")));
  EXPECT_THAT(ParseError("limit=1,window=1.5s"), HasSubstr("whole number"));
  EXPECT_THAT(ParseError("limit=1,window=-1s"), HasSubstr("\"-1s\""));
  EXPECT_THAT(ParseError("limit=1,window=s"), HasSubstr("\"s\""));
  EXPECT_THAT(ParseError("limit=1,window=9999999999999d"), HasSubstr("too long"));
  EXPECT_THAT(ParseError("limit=1,window=1s,"), HasSubstr("name=value"));
  EXPECT_THAT(ParseError("a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1"), HasSubstr("more than 8 fields"));
}

TEST(Limit, RefusesNumbersOutOfRangeByName) {
  EXPECT_THAT(ParseError("algorithm=token_bucket,capacity=0,refill=1,period=1s"),
              HasSubstr("capacity=0 is out of range; expected 1 to 9007199254740991"));
  EXPECT_THAT(ParseError("algorithm=token_bucket,capacity=1,refill=-1,period=1s"),
              HasSubstr("refill=-1"));
  EXPECT_THAT(ParseError("algorithm=leaky_bucket,capacity=1,leak=0,period=1s"),
              HasSubstr("leak=0"));
  EXPECT_THAT(ParseError("algorithm=gcra,burst=-1,count=1,period=1s"), HasSubstr("burst=-1"));
  EXPECT_THAT(ParseError("algorithm=gcra,burst=1,count=0,period=1s"), HasSubstr("count=0"));
  EXPECT_THAT(ParseError("limit=0,window=1s"), HasSubstr("limit=0"));
  EXPECT_THAT(ParseError("limit=1,window=0s"), HasSubstr("window=0us"));
  EXPECT_THAT(ParseError("algorithm=fixed_window,limit=9007199254740992,window=1s"),
              HasSubstr("limit=9007199254740992"));
}

TEST(Limit, GcraIsABucketOfBurstPlusOne) {
  const Limit limit = *Limit::Gcra({.burst = 5, .count = 30, .period = 1min});
  EXPECT_EQ(limit.amount(), 6);
  EXPECT_EQ(limit.rate(), 1);
  EXPECT_EQ(limit.unit(), 2'000'000);
}

TEST(Limit, PicksTheFinestTickThatKeepsProductsBelowTwoToThe53) {
  EXPECT_EQ(Limit::TokenBucket({.capacity = 100, .refill = 7, .period = 3s})->tick(), 1us);
  EXPECT_EQ(Limit::TokenBucket({.capacity = 1'000'000, .refill = 1, .period = 24h * 30})->tick(),
            1ms);
  EXPECT_EQ(Limit::TokenBucket({.capacity = 1'000'000'000, .refill = 1, .period = 24h})->tick(),
            1s);
  EXPECT_EQ(Limit::SlidingWindowCounter({.limit = 100, .window = 24h * 30})->tick(), 1us);
  EXPECT_EQ(Limit::SlidingWindowCounter({.limit = 1'000'000, .window = 24h * 30})->tick(), 1ms);
  EXPECT_EQ(Limit::SlidingWindowCounter({.limit = 1'000'000'000, .window = 24h * 30})->tick(), 1s);
  // The boundary itself: 2^53 - 1 = 6361 * 69431 * 20394401.
  EXPECT_EQ(
      Limit::TokenBucket({.capacity = 6361, .refill = 1, .period = Micros{1416003655831}})->tick(),
      1us);
  EXPECT_FALSE(Limit::TokenBucket({.capacity = 6362, .refill = 1, .period = Micros{1416003655831}}))
      << "one more does not fit, and this period has no common divisor with a coarser tick";
}

TEST(Limit, RefusesWhatFitsNoTickAndSaysWhy) {
  EXPECT_THAT(ParseError("algorithm=token_bucket,capacity=9007199254740991,refill=1,period=1h"),
              AllOf(HasSubstr("2^53"), HasSubstr("smaller capacity")));
  EXPECT_THAT(ParseError("limit=70000000000000,window=1h"),
              AllOf(HasSubstr("2^53"), HasSubstr("smaller limit")));
  EXPECT_THAT(ParseError("limit=1000000,window=86400000001us"), HasSubstr("whole seconds"));
}

TEST(Limit, DifferentLimitsHaveDifferentFingerprints) {
  std::set<std::uint64_t> fingerprints;
  for (int amount = 1; amount <= 100; ++amount) {
    for (int span = 1; span <= 100; ++span) {
      fingerprints.insert(
          Limit::FixedWindow({.limit = amount, .window = Micros{span}})->fingerprint());
      fingerprints.insert(
          Limit::SlidingWindow({.limit = amount, .window = Micros{span}})->fingerprint());
    }
  }
  EXPECT_EQ(fingerprints.size(), 20'000u);
}

}  // namespace
}  // namespace sluice
