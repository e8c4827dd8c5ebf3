// SPDX-License-Identifier: Apache-2.0
#include "telemetry/heavy_hitters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace sluice::telemetry {
namespace {

using Kind = HeavyHitters::Kind;
using Kinds = HeavyHitters::Kinds;

class HeavyHittersTest : public testing::Test {
 protected:
  void Record(std::string_view key, bool allowed, std::string_view name = "api/per-user/hourly") {
    hitters_.Record(allowed ? Kinds{Kind::kBusy} : Kinds{Kind::kBusy, Kind::kDenied}, name, key,
                    now_);
  }
  std::vector<HeavyHitters::Entry> Top(Kind kind, std::size_t n) const {
    return hitters_.Top(kind, n, now_);
  }

  HeavyHitters::Time now_{std::chrono::hours{1}};
  HeavyHitters hitters_{std::chrono::minutes{1}};
};

// Draws ranks 0, 1, 2, ... with frequencies as 1, 1/2^s, 1/3^s, ...
class Zipf {
 public:
  Zipf(std::size_t ranks, double exponent, std::uint64_t seed) : random_(seed) {
    for (std::size_t i = 0; i < ranks; ++i) {
      sums_.push_back((i == 0 ? 0 : sums_.back()) +
                      std::pow(static_cast<double>(i + 1), -exponent));
    }
  }
  std::size_t operator()() {
    const double at = std::uniform_real_distribution<>(0, sums_.back())(random_);
    return static_cast<std::size_t>(std::ranges::upper_bound(sums_, at) - sums_.begin());
  }

 private:
  std::mt19937_64 random_;
  std::vector<double> sums_;
};

TEST_F(HeavyHittersTest, IsExactWhileThereIsRoom) {
  for (int i = 0; i < 30; ++i) {
    for (int n = 0; n <= i; ++n) Record("key" + std::to_string(i), n % 3 != 0);
  }
  const auto busy = Top(Kind::kBusy, 3);
  ASSERT_EQ(busy.size(), 3u);
  EXPECT_EQ(busy[0].key, "key29");
  EXPECT_EQ(busy[0].count, 30u);
  EXPECT_EQ(busy[0].error, 0u);
  EXPECT_EQ(busy[2].key, "key27");
  const auto denied = Top(Kind::kDenied, 1);
  EXPECT_EQ(denied[0].count, 10u);
}

TEST_F(HeavyHittersTest, FindsTheTopOfZipfTrafficAmongThreads) {
  constexpr std::size_t kKeys = 100'000;
  constexpr int kThreads = 4;
  constexpr int kRequests = 100'000;
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::vector<std::vector<std::uint64_t>> exact(kThreads, std::vector<std::uint64_t>(kKeys));
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        Zipf zipf(kKeys, 1.1, seed + static_cast<unsigned>(t));
        for (int i = 0; i < kRequests; ++i) {
          const std::size_t rank = zipf();
          ++exact[static_cast<std::size_t>(t)][rank];
          Record("user:" + std::to_string(rank), true);
        }
      });
    }
  }
  std::map<std::string, std::uint64_t> truth;
  for (std::size_t rank = 0; rank < kKeys; ++rank) {
    for (const auto& counts : exact) truth["user:" + std::to_string(rank)] += counts[rank];
  }
  std::vector<std::pair<std::uint64_t, std::string>> order;
  for (const auto& [key, count] : truth) order.emplace_back(count, key);
  std::ranges::sort(order, std::greater{});

  const auto top = Top(Kind::kBusy, HeavyHitters::kTopMax);
  ASSERT_EQ(top.size(), HeavyHitters::kTopMax);
  std::set<std::string> found;
  for (const auto& entry : top) {
    EXPECT_GE(entry.count, truth[entry.key]) << entry.key;
    EXPECT_LE(entry.count - entry.error, truth[entry.key]) << entry.key;
    found.insert(entry.key);
  }
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(found.contains(order[i].second)) << "rank " << i << ", " << order[i].first;
  }
  EXPECT_EQ(top[0].key, order[0].second);
  EXPECT_TRUE(Top(Kind::kDenied, 10).empty());
}

TEST_F(HeavyHittersTest, AFloodOfFreshKeysDoesNotHideABusyOne) {
  for (int i = 0; i < 100'000; ++i) {
    Record("fresh" + std::to_string(i), false);
    if (i % 100 == 0) Record("busy", false);
  }
  const auto top = Top(Kind::kDenied, 1);
  EXPECT_EQ(top[0].key, "busy");
  EXPECT_GE(top[0].count, 1'000u);
  EXPECT_LE(top[0].count - top[0].error, 1'000u);
}

TEST_F(HeavyHittersTest, HalvesWithTime) {
  for (int i = 0; i < 1'000; ++i) Record("old", true);
  now_ += std::chrono::minutes{2};
  EXPECT_EQ(Top(Kind::kBusy, 1)[0].count, 250u);
  for (int i = 0; i < 300; ++i) Record("new", true);
  EXPECT_EQ(Top(Kind::kBusy, 1)[0].key, "new");
  now_ += std::chrono::hours{24};
  EXPECT_TRUE(Top(Kind::kBusy, 10).empty());
}

TEST_F(HeavyHittersTest, ThreadsThatOnlyCountHalveToo) {
  for (int i = 0; i < 1'000; ++i) Record("old", true);
  now_ += std::chrono::minutes{1};
  Record("new", true);
  now_ -= std::chrono::minutes{1};  // From here on nobody halves again.
  const auto top = Top(Kind::kBusy, 2);
  EXPECT_EQ(top[0].key, "old");
  EXPECT_EQ(top[0].count, 500u);
}

TEST_F(HeavyHittersTest, WhatIsNewDoesNotAgeWithTheTimeThatNobodyAskedIn) {
  Record("old", true);
  now_ += std::chrono::minutes{10};
  for (int i = 0; i < 14; ++i) Record("new", true);
  const auto top = Top(Kind::kBusy, 10);
  ASSERT_EQ(top.size(), 1u);
  EXPECT_EQ(top[0].key, "new");
  EXPECT_EQ(top[0].count, 14u);
}

TEST_F(HeavyHittersTest, TellsLongKeysApartButShowsTheirBeginning) {
  const std::string prefix(400, 'p');
  Record(prefix + "a", true, "n");
  Record(prefix + "b", true, "n");
  Record("", true, "n");
  const auto top = Top(Kind::kBusy, 10);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].key, "");
  EXPECT_FALSE(top[0].cut);
  EXPECT_EQ(top[1].key, prefix.substr(0, HeavyHitters::kTextBytesShown - 1));
  EXPECT_TRUE(top[1].cut);
}

TEST_F(HeavyHittersTest, TellsTheLimitsOfAKeyApart) {
  for (int i = 0; i < 3; ++i) Record("k", false, "a/b/c");
  Record("k", false, "a/b/d");
  Record("c/k", false, "a/b/");
  Record("k", false, "");
  const auto top = Top(Kind::kDenied, 10);
  ASSERT_EQ(top.size(), 4u);
  EXPECT_EQ(top[0].name, "a/b/c");
  EXPECT_EQ(top[0].count, 3u);
  const auto some = hitters_.Top(Kind::kDenied, 10, now_,
                                 [](std::string_view name) { return name.starts_with("a/b/d"); });
  ASSERT_EQ(some.size(), 1u);
  EXPECT_EQ(some[0].name, "a/b/d");
  EXPECT_EQ(some[0].key, "k");
}

TEST_F(HeavyHittersTest, KeepsKindsApart) {
  hitters_.Record({Kind::kNear, Kind::kBusy}, "n", "near", now_);
  hitters_.Record({Kind::kShadowDenied}, "n", "shadow", now_);
  EXPECT_EQ(Top(Kind::kBusy, 10).size(), 1u);
  EXPECT_EQ(Top(Kind::kNear, 10).at(0).key, "near");
  EXPECT_EQ(Top(Kind::kShadowDenied, 10).at(0).key, "shadow");
  EXPECT_TRUE(Top(Kind::kDenied, 10).empty());
}

TEST_F(HeavyHittersTest, HasRoomForTheLongestNameOfABandAndAHash) {
  const std::string name =
      std::string(64, 'a') + '/' + std::string(64, 'b') + '/' + std::string(64, 'c');
  const std::string key = "apikey#" + std::string(64, 'f');
  Record(key, true, name);
  const auto top = Top(Kind::kBusy, 1);
  EXPECT_EQ(top.at(0).name, name);
  EXPECT_EQ(top.at(0).key, key);
  EXPECT_FALSE(top.at(0).cut);
}

TEST_F(HeavyHittersTest, CanBeReadWhileOthersCount) {
  std::atomic<int> left = 2;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100'000; ++i) Record("k" + std::to_string(i % 5'000), i % 2 == 0);
      --left;
    });
  }
  std::size_t reads = 0;
  do {
    for (const auto& entry : Top(Kind::kBusy, 10)) {
      ASSERT_GE(entry.count, entry.error);
      ASSERT_TRUE(entry.key.starts_with("k"));
    }
    ++reads;
  } while (left > 0);
  EXPECT_GT(reads, 0u);
}

}  // namespace
}  // namespace sluice::telemetry
