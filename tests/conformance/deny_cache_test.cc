// SPDX-License-Identifier: Apache-2.0
// A guard's deny cache never changes a decision: random traffic through it and straight to a memory
// store, side by side.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "conformance/traffic.h"
#include "sluice/guarded_store.h"
#include "sluice/memory_store.h"

namespace sluice {
namespace {

// A memory store that does not say that it answers inline, so that the guard treats it as a remote
// one.
class RemoteStore final : public Store {
 public:
  explicit RemoteStore(const Clock* clock) : memory_(MemoryStore::Options{.clock = clock}) {}
  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    ++calls;
    memory_.Apply(requests, std::move(done));
  }
  void Reset(const Charge& charge, std::move_only_function<void(Expected<bool>)> done) override {
    done(memory_.Reset(charge));
  }
  void Watch(OnRaised on_raised) override { raised_ = std::move(on_raised); }

  // As another instance would.
  void ResetElsewhere(const Charge& charge) {
    (void)memory_.Reset(charge);
    raised_(&charge);
  }

  std::int64_t calls = 0;

 private:
  MemoryStore memory_;
  OnRaised raised_;
};

bool ShowsAllOfItself(const Limit& limit) {
  return limit.algorithm() != Algorithm::kSlidingWindow &&
         limit.algorithm() != Algorithm::kSlidingWindowCounter;
}

// Equal in every number, but for what remains of a sliding window, which the cache may understate
// when the cost is above 1.
void ExpectSame(const Decision& cached, const Decision& direct, bool exact) {
  Decision same = cached;
  if (!exact) {
    EXPECT_LE(cached.remaining, direct.remaining);
    same.remaining = direct.remaining;
  }
  EXPECT_EQ(same.allowed, direct.allowed);
  EXPECT_EQ(same.limit, direct.limit);
  EXPECT_EQ(same.remaining, direct.remaining);
  EXPECT_EQ(same.retry_after, direct.retry_after);
  EXPECT_EQ(same.reset_after, direct.reset_after);
  EXPECT_EQ(same.delay, direct.delay);
}

class Pair {
 public:
  // Believes what it remembers for as long as it takes, unless told otherwise.
  explicit Pair(std::uint64_t seed, Micros trust = kSpanMax)
      : random(seed),
        guard(store,
              {.deadline = std::chrono::minutes(1), .deny_cache_trust = trust, .clock = &clock}) {}

  // The same request to both; every number of both answers must be equal.
  Decision Ask(const std::vector<Charge>& charges) {
    std::vector<Decision> each(charges.size());
    std::vector<Decision> direct_each(charges.size());
    Request request{.charges = charges, .each = each};
    bool done = false;
    guard.Apply({&request, 1}, [&] { done = true; });
    EXPECT_TRUE(done);
    const auto outcome = direct.CheckAll(charges, direct_each);
    EXPECT_EQ(request.outcome.has_value(), outcome.has_value());
    if (!outcome || !request.outcome) {
      if (!outcome && !request.outcome) {
        EXPECT_EQ(request.outcome.error().code, outcome.error().code);
      }
      return {};
    }
    bool exact = true;
    for (std::size_t i = 0; i < charges.size(); ++i) {
      const bool one = request.source == Source::kStore || ShowsAllOfItself(*charges[i].limit) ||
                       (charges[i].cost == 1 && !direct_each[i].allowed);
      exact = exact && one;
      ExpectSame(each[i], direct_each[i], one);
    }
    if (exact) {
      ExpectSame(*request.outcome, *outcome, true);
    } else {
      EXPECT_EQ(request.outcome->allowed, outcome->allowed);
      EXPECT_EQ(request.outcome->retry_after, outcome->retry_after);
      EXPECT_EQ(request.outcome->reset_after, outcome->reset_after);
    }
    hits += request.source == Source::kDenyCache;
    denials += !outcome->allowed;
    return *outcome;
  }

  void Reset(const Charge& charge) {
    guard.Reset(charge, [](auto) {});
    (void)direct.Reset(charge);
  }

  void ResetElsewhere(const Charge& charge) {
    store.ResetElsewhere(charge);
    (void)direct.Reset(charge);
  }

  Random random;
  ManualClock clock{At(kStartUs)};
  RemoteStore store{&clock};
  GuardedStore guard;
  MemoryStore direct{MemoryStore::Options{.clock = &clock}};
  std::int64_t hits = 0;
  std::int64_t denials = 0;
};

TEST(DenyCache, AnswersAsTheStoreWould) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    std::map<Algorithm, std::pair<std::int64_t, std::int64_t>> hits_of;
    for (int round = 0; round < 600; ++round) {
      const Algorithm algorithm = kAlgorithms[static_cast<std::size_t>(round) % kAlgorithms.size()];
      const Limit limit = RandomLimit(random, algorithm);
      const Limit other = RandomLimit(random, algorithm);
      SCOPED_TRACE(limit.ToString());
      const Micros trust = random.OneIn(2) ? kSpanMax : Micros{random.Between(0, 100'000'000)};
      Pair pair(static_cast<std::uint64_t>(random.Between(0, 1LL << 62)), trust);
      Decision last;
      const bool named = random.OneIn(3);
      const Limit* current = &limit;
      for (int i = 0; i < 200; ++i) {
        if (named && random.OneIn(30)) current = current == &limit ? &other : &limit;
        const Charge charge{.key = "k",
                            .limit = current,
                            .name = named ? "n" : "",
                            .cost = RandomCost(random, *current)};
        if (random.OneIn(60)) pair.Reset(charge);
        if (random.OneIn(60)) pair.ResetElsewhere(charge);
        last = pair.Ask({charge});
        if (testing::Test::HasFailure()) {
          FAIL() << "request " << i << " of cost " << charge.cost;
        }
        if (random.OneIn(2)) {
          const std::int64_t now = pair.clock.Now().time_since_epoch().count();
          pair.clock.Set(At(NextTime(random, now, *current, last, Time::kForward)));
        }
      }
      hits_of[algorithm].first += pair.hits;
      hits_of[algorithm].second += pair.denials;
    }
    for (const auto& [algorithm, counts] : hits_of) {
      EXPECT_GT(counts.first, counts.second / 20) << ToString(algorithm) << ": it must be of use";
    }
  }
}

TEST(DenyCache, AnswersGroupsAsTheStoreWould) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    std::int64_t hits = 0;
    for (int round = 0; round < 600; ++round) {
      std::vector<Limit> limits;
      const std::int64_t count = random.Between(2, 4);
      for (std::int64_t i = 0; i < count; ++i) {
        const auto algorithm = static_cast<std::size_t>(random.Between(0, kAlgorithms.size() - 1));
        limits.push_back(RandomLimit(random, kAlgorithms[algorithm]));
      }
      Pair pair(1);
      Decision last;
      for (int i = 0; i < 100; ++i) {
        std::vector<Charge> charges;
        for (const Limit& limit : limits) {
          if (random.OneIn(5)) continue;
          charges.push_back({.key = random.OneIn(4) ? "l" : "k",
                             .limit = &limit,
                             .cost = random.OneIn(3) ? RandomCost(random, limit) : 1});
        }
        if (charges.empty()) continue;
        if (random.OneIn(10)) charges.push_back(charges.front());
        last = pair.Ask(charges);
        if (testing::Test::HasFailure()) FAIL() << "request " << i << " of round " << round;
        if (random.OneIn(2)) {
          const std::int64_t now = pair.clock.Now().time_since_epoch().count();
          pair.clock.Set(At(NextTime(random, now, limits.front(), last, Time::kForward)));
        }
      }
      hits += pair.hits;
    }
    EXPECT_GT(hits, 1000);
  }
}

TEST(DenyCache, SparesTheStoreUntilTheMomentOfTheRetry) {
  for (const Algorithm algorithm : kAlgorithms) {
    const Limit limit = *MakeLimit(algorithm, 5, 7, Micros{60'000'000});
    Pair pair(1);
    for (int i = 0; i < 5; ++i) pair.Ask({{.key = "k", .limit = &limit}});
    const Decision denied = pair.Ask({{.key = "k", .limit = &limit}});
    ASSERT_FALSE(denied.allowed) << ToString(algorithm);
    const std::int64_t calls = pair.store.calls;
    for (int i = 0; i < 100; ++i) {
      EXPECT_FALSE(pair.Ask({{.key = "k", .limit = &limit}}).allowed);
      pair.clock.Advance((denied.retry_after - Micros{1}) / 100);
    }
    pair.clock.Advance((denied.retry_after - Micros{1}) -
                       100 * ((denied.retry_after - Micros{1}) / 100));
    EXPECT_FALSE(pair.Ask({{.key = "k", .limit = &limit}}).allowed);
    EXPECT_EQ(pair.store.calls, calls) << ToString(algorithm);
    pair.clock.Advance(Micros{1});
    EXPECT_TRUE(pair.Ask({{.key = "k", .limit = &limit}}).allowed) << ToString(algorithm);
  }
}

}  // namespace
}  // namespace sluice
