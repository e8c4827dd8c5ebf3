// SPDX-License-Identifier: Apache-2.0
// Redis holds, extends and settles like memory: the same random traffic must get the same answer in
// every field. Time only goes forward, because memory notices an expiry for good when it looks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "conformance/hold_on_store.h"
#include "conformance/model_spec.h"
#include "conformance/traffic.h"
#include "core/arithmetic.h"
#include "sluice/hold.h"
#include "sluice/memory_store.h"
#include "sluice/redis_store.h"
#include "store/redis/state_key.h"
#include "support/redis_cluster.h"
#include "support/redis_server.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kRememberedUs = kHoldRemembered.count();

testing_support::RedisServer& Server() {
  static testing_support::RedisServer server;
  return server;
}

// A request, and all that it points to.
struct Asked {
  std::deque<std::string> texts;
  std::deque<Limit> limits;
  std::vector<Charge> charges;
  HoldTerms terms;
  std::vector<Decision> each;
  std::vector<SeenState> seen;
  HoldList listed;
  Request request;

  void Ask(Store& store) {
    std::promise<void> done;
    store.Apply({&request, 1}, [&] { done.set_value(); });
    done.get_future().wait();
  }
};

// What memory was asked and how it answered, and the same for Redis.
class Recording {
 public:
  const Asked& Ask(MemoryStore& memory, const std::vector<Charge>& charges, std::int64_t now_us,
                   Action action, const HoldTerms& terms = {}) {
    Asked& first = Fill(expected_.emplace_back(), charges, now_us, action, terms);
    Fill(asked_.emplace_back(), charges, now_us, action, terms);
    first.Ask(memory);
    return first;
  }

  void ExpectSameOf(Store& store) {
    for (std::size_t i = 0; i < asked_.size(); ++i) {
      const Asked& expected = expected_[i];
      Asked& asked = asked_[i];
      asked.Ask(store);
      std::string trace = "step " + std::to_string(i) + " action " +
                          std::to_string(static_cast<int>(asked.request.action)) +
                          " now=" + std::to_string(asked.request.now->time_since_epoch().count()) +
                          " id " + std::string(asked.terms.id) + " ttl " +
                          std::to_string(asked.terms.ttl.count());
      for (const Charge& charge : asked.charges) {
        trace += "\n  " + std::string(charge.key) + " " + charge.limit->ToString() +
                 " cost=" + std::to_string(charge.cost);
      }
      SCOPED_TRACE(trace);
      const auto& outcome = asked.request.outcome;
      ASSERT_EQ(outcome.has_value(), expected.request.outcome.has_value())
          << (outcome ? expected.request.outcome.error().message : outcome.error().message);
      if (!outcome) {
        ASSERT_EQ(outcome.error().code, expected.request.outcome.error().code);
        ASSERT_EQ(outcome.error().message, expected.request.outcome.error().message);
        codes_.insert(outcome.error().code);
        continue;
      }
      ASSERT_EQ(*outcome, *expected.request.outcome);
      ASSERT_EQ(asked.each, expected.each);
      ASSERT_EQ(asked.seen, expected.seen);
      ASSERT_EQ(asked.terms.expires, expected.terms.expires);
      ASSERT_EQ(asked.terms.late, expected.terms.late);
      ASSERT_EQ(asked.terms.overdrawn, expected.terms.overdrawn);
      ASSERT_EQ(asked.listed.live, expected.listed.live);
      ASSERT_EQ(asked.listed.holds, expected.listed.holds);
      // Redis forgets an empty log, and memory does later.
      const bool has_log = std::ranges::any_of(asked.limits, [](const Limit& limit) {
        return limit.algorithm() == Algorithm::kSlidingWindow;
      });
      if (compares_existed && !has_log) {
        ASSERT_EQ(asked.request.existed, expected.request.existed);
      }
      denied_ += !outcome->allowed;
      late_ += asked.terms.late;
      overdrawn_ += asked.terms.overdrawn;
      held_ += outcome->held > 0;
      listed_ += !asked.listed.holds.empty();
    }
  }

  // All that should be compared did happen.
  void ExpectMuchHappened() const {
    EXPECT_GT(denied_, 10);
    EXPECT_GT(late_, 10);
    EXPECT_GT(held_, 100);
    EXPECT_GT(listed_, 10);
    EXPECT_TRUE(codes_.contains(ErrorCode::kHoldConflict));
    EXPECT_TRUE(codes_.contains(ErrorCode::kHoldLost));
  }
  int overdrawn() const { return overdrawn_; }

  bool compares_existed = true;

 private:
  static Asked& Fill(Asked& asked, const std::vector<Charge>& charges, std::int64_t now_us,
                     Action action, const HoldTerms& terms) {
    for (const Charge& charge : charges) {
      asked.charges.push_back({.key = asked.texts.emplace_back(charge.key),
                               .limit = &asked.limits.emplace_back(*charge.limit),
                               .name = asked.texts.emplace_back(charge.name),
                               .cost = charge.cost});
    }
    asked.terms = terms;
    asked.terms.id = asked.texts.emplace_back(terms.id);
    asked.each.resize(charges.size());
    asked.seen.resize(charges.size());
    const bool holds =
        action == Action::kHold || action == Action::kSettle || action == Action::kExtend;
    asked.request = {.charges = asked.charges,
                     .now = At(now_us),
                     .each = asked.each,
                     .seen = asked.seen,
                     .action = action,
                     .hold = holds ? &asked.terms : nullptr};
    if (action == Action::kListHolds) {
      asked.listed.only = asked.terms.id;
      asked.request.listed = &asked.listed;
    }
    return asked;
  }

  std::deque<Asked> expected_;
  std::deque<Asked> asked_;
  std::set<ErrorCode> codes_;
  int denied_ = 0;
  int late_ = 0;
  int overdrawn_ = 0;
  int held_ = 0;
  int listed_ = 0;
};

Limit RandomHoldLimit(Random& random, Algorithm algorithm) {
  while (true) {
    if (algorithm == Algorithm::kConcurrency) {
      const auto limit = Limit::Make(algorithm, random.Between(1, 30), 1,
                                     Micros{random.Between(1'000, 3'000'000)});
      if (limit) return *limit;
      continue;
    }
    const Limit limit = RandomLimit(random, algorithm);
    // Sums of what is on hold stay exact.
    if (limit.amount() < (1LL << 45)) return limit;
  }
}

Algorithm AnyAlgorithm(Random& random) {
  return core::kAlgorithms[static_cast<std::size_t>(random.Between(
                               0, static_cast<std::int64_t>(core::kAlgorithmCount) - 1))]
      .algorithm;
}

// Random requests about a few keys and ids.
class Traffic {
 public:
  Traffic(Random& random, MemoryStore& memory, Recording& recording)
      : random_(random), memory_(memory), recording_(recording) {}

  // One request under these limits, at a later moment.
  void Step(const std::vector<Charge>& states) {
    const auto pick =
        static_cast<std::size_t>(random_.Between(0, static_cast<std::int64_t>(states.size()) - 1));
    const Limit& limit = *states[pick].limit;
    Advance(limit);
    const std::string id(1, static_cast<char>('a' + random_.Between(0, 5)));
    const Action action = PickAction();
    const bool holds =
        action == Action::kHold || action == Action::kSettle || action == Action::kExtend;
    const std::int64_t cost =
        RandomCost(random_, limit, action == Action::kHold ? Action::kCheck : action);
    std::vector<Charge> charges = states;
    for (Charge& charge : charges) {
      const bool needs_hold = core::NeedsHold(*charge.limit);
      charge.cost = cost;
      if (action == Action::kHold || action == Action::kCheck) {
        charge.cost = std::min(cost, charge.limit->amount());
      }
      if (action == Action::kSettle && random_.OneIn(3)) charge.cost = 0;
      if (needs_hold && !holds && !random_.OneIn(50)) charge.cost = 0;
    }
    HoldTerms terms{.id = id,
                    .ttl = Ttl(limit),
                    .on_expiry = random_.OneIn(2) ? OnExpiry::kRelease : OnExpiry::kCharge};
    const Asked& asked = recording_.Ask(memory_, charges, now_, action, terms);
    // Now and then again: it is idempotent.
    if (holds && random_.OneIn(8)) recording_.Ask(memory_, charges, now_, action, terms);
    if (random_.OneIn(5)) {
      recording_.Ask(memory_, {charges[pick]}, now_, Action::kListHolds,
                     {.id = random_.OneIn(2) ? id : ""});
    }
    if (asked.request.outcome) {
      last_ = *asked.request.outcome;
      if (holds && action != Action::kSettle) expiry_ = core::Us(asked.terms.expires);
    }
  }

 private:
  Action PickAction() {
    switch (random_.Between(0, 19)) {
      case 0:
        return random_.OneIn(8) ? Action::kReset : Action::kCheck;
      case 1:
        return Action::kDebit;
      case 2:
        return Action::kGive;
      case 3:
      case 4:
      case 5:
      case 6:
        return Action::kCheck;
      case 7:
      case 8:
        return Action::kExtend;
      case 9:
      case 10:
      case 11:
      case 12:
        return Action::kSettle;
      default:
        return Action::kHold;
    }
  }

  Micros Ttl(const Limit& limit) {
    const std::int64_t span = limit.span().count();
    const std::int64_t ttl = random_.OneIn(3)   ? random_.AnySize(kHoldTtlMax.count())
                             : random_.OneIn(2) ? random_.Between(0, span) + 1'000
                                                : 1'000;
    return Micros{std::clamp(ttl, kHoldTtlMin.count(), kHoldTtlMax.count())};
  }

  void Advance(const Limit& limit) {
    const std::int64_t end = core::Us(kTimeMax - 2 * kHoldTtlMax);
    std::int64_t next = NextTime(random_, now_, limit, last_, Time::kForward);
    if (random_.OneIn(4)) next = expiry_ + random_.Between(-1, 1);
    if (random_.OneIn(20)) next = expiry_ + kRememberedUs + random_.Between(-1, 1);
    // Mostly close enough for holds to be remembered.
    if (next > now_ + 4 * kRememberedUs && !random_.OneIn(10)) next = now_ + 1;
    now_ = std::clamp(next, now_, end);
  }

  Random& random_;
  MemoryStore& memory_;
  Recording& recording_;
  std::int64_t now_ = kStartUs;
  std::int64_t expiry_ = kStartUs;
  Decision last_;
};

class RedisHolds : public testing::Test {
 protected:
  static std::unique_ptr<RedisStore> MakeRedis() {
    static int count = 0;
    return RedisStore::Create({.uri = Server().Uri("?timeout=60s&connect_timeout=60s&prefix=h" +
                                                   std::to_string(++count))})
        .value();
  }
  void TearDown() override {
    EXPECT_EQ(Server().Cli("eval \"local n = 0; for _, k in ipairs(redis.call('keys', '*')) do "
                           "if redis.call('pttl', k) == -1 then n = n + 1 end end return n\" 0"),
              "0\n")
        << "everything expires by itself";
  }

  template <typename Record>
  static void ExpectSame(Record record, bool compares_existed = true) {
    for (const std::uint64_t seed : Seeds()) {
      SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
      Random random(seed);
      const auto redis = MakeRedis();
      MemoryStore memory(MemoryStore::Options{.recovered_kept_for = Micros::max()});
      Recording recording;
      recording.compares_existed = compares_existed;
      record(random, memory, recording);
      recording.ExpectSameOf(*redis);
      if (HasFatalFailure()) return;
      recording.ExpectMuchHappened();
    }
  }
};

class RedisHoldsLikeMemory : public RedisHolds, public testing::WithParamInterface<Algorithm> {};

TEST_P(RedisHoldsLikeMemory, InEveryFieldOfEveryAnswer) {
  ExpectSame([](Random& random, MemoryStore& memory, Recording& recording) {
    for (int round = 0; round < 60; ++round) {
      const Limit limit = RandomHoldLimit(random, GetParam());
      const std::string key = std::to_string(round);
      Traffic traffic(random, memory, recording);
      for (int step = 0; step < 100; ++step) traffic.Step({{.key = key, .limit = &limit}});
    }
  });
}

std::vector<Algorithm> AllAlgorithms() {
  std::vector<Algorithm> all;
  for (const core::AlgorithmRow& row : core::kAlgorithms) all.push_back(row.algorithm);
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, RedisHoldsLikeMemory, testing::ValuesIn(AllAlgorithms()),
                         [](const auto& param) { return std::string(ToString(param.param)); });

void RecordGroups(Random& random, MemoryStore& memory, Recording& recording, int rounds,
                  std::string_view tag) {
  for (int round = 0; round < rounds; ++round) {
    std::deque<Limit> limits;
    std::deque<std::string> keys;
    std::vector<Charge> charges;
    for (std::int64_t i = random.Between(2, 4); i > 0; --i) {
      limits.push_back(RandomHoldLimit(random, AnyAlgorithm(random)));
      keys.push_back(std::to_string(round) + std::string(tag) + std::to_string(i % 2));
      charges.push_back({.key = keys.back(), .limit = &limits.back()});
    }
    // Now and then a state occurs twice.
    if (random.OneIn(4)) charges.push_back(charges.front());
    Traffic traffic(random, memory, recording);
    for (int step = 0; step < 60; ++step) traffic.Step(charges);
  }
}

TEST_F(RedisHolds, OfGroups) {
  ExpectSame([](Random& random, MemoryStore& memory, Recording& recording) {
    RecordGroups(random, memory, recording, 60, "g");
  });
}

TEST_F(RedisHolds, SurviveLimitsThatChangeUnderTheirName) {
  ExpectSame(
      [](Random& random, MemoryStore& memory, Recording& recording) {
        for (int round = 0; round < 100; ++round) {
          std::vector<Limit> limits;
          for (int i = 0; i < 3; ++i)
            limits.push_back(RandomHoldLimit(random, AnyAlgorithm(random)));
          if (const auto other =
                  Limit::Make(limits[0].algorithm(), limits[0].amount() + random.Between(1, 9),
                              limits[0].refill(), limits[0].span())) {
            limits.push_back(*other);
          }
          const std::string key = std::to_string(round);
          Traffic traffic(random, memory, recording);
          std::size_t current = 0;
          for (int step = 0; step < 60; ++step) {
            if (random.OneIn(6)) {
              current = static_cast<std::size_t>(
                  random.Between(0, static_cast<std::int64_t>(limits.size()) - 1));
            }
            traffic.Step({{.key = key, .limit = &limits[current], .name = "n"}});
          }
        }
      },
      // A concurrency limit without holds leaves nothing behind in Redis.
      false);
}

// What one Redis holds, asked one request at a time.
class HoldsOfRedis : public testing::Test {
 protected:
  void SetUp() override { store_ = RedisStore::Create({.uri = Uri()}).value(); }

  std::string Uri() const { return server_.Uri("?timeout=60s&connect_timeout=60s"); }

  Expected<Decision> Ask(Action action, const Charge& charge, std::string_view id = {},
                         Micros ttl = 10s, std::optional<std::int64_t> now_us = {}) {
    terms_ = {.id = id, .ttl = ttl, .on_expiry = OnExpiry::kRelease};
    Request request{.charges = {&charge, 1}, .action = action};
    if (now_us) request.now = At(*now_us);
    if (!id.empty()) request.hold = &terms_;
    Send({&request, 1});
    return request.outcome;
  }

  void Send(std::span<Request> requests) {
    std::promise<void> done;
    store_->Apply(requests, [&] { done.set_value(); });
    done.get_future().wait();
  }

  // Holds of one unit each, by their numbers.
  void Fill(const Charge& charge, std::size_t count) {
    std::deque<std::string> ids;
    std::deque<HoldTerms> terms;
    std::vector<Request> requests;
    for (std::size_t i = 0; i < count; ++i) {
      ids.push_back(std::to_string(i));
      terms.push_back({.id = ids.back(), .ttl = 1h + Micros{i}, .on_expiry = OnExpiry::kRelease});
      requests.push_back({.charges = {&charge, 1}, .action = Action::kHold, .hold = &terms.back()});
    }
    Send(requests);
    for (const Request& request : requests) {
      ASSERT_TRUE(request.outcome) << request.outcome.error().message;
      ASSERT_TRUE(request.outcome->allowed);
    }
  }

  std::string TypeOf(const Charge& charge) const {
    return server_.Cli("type '" + redis::StateKey("sluice", charge) + "'");
  }

  // In a string, which such states begin with 'h', or in a sorted set, which then has a head.
  bool RemembersHolds(const Charge& charge) const {
    const std::string key = "'" + redis::StateKey("sluice", charge) + "'";
    if (TypeOf(charge) == "zset\n") return server_.Cli("zcount " + key + " inf inf") == "1\n";
    return server_.Cli("getrange " + key + " 0 0") == "h\n";
  }

  testing_support::RedisServer server_;
  std::unique_ptr<RedisStore> store_;
  HoldTerms terms_;
};

TEST_F(HoldsOfRedis, LeaveAStateAsItWasOnceTheyAreForgotten) {
  for (const core::AlgorithmRow& row : core::kAlgorithms) {
    const Limit limit = SimpleLimit(row.algorithm, 100, 1, row.needs_hold ? 10s : Micros(1h));
    SCOPED_TRACE(limit.ToString());
    const Charge charge{.key = "k", .limit = &limit, .cost = 5};
    const Charge peek{.key = "k", .limit = &limit, .cost = 0};
    const std::int64_t now = kStartUs;
    if (!row.needs_hold) {
      ASSERT_TRUE(Ask(Action::kCheck, charge, {}, 0s, now));
    }
    const bool is_log = row.algorithm == Algorithm::kSlidingWindow;
    const std::string plain = is_log ? "zset\n" : "string\n";
    ASSERT_TRUE(Ask(Action::kHold, charge, "a", 10s, now));
    EXPECT_TRUE(RemembersHolds(charge));
    EXPECT_EQ(Ask(Action::kSettle, charge, "a", 10s, now + 1)->held, 0);
    EXPECT_EQ(Ask(Action::kHold, charge, "b", 1s, now + 2)->held, 5);
    const std::int64_t almost = now + 10'000'000 + kRememberedUs - 1;
    ASSERT_TRUE(Ask(Action::kCheck, peek, {}, 0s, almost));
    EXPECT_TRUE(RemembersHolds(charge)) << "an id is remembered";
    ASSERT_TRUE(Ask(Action::kCheck, peek, {}, 0s, almost + 1));
    EXPECT_FALSE(RemembersHolds(charge));
    EXPECT_EQ(TypeOf(charge), row.needs_hold ? "none\n" : plain);
    EXPECT_EQ(server_.Cli("eval \"local n = 0; for _, k in ipairs(redis.call('keys', '*')) do "
                          "if redis.call('pttl', k) == -1 then n = n + 1 end end return n\" 0"),
              "0\n");
  }
}

// Few holds are in a string, many in a sorted set; memory knows no such difference.
TEST_F(RedisHolds, PassFromFewToManyAndBack) {
  ExpectSame([](Random& random, MemoryStore& memory, Recording& recording) {
    for (int round = 0; round < 40; ++round) {
      const Limit limit = RandomHoldLimit(random, AnyAlgorithm(random));
      const Limit other = RandomHoldLimit(random, AnyAlgorithm(random));
      const std::string key = std::to_string(round);
      const std::int64_t span = 1'000 + random.Between(0, 2 * kRememberedUs);
      std::int64_t now = kStartUs;
      for (int step = 0; step < 150; ++step) {
        // More and more ids in the first half; then time passes.
        const bool grows = step < 75;
        now += random.Between(0, grows ? 100 : span / 16);
        const Charge charge{.key = key,
                            .limit = random.OneIn(40) ? &other : &limit,
                            .cost = core::NeedsHold(limit) ? 1 : random.Between(0, 2)};
        const std::string id = std::to_string(random.Between(0, 60));
        const HoldTerms terms{
            .id = id,
            .ttl = Micros{1'000 + random.Between(0, span)},
            .on_expiry = random.OneIn(2) ? OnExpiry::kRelease : OnExpiry::kCharge};
        constexpr std::array kActions = {Action::kSettle, Action::kExtend, Action::kHold};
        const Action action = random.OneIn(grows ? 5 : 2)
                                  ? kActions[static_cast<std::size_t>(random.Between(0, 1))]
                                  : kActions[2];
        recording.Ask(memory, {charge}, now, action, terms);
        if (random.OneIn(10)) recording.Ask(memory, {charge}, now, Action::kListHolds, {.id = ""});
      }
    }
  });
}

TEST_F(HoldsOfRedis, AreAtMostSoMany) {
  for (const char* text : {"algorithm=concurrency,limit=10000,ttl=1h",
                           "algorithm=token_bucket,capacity=10000,refill=1,period=1s",
                           "algorithm=sliding_window,limit=10000,window=1h"}) {
    SCOPED_TRACE(text);
    const Limit limit = *Limit::Parse(text);
    const Charge charge{.key = text, .limit = &limit};
    const Charge peek{.key = text, .limit = &limit, .cost = 0};
    ASSERT_NO_FATAL_FAILURE(Fill(charge, kLiveHoldsMax));
    const auto more = Ask(Action::kHold, charge, "more");
    ASSERT_FALSE(more);
    EXPECT_EQ(more.error().code, ErrorCode::kTooManyHolds);
    EXPECT_EQ(Ask(Action::kCheck, peek)->held, static_cast<std::int64_t>(kLiveHoldsMax));
    EXPECT_TRUE(Ask(Action::kExtend, charge, "17", 4h));
    EXPECT_TRUE(Ask(Action::kSettle, peek, std::to_string(kLiveHoldsMax - 1))->allowed);
    EXPECT_TRUE(Ask(Action::kHold, charge, "more")->allowed);
    // A look applies all that is due, and writes that once.
    const std::int64_t later =
        core::Us(std::chrono::time_point_cast<Micros>(SystemClock().Now())) + 10'800'000'000;
    EXPECT_EQ(Ask(Action::kCheck, peek, {}, 0s, later)->held, 1);
    EXPECT_EQ(Ask(Action::kCheck, peek, {}, 0s, later)->held, 1);
  }
}

// Any byte of the state may be wrong.
TEST_F(HoldsOfRedis, OfADamagedStateFailAlone) {
  Random random(Seeds().front());
  const Limit limit = *Limit::Parse("algorithm=concurrency,limit=5,ttl=30s");
  const Charge bad{.key = "bad", .limit = &limit};
  const Charge good{.key = "good", .limit = &limit};
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    server_.Cli("flushall");
    ASSERT_TRUE(Ask(Action::kHold, bad, "a"));
    if (random.OneIn(2)) {
      ASSERT_TRUE(Ask(Action::kHold, bad, "b"));
    }
    const std::string damage =
        "eval \"local v = redis.call('get', KEYS[1]) local i = ARGV[1] % #v + 1 "
        "redis.call('set', KEYS[1], v:sub(1, i - 1) .. string.char(ARGV[2]) .. v:sub(i + 1), 'PX', "
        "100000) return i\" 1 '" +
        redis::StateKey("sluice", bad) + "' " + std::to_string(random.Between(0, 1'000)) + " " +
        std::to_string(random.Between(0, 255));
    SCOPED_TRACE(damage);
    server_.Cli(damage);
    HoldTerms first{.id = "first", .ttl = 1s};
    HoldTerms second{.id = "a", .ttl = 1s};
    HoldTerms third{.id = "third", .ttl = 1s};
    std::array<Request, 4> requests;
    requests[0] = {.charges = {&good, 1}, .action = Action::kHold, .hold = &first};
    requests[1] = {.charges = {&bad, 1}, .action = Action::kSettle, .hold = &second};
    requests[2] = {.charges = {&bad, 1}, .action = Action::kHold, .hold = &third};
    requests[3] = {.charges = {&good, 1}, .action = Action::kSettle, .hold = &first};
    Send(requests);
    ASSERT_TRUE(requests[0].outcome) << requests[0].outcome.error().message;
    ASSERT_TRUE(requests[3].outcome) << requests[3].outcome.error().message;
    EXPECT_EQ(requests[3].outcome->held, 0);
    for (const int i : {1, 2}) {
      const auto& outcome = requests[static_cast<std::size_t>(i)].outcome;
      refused += !outcome && outcome.error().code == ErrorCode::kForeignState;
    }
  }
  EXPECT_GT(refused, 20);
}

TEST_F(HoldsOfRedis, AreListedUpToAMaximum) {
  const Limit limit = *Limit::Parse("algorithm=token_bucket,capacity=10000,refill=1,period=1s");
  const Charge charge{.key = "k", .limit = &limit};
  const auto list = [&](std::string_view only) {
    HoldList listed{.only = only};
    Request request{.charges = {&charge, 1}, .action = Action::kListHolds, .listed = &listed};
    Send({&request, 1});
    EXPECT_TRUE(request.outcome) << request.outcome.error().message;
    EXPECT_EQ(request.outcome->held, static_cast<std::int64_t>(listed.live));
    return listed;
  };
  EXPECT_EQ(list({}).live, 0U);
  ASSERT_NO_FATAL_FAILURE(Fill(charge, kLiveHoldsMax));
  const HoldList all = list({});
  EXPECT_EQ(all.live, kLiveHoldsMax);
  ASSERT_EQ(all.holds.size(), kListedHoldsMax);
  for (std::size_t i = 0; i < all.holds.size(); ++i) {
    EXPECT_EQ(all.holds[i].id, std::to_string(i));
    EXPECT_EQ(all.holds[i].expires - all.holds[i].taken, 1h + Micros{i});
  }
  const HoldList last = list("4095");
  EXPECT_EQ(last.live, kLiveHoldsMax);
  ASSERT_EQ(last.holds.size(), 1U);
  EXPECT_EQ(last.holds.front().units, 1);
  EXPECT_TRUE(list("nobody's").holds.empty());
}

// Checks that go together, at the server's own time, are asked and answered in a form of their own.
TEST_F(HoldsOfRedis, AreToldToChecksThatGoTogether) {
  const Limit limit = *Limit::Parse("algorithm=token_bucket,capacity=10,refill=1,period=1h");
  const Limit counter = *Limit::Parse("limit=10,window=24h");
  const Charge held{.key = "held", .limit = &limit, .cost = 6};
  const Charge held_counter{.key = "held", .limit = &counter, .cost = 7};
  EXPECT_TRUE(Ask(Action::kHold, held, "a")->allowed);
  EXPECT_TRUE(Ask(Action::kHold, held_counter, "a")->allowed);
  const std::vector<Charge> charges = {{.key = "other", .limit = &limit, .cost = 3},
                                       {.key = "held", .limit = &limit, .cost = 3},
                                       {.key = "held", .limit = &counter, .cost = 4},
                                       {.key = "third", .limit = &limit, .cost = 3}};
  for (const std::int64_t left : {7, 4}) {
    std::vector<Request> requests;
    for (const Charge& charge : charges) requests.push_back({.charges = {&charge, 1}});
    std::promise<void> done;
    store_->Apply(requests, [&] { done.set_value(); });
    done.get_future().wait();
    for (const Request& request : requests) {
      ASSERT_TRUE(request.outcome) << request.outcome.error().message;
    }
    EXPECT_EQ(requests[0].outcome->remaining, left);
    EXPECT_EQ(requests[0].outcome->held, 0);
    EXPECT_EQ(requests[1].outcome->remaining, 1);
    EXPECT_EQ(requests[1].outcome->allowed, left == 7);
    EXPECT_EQ(requests[1].outcome->held, 6);
    EXPECT_FALSE(requests[2].outcome->allowed);
    EXPECT_EQ(requests[2].outcome->remaining, 3);
    EXPECT_EQ(requests[2].outcome->held, 7);
    EXPECT_EQ(requests[3].outcome->remaining, left);
  }
}

TEST_F(HoldsOfRedis, AreAnnouncedWhenTheyGiveBack) {
  const Limit limit = *Limit::Parse("algorithm=token_bucket,capacity=1,refill=1,period=24h");
  const Charge charge{.key = "k", .limit = &limit};
  const Charge nothing{.key = "k", .limit = &limit, .cost = 0};
  const auto heard = std::make_shared<std::atomic<int>>(0);
  store_->Watch([heard](const Charge* raised) { *heard += raised && raised->key == "k"; });
  while (store_->GetStats().listening == 0) std::this_thread::yield();
  EXPECT_TRUE(Ask(Action::kHold, charge, "a")->allowed);
  EXPECT_FALSE(Ask(Action::kHold, charge, "b")->allowed);
  EXPECT_EQ(*heard, 0);
  EXPECT_TRUE(Ask(Action::kSettle, nothing, "a")->allowed);
  while (*heard == 0) std::this_thread::yield();
  EXPECT_TRUE(Ask(Action::kHold, charge, "b")->allowed);
}

TEST_F(HoldsOfRedis, EndWithTheirScope) {
  const Limit limit = *Limit::Parse("algorithm=concurrency,limit=1,ttl=30s");
  const Charge charge{.key = "k", .limit = &limit};
  {
    const auto slot = ScopedHold::Take(*store_, charge);
    ASSERT_TRUE(slot) << slot.error().message;
    EXPECT_TRUE(slot->allowed());
    const auto other = ScopedHold::Take(*store_, charge);
    ASSERT_TRUE(other);
    EXPECT_FALSE(other->allowed());
    EXPECT_GT(other->decision().retry_after, 20s);
  }
  EXPECT_TRUE(ScopedHold::Take(*store_, charge)->allowed());
}

TEST_F(HoldsOfRedis, AreDecidedAsByHand) {
  for (const scenario::Scenario& scenario : scenario::All()) {
    RunOnStore(*store_, scenario, scenario.name + "/");
  }
}

TEST(RedisClusterHolds, AgreeWithMemoryInOneSlotAndOverSeveral) {
  testing_support::RedisCluster cluster({.replicas = false});
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    const auto redis =
        RedisStore::Create({.uri = cluster.Uri("?timeout=60s&connect_timeout=60s&prefix=s" +
                                               std::to_string(seed))})
            .value();
    MemoryStore memory(MemoryStore::Options{.recovered_kept_for = Micros::max()});
    Recording recording;
    RecordGroups(random, memory, recording, 20, "c");
    recording.ExpectSameOf(*redis);
    if (testing::Test::HasFatalFailure()) return;
    recording.ExpectMuchHappened();
    EXPECT_EQ(redis->GetStats().refunds, 0) << "alone, nobody else is faster";
  }
  EXPECT_EQ(cluster.Sum("eval \"local n = 0; for _, k in ipairs(redis.call('keys', '*')) do "
                        "if redis.call('pttl', k) == -1 then n = n + 1 end end return n\" 0"),
            0);
}

// Many ask at once for holds over two slots. Whoever is too late gives back what it has.
TEST(RedisClusterHolds, AreAllOrNothingWhileOthersAreFaster) {
  testing_support::RedisCluster cluster({.replicas = false});
  const auto redis =
      RedisStore::Create({.uri = cluster.Uri("?timeout=60s&connect_timeout=60s")}).value();
  const Limit limit = *Limit::Parse("algorithm=concurrency,limit=3,ttl=1h");
  const std::array<Charge, 2> charges = {Charge{.key = "a", .limit = &limit},
                                         Charge{.key = "b", .limit = &limit}};
  const std::array<Charge, 2> reversed = {charges[1], charges[0]};
  const auto held = [&](const Charge& charge) {
    return redis->Check({.key = charge.key, .limit = &limit, .cost = 0})->held;
  };
  std::uint64_t refunds = 0;
  for (int round = 0; round < 20; ++round) {
    std::deque<std::string> ids;
    std::deque<HoldTerms> terms;
    std::vector<Request> requests;
    for (int i = 0; i < 40; ++i) {
      ids.push_back(std::to_string(round) + ":" + std::to_string(i));
      terms.push_back({.id = ids.back()});
      requests.push_back({.charges = i % 2 == 0 ? charges : reversed,
                          .action = Action::kHold,
                          .hold = &terms.back()});
    }
    std::promise<void> done;
    redis->Apply(requests, [&] { done.set_value(); });
    done.get_future().wait();
    std::int64_t allowed = 0;
    for (Request& request : requests) {
      ASSERT_TRUE(request.outcome) << request.outcome.error().message;
      allowed += request.outcome->allowed;
    }
    EXPECT_LE(allowed, 3);
    EXPECT_EQ(held(charges[0]), allowed);
    EXPECT_EQ(held(charges[1]), allowed);
    std::vector<Request> settle;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (!requests[i].outcome->allowed) continue;
      settle.push_back({.charges = charges, .action = Action::kSettle, .hold = &terms[i]});
    }
    std::promise<void> settled;
    redis->Apply(settle, [&] { settled.set_value(); });
    settled.get_future().wait();
    for (const Request& request : settle) EXPECT_TRUE(request.outcome);
    EXPECT_EQ(held(charges[0]), 0);
    EXPECT_EQ(held(charges[1]), 0);
    refunds = static_cast<std::uint64_t>(redis->GetStats().refunds);
  }
  EXPECT_GT(refunds, 0) << "nobody was too late";
  EXPECT_EQ(redis->GetStats().refunds_lost, 0);
}

}  // namespace
}  // namespace sluice
