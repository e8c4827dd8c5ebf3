// SPDX-License-Identifier: Apache-2.0
// A guard's deny cache never changes a decision, nor any of its numbers: random traffic through it
// and directly to a memory store, side by side.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "conformance/traffic.h"
#include "sluice/guarded_store.h"
#include "sluice/memory_store.h"
#include "support/reset.h"

namespace sluice {
namespace {

// A memory store that does not report that it answers inline, so that the guard treats it as a
// remote one.
class RemoteStore final : public Store {
 public:
  explicit RemoteStore(const Clock* clock) : memory_(MemoryStore::Options{.clock = clock}) {}
  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    ++calls;
    memory_.Apply(requests, std::move(done));
  }
  void Watch(OnRaised on_raised) override { raised_ = std::move(on_raised); }

  // What another instance does, and what it announces.
  void TakeElsewhere(const Charge& charge) { (void)memory_.Check(charge); }
  void ResetElsewhere(const Charge& charge) { (void)memory_.Reset(charge); }
  void Tell(const Charge* charge) { raised_(charge); }

  std::atomic<std::int64_t> calls = 0;

 private:
  MemoryStore memory_;
  OnRaised raised_;
};

void ExpectSame(const Decision& cached, const Decision& direct) {
  EXPECT_EQ(cached.allowed, direct.allowed);
  EXPECT_EQ(cached.limit, direct.limit);
  EXPECT_EQ(cached.remaining, direct.remaining);
  EXPECT_EQ(cached.retry_after, direct.retry_after);
  EXPECT_EQ(cached.reset_after, direct.reset_after);
  EXPECT_EQ(cached.delay, direct.delay);
}

// As above, before others took what the cache has not heard of: no wait is too long.
void ExpectNotWorse(const Decision& cached, const Decision& direct) {
  EXPECT_GE(cached.remaining, direct.remaining);
  EXPECT_LE(cached.retry_after, direct.retry_after);
  EXPECT_LE(cached.reset_after, direct.reset_after);
}

class Pair {
 public:
  // Trusts what it remembers forever, unless told otherwise.
  explicit Pair(Micros trust = kSpanMax, std::size_t entries = 1'024)
      : guard(store, {.deadline = std::chrono::minutes(1),
                      .deny_cache_entries = entries,
                      .deny_cache_trust = trust,
                      .clock = &clock}) {}

  // Sends the same request to both; every number of both answers must be equal. If others take from
  // the same states, too, what is denied from memory must at least be denied.
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
    const bool cached = request.source == Source::kDenyCache;
    EXPECT_EQ(request.outcome->allowed, outcome->allowed);
    const auto expect = cached && others_take ? ExpectNotWorse : ExpectSame;
    for (std::size_t i = 0; i < charges.size(); ++i) expect(each[i], direct_each[i]);
    expect(*request.outcome, *outcome);
    hits += cached;
    denials += !outcome->allowed;
    return *outcome;
  }

  void Reset(const Charge& charge) {
    (void)testing_support::ResetAndWait(guard, charge);
    (void)direct.Reset(charge);
  }

  void TakeElsewhere(const Charge& charge) {
    others_take = true;
    store.TakeElsewhere(charge);
    (void)direct.Check(charge);
  }

  // Leaves taken only what `charge` takes. The guard hears of this state, or that any may be
  // affected.
  void RaiseElsewhere(const Charge& charge, bool any = false) {
    store.ResetElsewhere(charge);
    store.TakeElsewhere(charge);
    (void)direct.Reset(charge);
    (void)direct.Check(charge);
    store.Tell(any ? nullptr : &charge);
  }

  ManualClock clock{At(kStartUs)};
  RemoteStore store{&clock};
  GuardedStore guard;
  MemoryStore direct{MemoryStore::Options{.clock = &clock}};
  bool others_take = false;
  std::int64_t hits = 0;
  std::int64_t denials = 0;
};

// How many requests of each algorithm were denied, and how many of those from memory.
struct Counts {
  std::int64_t hits = 0;
  std::int64_t denials = 0;
};

enum class Others { kOnlyReset, kTake };

// One state, with everything that may happen to it.
void ExpectAsTheStore(std::uint64_t seed, Others others, std::map<Algorithm, Counts>& counts) {
  Random random(seed);
  for (int round = 0; round < 600; ++round) {
    const Algorithm algorithm = kAlgorithms[static_cast<std::size_t>(round) % kAlgorithms.size()];
    const Limit limit = RandomLimit(random, algorithm);
    const Limit other = RandomLimit(random, algorithm);
    SCOPED_TRACE(limit.ToString());
    const Micros trust = random.OneIn(2) ? kSpanMax : Micros{random.Between(0, 100'000'000)};
    Pair pair(trust, random.OneIn(4) ? 4 : 1'024);
    Decision last;
    const bool named = random.OneIn(3);
    const Limit* current = &limit;
    for (int i = 0; i < 200; ++i) {
      if (named && random.OneIn(30)) {
        current = current == &limit ? &other : &limit;
        // Numbers that only others ever use are never heard of.
        if (others == Others::kTake) pair.Ask({{.key = "k", .limit = current, .name = "n"}});
      }
      const auto any_charge = [&] {
        return Charge{.key = "k",
                      .limit = current,
                      .name = named ? "n" : "",
                      .cost = RandomCost(random, *current)};
      };
      if (random.OneIn(60)) pair.Reset(any_charge());
      if (random.OneIn(60)) pair.RaiseElsewhere(any_charge(), random.OneIn(4));
      if (others == Others::kTake && random.OneIn(10)) pair.TakeElsewhere(any_charge());
      const Charge charge = any_charge();
      last = pair.Ask({charge});
      if (testing::Test::HasFailure()) FAIL() << "request " << i << " of cost " << charge.cost;
      if (random.OneIn(2)) {
        const std::int64_t now = pair.clock.Now().time_since_epoch().count();
        pair.clock.Set(At(NextTime(random, now, *current, last, Time::kForward)));
      }
    }
    counts[algorithm].hits += pair.hits;
    counts[algorithm].denials += pair.denials;
  }
}

// Half of the denials, of costs and at times that are nearly the same. A log reports on each cost
// separately.
void ExpectOfUse(const std::map<Algorithm, Counts>& counts) {
  for (const auto& [algorithm, of] : counts) {
    EXPECT_GT(of.hits, of.denials / (algorithm == Algorithm::kSlidingWindow ? 5 : 2))
        << ToString(algorithm);
  }
}

void ExpectAsTheStoreAndOfUse(Others others) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    std::map<Algorithm, Counts> counts;
    ExpectAsTheStore(seed, others, counts);
    ExpectOfUse(counts);
  }
}

TEST(DenyCache, AnswersAsTheStoreWould) { ExpectAsTheStoreAndOfUse(Others::kOnlyReset); }

TEST(DenyCache, DeniesOnlyWhatTheStoreWouldWhileOthersTakeFromIt) {
  ExpectAsTheStoreAndOfUse(Others::kTake);
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
      Pair pair;
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
    EXPECT_GT(hits, 5000);
  }
}

// What others took also affects when a cost fits: at the same moment as the newest, later, and
// after the oldest has left.
TEST(DenyCache, HearsOfWhatOthersTookWithTheNextAnswerOfTheStore) {
  const Limit log = *Limit::Make(Algorithm::kSlidingWindow, 10, 1, Micros{60'000'000});
  for (const Micros later : {Micros{0}, Micros{1}, log.span() - Micros{1'000}}) {
    SCOPED_TRACE(later.count());
    Pair pair;
    const auto charge = [&](std::int64_t cost) {
      return Charge{.key = "k", .limit = &log, .cost = cost};
    };
    pair.Ask({charge(3)});
    pair.clock.Advance(Micros{1'000});
    pair.Ask({charge(3)});
    for (const std::int64_t cost : {9, 8, 7}) EXPECT_FALSE(pair.Ask({charge(cost)}).allowed);
    pair.clock.Advance(later);
    pair.TakeElsewhere(charge(3));
    pair.others_take = false;
    const std::int64_t calls = pair.store.calls;
    for (const std::int64_t cost : {5, 7, 8, 9, 5, 7, 8, 9}) {
      EXPECT_FALSE(pair.Ask({charge(cost)}).allowed);
    }
    EXPECT_EQ(pair.store.calls - calls, 4);
  }
}

TEST(DenyCache, SparesTheStoreUntilTheMomentOfTheRetry) {
  for (const Algorithm algorithm : kAlgorithms) {
    const Limit limit = SimpleLimit(algorithm, 5, 7, Micros{60'000'000});
    Pair pair;
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

// A client over its limit does not get through to the store by asking for other costs each time.
TEST(DenyCache, SparesTheStoreWhateverTheCost) {
  constexpr std::int64_t kCosts = 64;
  for (const Algorithm algorithm : kAlgorithms) {
    SCOPED_TRACE(ToString(algorithm));
    const Limit limit = SimpleLimit(algorithm, kCosts, 1, Micros{3'600'000'000});
    const auto ask = [&](Pair& pair, std::int64_t cost) {
      return pair.Ask({{.key = "k", .limit = &limit, .cost = cost}}).allowed;
    };
    Pair pair;
    for (std::int64_t i = 0; i < kCosts; ++i) {
      EXPECT_TRUE(ask(pair, 1));
      pair.clock.Advance(Micros{1'000});
    }
    const auto attack = [&](std::int64_t cheapest) {
      const std::int64_t calls = pair.store.calls;
      for (int round = 0; round < 10; ++round) {
        for (std::int64_t cost = cheapest; cost <= kCosts; ++cost) EXPECT_FALSE(ask(pair, cost));
        pair.clock.Advance(Micros{10});
      }
      return pair.store.calls - calls;
    };
    const bool log = algorithm == Algorithm::kSlidingWindow;
    EXPECT_EQ(attack(1), log ? kCosts : 1);
    if (!log) continue;
    pair.clock.Set(At(kStartUs) + limit.span());
    EXPECT_EQ(attack(2), 1) << "the oldest has left, and nothing else has changed";
    EXPECT_TRUE(ask(pair, 1));
    EXPECT_EQ(attack(1), kCosts) << "what is taken changes when the others fit";
  }
}

// The store carries a state over to other numbers when it is first asked under them, even for a
// peek; and under those it may recover faster.
TEST(DenyCache, ForgetsWhatWasDeniedUnderOtherNumbers) {
  const Limit slow = *Limit::Make(Algorithm::kGcra, 5, 1, Micros{3'600'000'000});
  const Limit fast = *Limit::Make(Algorithm::kGcra, 100, 1'000, Micros{1'000'000});
  const Limit window = *Limit::Make(Algorithm::kFixedWindow, 5, 0, Micros{3'600'000'000});
  const Charge slow_five{.key = "k", .limit = &slow, .name = "n", .cost = 5};
  const Charge fast_look{.key = "k", .limit = &fast, .name = "n", .cost = 0};
  const Charge elsewhere{.key = "other", .limit = &window, .cost = 0};
  const std::vector<std::vector<Charge>> looks = {{fast_look}, {elsewhere, fast_look}};
  for (const auto& look : looks) {
    Pair pair;
    EXPECT_TRUE(pair.Ask({slow_five}).allowed);
    EXPECT_FALSE(pair.Ask({slow_five}).allowed);
    pair.Ask(look);
    pair.clock.Advance(Micros{500'000});
    EXPECT_TRUE(pair.Ask({slow_five}).allowed);
    // The same in one call, which peeks before the denial is known.
    std::array<Request, 2> both = {Request{.charges = {&slow_five, 1}}, Request{.charges = look}};
    pair.guard.Apply(both, [] {});
    EXPECT_FALSE(both[0].outcome->allowed);
    (void)pair.direct.CheckAll(look);
    pair.clock.Advance(Micros{500'000});
    EXPECT_TRUE(pair.Ask({slow_five}).allowed);
  }
}

// Month-long denials that nobody asks for any more do not take the room of today's.
TEST(DenyCache, KeepsWhatIsBelievedOverWhatLastsLonger) {
  constexpr int kRoom = 4;
  const Limit month = *Limit::Make(Algorithm::kFixedWindow, 1, 0, Micros{2'592'000'000'000});
  const Limit minute = *Limit::Make(Algorithm::kFixedWindow, 1, 0, Micros{60'000'000});
  Pair pair(Micros{10'000'000}, kRoom);
  const auto deny_all = [&](const Limit& limit) {
    for (int i = 0; i < kRoom; ++i) {
      const std::string key = std::to_string(i);
      const Charge charge{.key = key, .limit = &limit};
      pair.Ask({charge});
      EXPECT_FALSE(pair.Ask({charge}).allowed);
    }
  };
  deny_all(month);
  pair.clock.Advance(Micros{11'000'000});
  deny_all(minute);
  const std::int64_t calls = pair.store.calls;
  deny_all(minute);
  EXPECT_EQ(pair.store.calls, calls);
}

// Many costs of a few logs in very little room, while everything is invalidated again and again.
TEST(DenyCacheConcurrency, TakesNoEntryForAnother) {
  constexpr std::int64_t kCosts = 16;
  const Limit limit = *Limit::Make(Algorithm::kSlidingWindow, kCosts, 1, Micros{60'000'000});
  const std::vector<std::string> keys = {"a", "b", "c"};
  Pair pair(kSpanMax, 16);
  for (std::int64_t i = 0; i < kCosts; ++i) {
    for (const std::string& key : keys) pair.Ask({{.key = key, .limit = &limit}});
    pair.clock.Advance(Micros{1'000});
  }
  const Micros first = limit.span() - kCosts * Micros{1'000};  // Until the first unit leaves.
  std::atomic<bool> stop = false;
  std::atomic<std::int64_t> hits = 0;
  std::vector<std::jthread> threads;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    threads.emplace_back([&, seed] {
      Random random(seed);
      for (int i = 0; i < 50'000; ++i) {
        const Charge charge{.key = keys[static_cast<std::size_t>(random.Between(0, 2))],
                            .limit = &limit,
                            .cost = random.Between(1, kCosts)};
        Request request{.charges = {&charge, 1}};
        pair.guard.Apply({&request, 1}, [] {});
        ASSERT_FALSE(request.outcome->allowed);
        ASSERT_EQ(request.outcome->remaining, 0);
        ASSERT_EQ(request.outcome->retry_after, first + (charge.cost - 1) * Micros{1'000});
        hits += request.source == Source::kDenyCache;
      }
    });
  }
  std::jthread teller([&] {
    for (std::size_t i = 0; !stop; ++i) {
      const Charge charge{.key = keys[i % keys.size()], .limit = &limit};
      pair.store.Tell(i % 5 == 0 ? nullptr : &charge);
      std::this_thread::yield();
    }
  });
  threads.clear();
  stop = true;
  EXPECT_GT(hits, 100);
}

}  // namespace
}  // namespace sluice
