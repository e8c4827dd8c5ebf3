// SPDX-License-Identifier: Apache-2.0
// Several threads on one store. Each test proves that they really ran into each other.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <barrier>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "sluice/memory_store.h"
#include "support/temporary_folder.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kStart{Micros{1'700'000'000'000'000}};
constexpr int kThreads = 4;

// Runs `work(thread)` on all threads at once.
template <typename Work>
void OnAllThreads(Work work) {
  std::barrier start(kThreads);
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      work(i);
    });
  }
}

TEST(Concurrency, ExactlyTheLimitIsAdmittedByManyThreads) {
  ManualClock clock(kStart);
  for (const Limit& limit : {*Limit::TokenBucket({.capacity = 50'000, .refill = 1, .period = 24h}),
                             *Limit::FixedWindow({.limit = 50'000, .window = 24h}),
                             *Limit::SlidingWindow({.limit = 50'000, .window = 24h}),
                             *Limit::SlidingWindowCounter({.limit = 50'000, .window = 24h})}) {
    MemoryStore store({.clock = &clock});
    std::vector<int> admitted(kThreads);
    OnAllThreads([&](int thread) {
      // Until the budget is used up, so that threads that start late still take part.
      while (store.Check({.key = "k", .limit = &limit})->allowed) {
        ++admitted[static_cast<std::size_t>(thread)];
        if (admitted[static_cast<std::size_t>(thread)] % 64 == 0) std::this_thread::yield();
      }
    });
    int total = 0;
    int took_part = 0;
    for (const int count : admitted) {
      total += count;
      took_part += count > 0;
    }
    EXPECT_EQ(total, 50'000) << limit.ToString();
    EXPECT_GE(took_part, 2) << "no two threads met";
  }
}

TEST(Concurrency, GroupsAcrossShardsNeitherDeadlockNorLeaveATrace) {
  ManualClock clock(kStart);
  MemoryStore store({.clock = &clock});
  const Limit shared = *Limit::FixedWindow({.limit = 20'000, .window = 24h});
  const Limit scarce = *Limit::FixedWindow({.limit = 1'000, .window = 24h});
  // Every thread takes the same states in another order, and the scarce one denies most.
  std::atomic<int> allowed = 0;
  std::atomic<int> denied = 0;
  OnAllThreads([&](int thread) {
    std::vector<Charge> charges;
    for (const char* key : {"a", "b", "c", "d", "e"})
      charges.push_back({.key = key, .limit = &shared});
    charges.push_back({.key = "z", .limit = &scarce});
    std::rotate(charges.begin(), charges.begin() + thread, charges.end());
    for (int i = 0; i < 5'000; ++i) {
      (store.CheckAll(charges)->allowed ? allowed : denied).fetch_add(1);
      if (i % 64 == 0) std::this_thread::yield();
    }
  });
  EXPECT_EQ(allowed, 1'000);
  EXPECT_EQ(denied, kThreads * 5'000 - 1'000);
  for (const char* key : {"a", "b", "c", "d", "e"}) {
    EXPECT_EQ(store.Check({.key = key, .limit = &shared, .cost = 0})->remaining, 19'000);
  }
}

TEST(Concurrency, GrowingSweepingResettingAndSavingAtOnce) {
  const testing_support::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "snapshot";
  ManualClock clock(kStart);
  MemoryStore store({.clock = &clock, .keys_max = 20'000});
  const Limit bucket = *Limit::TokenBucket({.capacity = 2, .refill = 1, .period = 1ms});
  const Limit log = *Limit::SlidingWindow({.limit = 3, .window = 1ms});
  OnAllThreads([&](int thread) {
    if (thread == 0) {
      for (int i = 0; i < 10; ++i) EXPECT_TRUE(store.Save(path));
      return;
    }
    for (int i = 0; i < 60'000; ++i) {
      const std::string key = std::to_string(i % 30'000);
      const Charge charge{.key = key, .limit = i % 2 == 0 ? &bucket : &log};
      EXPECT_TRUE(store.Check(charge));
      if (i % 7 == 0) {
        EXPECT_TRUE(store.Reset(charge));
      }
      if (i % 100 == 0) clock.Advance(10us);
      if (i % 1'000 == 0) store.GetStats();
    }
  });
  EXPECT_LE(store.GetStats().keys, 20'000 + 2 * 256);
  EXPECT_TRUE(MemoryStore::Restore(path, {.clock = &clock}));
}

}  // namespace
}  // namespace sluice
