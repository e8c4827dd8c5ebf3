// SPDX-License-Identifier: Apache-2.0
#include "store/guard/ledger.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "core/bucket.h"

namespace sluice::guard {
namespace {

using Added = Ledger::Added;

const Limit kTen = *Limit::Parse("algorithm=fixed_window,limit=10,window=1m");
const Limit kFour = *Limit::Parse("algorithm=fixed_window,limit=4,window=1m");

Charge Units(std::string_view key, std::int64_t units, const Limit& limit = kTen,
             std::string_view name = "") {
  return {.key = key, .limit = &limit, .name = name, .cost = units};
}

TEST(Ledger, AddsUpWhatWasTakenFromOneState) {
  Ledger ledger(8, {});
  EXPECT_EQ(ledger.Add(Units("k", 2)), Added::kFirst);
  EXPECT_EQ(ledger.Add(Units("k", 3)), Added::kAdded);
  EXPECT_EQ(ledger.Add(Units("k", 1, kFour)), Added::kAdded) << "another limit, another state";
  EXPECT_EQ(ledger.size(), 2U);
  const std::vector<Charge> charges = {Units("other", 1), Units("k", 1)};
  const auto taken = ledger.TakeOf(charges);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken.front().key, "k");
  EXPECT_EQ(taken.front().units, 5);
  EXPECT_EQ(taken.front().limit, kTen);
  EXPECT_TRUE(ledger.TakeOf(charges).empty()) << "once";
  EXPECT_EQ(ledger.size(), 1U);
}

TEST(Ledger, ANamedStateKeepsItsUnitsUnderTheNewestNumbers) {
  Ledger ledger(8, {});
  ledger.Add(Units("k", 2, kTen, "n"));
  EXPECT_EQ(ledger.Add(Units("k", 1, kFour, "n")), Added::kAdded);
  const auto taken = ledger.Take(8);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken.front().units, 3);
  EXPECT_EQ(taken.front().limit, kFour);
  EXPECT_EQ(taken.front().name, "n");
}

TEST(Ledger, OwnsWhatItHolds) {
  Ledger ledger(8, {});
  {
    const std::string key(100, 'x');
    const Limit limit = kTen;
    ledger.Add(Units(key, 1, limit));
  }
  EXPECT_EQ(ledger.Take(1).front().key, std::string(100, 'x'));
}

TEST(Ledger, TakesSomeAtATime) {
  Ledger ledger(8, {});
  for (const char* key : {"a", "b", "c"}) ledger.Add(Units(key, 1));
  EXPECT_EQ(ledger.Take(2).size(), 2U);
  EXPECT_EQ(ledger.Take(2).size(), 1U);
  EXPECT_TRUE(ledger.Take(2).empty());
  EXPECT_EQ(ledger.Add(Units("a", 1)), Added::kFirst) << "there was nothing before";
}

TEST(Ledger, IsBounded) {
  Ledger ledger(1, {});
  EXPECT_EQ(ledger.Add(Units("a", 1)), Added::kFirst);
  EXPECT_EQ(ledger.Add(Units("b", 1)), Added::kFull);
  EXPECT_EQ(ledger.Add(Units("a", core::kExactMax)), Added::kAdded);
  EXPECT_EQ(ledger.Take(1).front().units, core::kExactMax) << "no sum is too large";
}

}  // namespace
}  // namespace sluice::guard
