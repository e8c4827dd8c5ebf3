// SPDX-License-Identifier: Apache-2.0
// Random traffic of holds, settles, extends and everything else under random limits: the memory
// store must agree with the reference model in every field of every answer.
//
// Each test prints its seed when it fails; SLUICE_TEST_SEED=<seed> runs it again.
#include <gtest/gtest.h>

#include <string>

#include "conformance/hold_traffic.h"
#include "conformance/model.h"
#include "conformance/model_spec.h"
#include "conformance/traffic.h"
#include "sluice/memory_store.h"

namespace sluice {
namespace {

class HoldsAgreeWithModel : public testing::TestWithParam<Algorithm> {};

TEST_P(HoldsAgreeWithModel, InEveryFieldOfEveryAnswer) {
  HoldCounts counts;
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    for (int round = 0; round < 250; ++round) {
      const std::vector<Limit> limits = {RandomLimit(random, GetParam())};
      SCOPED_TRACE(limits.front().ToString());
      MemoryStore store;
      ASSERT_NO_FATAL_FAILURE(CompareHolds(store, random, limits, 120, counts));
    }
  }
  EXPECT_GT(counts.live, 100);
  EXPECT_GT(counts.late, 100);
  EXPECT_GT(counts.conflicts, 20);
  EXPECT_GT(counts.lost, 20);
}

INSTANTIATE_TEST_SUITE_P(All, HoldsAgreeWithModel, testing::ValuesIn(kAllAlgorithms),
                         [](const auto& param) { return std::string(ToString(param.param)); });

TEST(HeldGroupsAgreeWithModel, OverSeveralKeysAndLimits) {
  HoldCounts counts;
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    for (int round = 0; round < 300; ++round) {
      std::vector<Limit> limits;
      for (std::int64_t i = random.Between(2, 4); i > 0; --i) {
        limits.push_back(RandomLimit(random, AnyAlgorithm(random)));
      }
      MemoryStore store;
      ASSERT_NO_FATAL_FAILURE(CompareHolds(store, random, limits, 100, counts));
    }
  }
  EXPECT_GT(counts.live, 20);
  EXPECT_GT(counts.late, 100);
}

TEST(HoldScenarios, AreDecidedByTheMemoryStoreAsByHand) {
  for (const scenario::Scenario& scenario : scenario::All()) {
    MemoryStore store;
    RunOnStore(store, scenario);
  }
}

}  // namespace
}  // namespace sluice
