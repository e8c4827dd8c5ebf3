// SPDX-License-Identifier: Apache-2.0
// What the memory store does with holds besides deciding on them, which tests/conformance compares
// with the model: bounds, memory, snapshots, threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sluice/hold.h"
#include "sluice/memory_store.h"
#include "support/temporary_folder.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kStart{Micros{1'700'000'000'000'000}};

class HoldsTest : public testing::Test {
 protected:
  Expected<Decision> Ask(Action action, std::string_view id, std::int64_t cost, Micros ttl = 10s,
                         OnExpiry on_expiry = OnExpiry::kCharge) {
    terms_ = {.id = id, .ttl = ttl, .on_expiry = on_expiry};
    const Charge charge{.key = "k", .limit = &limit_, .name = "n", .cost = cost};
    Request request{.charges = {&charge, 1}, .action = action, .hold = &terms_};
    store_->ApplyInline({&request, 1});
    return request.outcome;
  }
  Decision Peek() {
    return store_->Check({.key = "k", .limit = &limit_, .name = "n", .cost = 0}).value();
  }
  ErrorCode CodeOf(const Expected<Decision>& outcome) {
    return outcome ? ErrorCode::kInvalidInput : outcome.error().code;
  }

  ManualClock clock_{kStart};
  MemoryStore::Options options_{.clock = &clock_};
  std::unique_ptr<MemoryStore> store_ = std::make_unique<MemoryStore>(options_);
  Limit limit_ = *Limit::FixedWindow({.limit = 10'000, .window = 24h});
  HoldTerms terms_;
};

TEST_F(HoldsTest, AreAtMost4096OnOneState) {
  for (int i = 0; i < 4'096; ++i) ASSERT_TRUE(Ask(Action::kHold, std::to_string(i), 1));
  EXPECT_EQ(CodeOf(Ask(Action::kHold, "one more", 1)), ErrorCode::kTooManyHolds);
  EXPECT_EQ(Peek().held, 4'096);
  ASSERT_TRUE(Ask(Action::kSettle, "17", 0));
  EXPECT_TRUE(Ask(Action::kHold, "one more", 1));
}

TEST_F(HoldsTest, AreListedUpToAMaximumInTheOrderOfExpiryAndId) {
  for (int i = 0; i < 300; ++i) {
    const std::string id = std::to_string(999 - i);
    ASSERT_TRUE(Ask(Action::kHold, id, i % 30, i < 250 ? 20s : 10s)->allowed);
  }
  HoldList listed;
  const Charge charge{.key = "k", .limit = &limit_, .name = "n", .cost = -1};
  Request request{.charges = {&charge, 1}, .action = Action::kListHolds, .listed = &listed};
  store_->ApplyInline({&request, 1});
  ASSERT_TRUE(request.outcome) << request.outcome.error().message;
  EXPECT_EQ(listed.live, 300U);
  ASSERT_EQ(listed.holds.size(), kListedHoldsMax);
  // Those for 10 s, then those for 20 s.
  EXPECT_EQ(listed.holds.front(),
            (HoldList::Hold{.id = "700", .units = 29, .taken = kStart, .expires = kStart + 10s}));
  EXPECT_EQ(listed.holds[49].id, "749");
  EXPECT_EQ(listed.holds[50].id, "750");
  EXPECT_EQ(listed.holds.back().id, "799");
  clock_.Advance(10s);
  listed.only = "700";
  store_->ApplyInline({&request, 1});
  EXPECT_EQ(listed.live, 250U);
  EXPECT_TRUE(listed.holds.empty()) << "it has expired";
}

TEST_F(HoldsTest, AreListedForOneStateAndWithRoomForIt) {
  const Charge charge{.key = "k", .limit = &limit_};
  const std::vector<Charge> two = {charge, charge};
  const std::string long_id(kHoldIdBytesMax + 1, 'x');
  HoldList any;
  HoldList invalid{.only = long_id};
  std::vector<Request> requests = {
      {.charges = {&charge, 1}, .action = Action::kListHolds},
      {.charges = two, .action = Action::kListHolds, .listed = &any},
      {.charges = {&charge, 1}, .action = Action::kListHolds, .listed = &invalid}};
  store_->ApplyInline(requests);
  for (const Request& request : requests) {
    ASSERT_FALSE(request.outcome);
    EXPECT_EQ(request.outcome.error().code, ErrorCode::kInvalidRequest);
    EXPECT_THAT(request.outcome.error().message, testing::HasSubstr("expected"));
  }
}

TEST_F(HoldsTest, AreOfNoMoreUnitsThanTheArithmeticBears) {
  limit_ = *Limit::FixedWindow({.limit = std::int64_t{1} << 52, .window = 1ms});
  ASSERT_TRUE(Ask(Action::kHold, "a", limit_.amount()));
  clock_.Advance(1ms);
  EXPECT_EQ(CodeOf(Ask(Action::kHold, "b", limit_.amount())), ErrorCode::kTooManyHolds);
  EXPECT_TRUE(Ask(Action::kHold, "b", limit_.amount() - 1));
  EXPECT_EQ(Peek().held, 2 * limit_.amount() - 1);
}

TEST_F(HoldsTest, AreForgottenAMinuteAfterTheirExpiry) {
  ASSERT_TRUE(Ask(Action::kHold, "a", 5));
  ASSERT_TRUE(Ask(Action::kHold, "b", 5));
  ASSERT_TRUE(Ask(Action::kSettle, "b", 5));
  clock_.Advance(70s - 1us);
  EXPECT_EQ(CodeOf(Ask(Action::kHold, "a", 5)), ErrorCode::kHoldConflict);
  EXPECT_EQ(store_->GetStats().holds, 2);
  clock_.Advance(1us);
  EXPECT_EQ(Peek().remaining, 9'990);
  EXPECT_EQ(store_->GetStats().holds, 0);
  EXPECT_EQ(store_->GetStats().keys, 1);
}

TEST_F(HoldsTest, NobodyAsksForAreForgottenByOtherTraffic) {
  limit_ = *Limit::Concurrency({.limit = 5, .ttl = 1s});
  ASSERT_TRUE(Ask(Action::kHold, "a", 5, 0s));
  clock_.Advance(2min);
  const Limit other = *Limit::FixedWindow({.limit = 1, .window = 1s});
  // Every 64th decision of a shard sweeps 32 slots of the next.
  for (int i = 0; i < 200'000 && store_->GetStats().holds > 0; ++i) {
    store_->Check({.key = std::to_string(i % 1'000), .limit = &other, .cost = 1}).value();
  }
  EXPECT_EQ(store_->GetStats().holds, 0);
}

// A few with short ids are kept in another way than many, or than those with long ids.
TEST_F(HoldsTest, AreTheSameHoweverManyThereAreAndHoweverLongTheirIds) {
  for (const std::size_t id_bytes : {2UZ, 37UZ, 38UZ, kHoldIdBytesMax}) {
    for (int count = 1; count <= 12; ++count) {
      SCOPED_TRACE(testing::Message() << count << " holds, ids of " << id_bytes << " characters");
      clock_.Set(kStart);
      store_ = std::make_unique<MemoryStore>(options_);
      const auto id_of = [&](int i) {
        const std::string number = std::to_string(10 + i);
        return std::string(id_bytes - number.size(), 'x') + number;
      };
      // The later ones expire first.
      const auto ttl_of = [&](int i) { return 10s * (count - i); };
      for (int i = 0; i < count; ++i) {
        ASSERT_TRUE(Ask(Action::kHold, id_of(i), 10, ttl_of(i), OnExpiry::kRelease)->allowed);
      }
      EXPECT_EQ(Peek().held, 10 * count);
      ASSERT_TRUE(Ask(Action::kSettle, id_of(0), 3));
      EXPECT_EQ(CodeOf(Ask(Action::kHold, id_of(0), 10)), ErrorCode::kHoldConflict);
      for (int i = count - 1; i > 0; --i) {
        EXPECT_EQ(Peek().held, 10 * i);
        EXPECT_EQ(Peek().remaining, 10'000 - 3 - 10 * i);
        clock_.Advance(10s);
      }
      EXPECT_EQ(Peek().held, 0);
      EXPECT_EQ(Peek().remaining, 9'997);
      // The first would have expired last.
      clock_.Advance(70s - 1us);
      EXPECT_EQ(Peek().remaining, 9'997);
      EXPECT_EQ(store_->GetStats().holds, 1);
      clock_.Advance(1us);
      EXPECT_EQ(Peek().remaining, 9'997);
      EXPECT_EQ(store_->GetStats().holds, 0);
    }
  }
}

TEST_F(HoldsTest, AreBoundedInNumber) {
  options_.holds_max = 3;
  store_ = std::make_unique<MemoryStore>(options_);
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(Ask(Action::kHold, id, 1));
  EXPECT_EQ(CodeOf(Ask(Action::kHold, "d", 1)), ErrorCode::kStoreFull);
  EXPECT_EQ(CodeOf(Ask(Action::kSettle, "unknown", 1)), ErrorCode::kStoreFull);
  EXPECT_EQ(Peek().remaining, 9'997) << "nothing was taken";
  EXPECT_TRUE(Ask(Action::kSettle, "a", 1)) << "what is known can always be ended";
}

TEST_F(HoldsTest, AreRefusedWhereThereIsNoRoomForTheirState) {
  options_.keys_max = 1;
  store_ = std::make_unique<MemoryStore>(options_);
  const Limit other = *Limit::FixedWindow({.limit = 1, .window = 24h});
  ASSERT_TRUE(store_->Check({.key = "other", .limit = &other})->allowed);
  EXPECT_EQ(CodeOf(Ask(Action::kHold, "a", 1)), ErrorCode::kStoreFull);
}

TEST_F(HoldsTest, TermsAreChecked) {
  const std::string long_id(65, 'x');
  for (const std::string_view id : {std::string_view(""), std::string_view(long_id),
                                    std::string_view("a\n"), std::string_view("\xc3\xa4")}) {
    EXPECT_EQ(CodeOf(Ask(Action::kHold, id, 1)), ErrorCode::kInvalidRequest);
  }
  for (const Micros ttl : {Micros{0}, Micros{999}, Micros{24h} + 1us, Micros{-1}}) {
    EXPECT_EQ(CodeOf(Ask(Action::kHold, "a", 1, ttl)), ErrorCode::kInvalidRequest);
  }
  const Charge charge{.key = "k", .limit = &limit_};
  Request request{.charges = {&charge, 1}, .action = Action::kHold};
  store_->ApplyInline({&request, 1});
  EXPECT_EQ(CodeOf(request.outcome), ErrorCode::kInvalidRequest);
}

TEST_F(HoldsTest, StayWhenTheLimitChangesUnderItsName) {
  limit_ = *Limit::TokenBucket({.capacity = 10, .refill = 1, .period = 1s});
  ASSERT_TRUE(Ask(Action::kHold, "a", 6, 1min)->allowed);
  limit_ = *Limit::TokenBucket({.capacity = 20, .refill = 1, .period = 1s});
  EXPECT_EQ(Peek().remaining, 14);
  EXPECT_EQ(Peek().held, 6);
  limit_ = *Limit::FixedWindow({.limit = 8, .window = 24h});
  EXPECT_EQ(Peek().remaining, 2);
  ASSERT_TRUE(Ask(Action::kSettle, "a", 0));
  EXPECT_EQ(Peek().remaining, 8);
  ASSERT_TRUE(Ask(Action::kHold, "b", 3, 1min)->allowed);
  limit_ = *Limit::Concurrency({.limit = 4, .ttl = 1s});
  EXPECT_EQ(Peek().remaining, 1);
  clock_.Advance(1min);
  EXPECT_EQ(Peek().remaining, 4) << "those of a concurrency limit are released";
}

TEST_F(HoldsTest, SurviveASnapshot) {
  const testing_support::TemporaryFolder folder;
  const auto path = folder.path() / "snapshot";
  const std::vector<Limit> limits = {
      *Limit::TokenBucket({10, 1, 1h}), *Limit::FixedWindow({10, 24h}),
      *Limit::SlidingWindow({10, 24h}), *Limit::SlidingWindowCounter({10, 24h}),
      *Limit::Concurrency({10, 1min})};
  for (const Limit& limit : limits) {
    limit_ = limit;
    store_->Reset({.key = "k", .limit = &limit_, .name = "n"}).value();
    ASSERT_TRUE(Ask(Action::kHold, "live", 4, 1min)->allowed);
    ASSERT_TRUE(Ask(Action::kHold, "released", 2, 1s, OnExpiry::kRelease)->allowed);
    ASSERT_TRUE(Ask(Action::kHold, "settled", 3, 1min)->allowed);
    ASSERT_TRUE(Ask(Action::kSettle, "settled", 1));
    const Decision before = Peek();
    ASSERT_TRUE(store_->Save(path));
    store_ = MemoryStore::Restore(path, options_).value();
    EXPECT_EQ(Peek(), before) << limit.ToString();
    EXPECT_EQ(store_->GetStats().holds, 3);
    EXPECT_EQ(CodeOf(Ask(Action::kHold, "settled", 3)), ErrorCode::kHoldConflict);
    clock_.Advance(1s);
    EXPECT_EQ(Peek().held, 4);
    ASSERT_TRUE(Ask(Action::kSettle, "live", 0));
    EXPECT_FALSE(terms_.late);
    EXPECT_EQ(Peek().held, 0);
    clock_.Advance(24h);
  }
}

// As if the clock had been years ahead when the hold was made.
TEST_F(HoldsTest, OfAClockThatWasAheadAreNotRestored) {
  const testing_support::TemporaryFolder folder;
  const auto path = folder.path() / "snapshot";
  limit_ = *Limit::Concurrency({.limit = 1, .ttl = 1min});
  ASSERT_TRUE(Ask(Action::kHold, "a", 1)->allowed);
  ASSERT_TRUE(store_->Save(path));
  clock_.Set(kStart - 24h);
  store_ = MemoryStore::Restore(path, options_).value();
  EXPECT_TRUE(Ask(Action::kHold, "b", 1)->allowed);
}

TEST_F(HoldsTest, OfManyThreadsNeverExceedTheLimit) {
  limit_ = *Limit::Concurrency({.limit = 3, .ttl = 1min});
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  std::atomic<int> taken = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 2'000; ++round) {
        auto slot = ScopedHold::Take(*store_, {.key = "k", .limit = &limit_});
        ASSERT_TRUE(slot) << slot.error().message;
        if (!slot->allowed()) continue;
        const int now = ++inside;
        int before = most;
        while (before < now && !most.compare_exchange_weak(before, now)) {
        }
        ++taken;
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 3);
  EXPECT_GT(taken, 100);
  EXPECT_EQ(store_->Check({.key = "k", .limit = &limit_, .cost = 0})->held, 0);
}

TEST_F(HoldsTest, AreMadeAndEndedWithoutAScope) {
  const auto slots = Limit::Concurrency({.limit = 2, .ttl = 30s});
  const Charge held[] = {{.key = "k", .limit = &limit_, .name = "n", .cost = 10},
                         {.key = "k", .limit = &*slots}};
  HoldTerms terms{.id = "a", .ttl = 10s};
  EXPECT_TRUE(Hold(*store_, held, terms)->allowed);
  EXPECT_EQ(terms.expires, kStart + 10s);
  clock_.Advance(4s);
  EXPECT_TRUE(Extend(*store_, held, terms));
  EXPECT_EQ(terms.expires, kStart + 14s);
  EXPECT_EQ(Peek().held, 10);

  // Each charge has a cost of its own.
  const Charge used[] = {{.key = "k", .limit = &limit_, .name = "n", .cost = 12},
                         {.key = "k", .limit = &*slots, .cost = 0}};
  EXPECT_TRUE(Settle(*store_, used, terms));
  EXPECT_TRUE(terms.overdrawn);
  EXPECT_EQ(Peek().remaining, 9'988);
  EXPECT_EQ(CodeOf(Extend(*store_, held, terms)), ErrorCode::kHoldLost);

  terms = {.id = "b", .ttl = 10s};
  EXPECT_TRUE(Hold(*store_, held, terms)->allowed);
  EXPECT_EQ(Release(*store_, held, terms)->held, 0);
  EXPECT_EQ(Peek().remaining, 9'988);
  EXPECT_EQ(Give(*store_, {used, 1})->remaining, 10'000);
}

TEST_F(HoldsTest, OfAScopeAreReleasedOrSettledAtItsEnd) {
  const Charge charge{.key = "k", .limit = &limit_, .name = "n", .cost = 10};
  {
    auto hold = ScopedHold::Take(*store_, charge, {.ttl = 1min});
    ASSERT_TRUE(hold && hold->allowed());
    EXPECT_EQ(hold->id().size(), 32u);
    EXPECT_EQ(Peek().held, 10);
    EXPECT_TRUE(hold->Extend());
  }
  EXPECT_EQ(Peek().remaining, 10'000);
  {
    auto hold = ScopedHold::Take(*store_, charge, {.ttl = 1min});
    hold->SettleAtEnd(4);
    std::optional<ScopedHold> moved(std::move(*hold));
    EXPECT_EQ(Peek().remaining, 9'990);
  }
  EXPECT_EQ(Peek().remaining, 9'996);
  auto hold = ScopedHold::Take(*store_, charge, {.id = "mine", .ttl = 1min});
  ASSERT_TRUE(hold->Settle(12));
  EXPECT_EQ(Peek().remaining, 9'984);
  EXPECT_EQ(CodeOf(hold->Extend()), ErrorCode::kHoldLost);
}

}  // namespace
}  // namespace sluice
