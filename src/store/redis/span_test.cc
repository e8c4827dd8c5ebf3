// SPDX-License-Identifier: Apache-2.0
// Holds over several slots. Other requests over several slots are tested with a Cluster.
#include "store/redis/span.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

namespace sluice::redis {
namespace {

const Limit& Slots() {
  static const Limit limit = *Limit::Parse("algorithm=concurrency,limit=3,ttl=30s");
  return limit;
}

class HoldSpan : public testing::Test {
 protected:
  static constexpr Decision kAllowed{.allowed = true, .limit = 3, .remaining = 2};
  static constexpr Decision kDenied{.allowed = false, .limit = 3, .remaining = 0};

  static void Answer(Request& request, const Expected<Decision>& outcome) {
    request.outcome = outcome;
    if (outcome) std::ranges::fill(request.each, *outcome);
  }
  static Expected<Decision> Failed(ErrorCode code) {
    return std::unexpected(Error{code, "it failed"});
  }

  // All parts pass the look; then the first `held` of them are held.
  void HoldFirst(std::size_t held) {
    for (Span::Part& part : span_.parts()) Answer(part.request, kAllowed);
    ASSERT_TRUE(span_.MayTake());
    for (std::size_t i = 0; i < held; ++i) {
      Span::Part* const part = span_.NextToHold();
      ASSERT_EQ(part, &span_.parts()[i]);
      part->terms.expires = TimePoint{Micros{100 - static_cast<std::int64_t>(i)}};
      Answer(part->request, kAllowed);
    }
  }

  std::array<Charge, 3> charges_ = {Charge{.key = "a", .limit = &Slots()},
                                    Charge{.key = "b", .limit = &Slots()},
                                    Charge{.key = "c", .limit = &Slots()}};
  HoldTerms terms_{.id = "id"};
  Request request_{.charges = charges_, .action = Action::kHold, .hold = &terms_};
  static constexpr std::array<std::uint16_t, 3> kSlots = {1, 2, 3};
  Span span_{request_, kSlots};
};

TEST_F(HoldSpan, ExpiresWithTheFirstOfItsParts) {
  HoldFirst(3);
  EXPECT_EQ(span_.NextToHold(), nullptr);
  EXPECT_TRUE(span_.ToRelease().empty());
  ASSERT_TRUE(request_.outcome);
  EXPECT_TRUE(request_.outcome->allowed);
  EXPECT_EQ(terms_.expires, TimePoint{Micros{98}});
}

TEST_F(HoldSpan, IsReleasedIfALaterPartDenies) {
  HoldFirst(1);
  Answer(span_.NextToHold()->request, kDenied);
  EXPECT_EQ(span_.NextToHold(), nullptr) << "the third is not asked";
  const auto parts = span_.ToRelease();
  ASSERT_EQ(parts.size(), 1);
  EXPECT_EQ(parts[0]->release.action, Action::kSettle);
  EXPECT_EQ(parts[0]->release.charges[0].cost, 0);
  Answer(parts[0]->release, kAllowed);
  EXPECT_TRUE(span_.Released());
  ASSERT_TRUE(request_.outcome);
  EXPECT_FALSE(request_.outcome->allowed);
}

TEST_F(HoldSpan, LeavesWhatWasHeldBefore) {
  HoldFirst(1);
  span_.parts()[0].existed = true;
  Answer(span_.NextToHold()->request, Failed(ErrorCode::kHoldConflict));
  EXPECT_EQ(span_.NextToHold(), nullptr);
  EXPECT_TRUE(span_.ToRelease().empty());
  ASSERT_FALSE(request_.outcome);
  EXPECT_EQ(request_.outcome.error().code, ErrorCode::kHoldConflict);
}

TEST_F(HoldSpan, ReleasesAPartWhoseAnswerWasLost) {
  HoldFirst(1);
  Answer(span_.NextToHold()->request, Failed(ErrorCode::kOutcomeUnknown));
  const auto parts = span_.ToRelease();
  ASSERT_EQ(parts.size(), 2);
  for (Span::Part* part : parts) Answer(part->release, kAllowed);
  EXPECT_TRUE(span_.Released());
  EXPECT_EQ(request_.outcome.error().code, ErrorCode::kUnavailable) << "nothing is on hold";
}

TEST_F(HoldSpan, SaysSoIfSomethingStaysOnHold) {
  HoldFirst(1);
  Answer(span_.NextToHold()->request, Failed(ErrorCode::kUnavailable));
  const auto parts = span_.ToRelease();
  ASSERT_EQ(parts.size(), 1);
  Answer(parts[0]->release, Failed(ErrorCode::kUnavailable));
  EXPECT_FALSE(span_.Released());
  ASSERT_FALSE(request_.outcome);
  EXPECT_EQ(request_.outcome.error().code, ErrorCode::kOutcomeUnknown);
  EXPECT_NE(request_.outcome.error().message.find("until it expires"), std::string::npos);
}

}  // namespace
}  // namespace sluice::redis
