// SPDX-License-Identifier: Apache-2.0
#include "reload/managed_rules.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::reload {
namespace {

using From = KnownRules::From;

const std::string kA(32, 'a');
const std::string kB(32, 'b');
const Documents kSome = {{"one", "{id: one}"}};

TEST(Judge, SaysWhoIsRight) {
  const auto judge = [](const Documents& stored, const std::string& marker, From from,
                        const Documents& known, const Revision& revision) {
    return Judge({.documents = stored, .marker = marker},
                 {.from = from, .revision = revision, .stored = known, .good = {}});
  };
  using enum Verdict;
  // Nothing is known: whatever is there is right.
  EXPECT_EQ(judge({}, "", From::kNowhere, {}, {}), kTake);
  EXPECT_EQ(judge(kSome, kA + ":7", From::kNowhere, {}, {}), kTake);
  for (const From from : {From::kFile, From::kStore}) {
    // The same store: unchanged, further on, gone back, and emptied.
    EXPECT_EQ(judge(kSome, kA + ":7", from, kSome, {kA, 7}), kTake);
    EXPECT_EQ(judge({}, kA + ":8", from, kSome, {kA, 7}), kTake) << "emptied on purpose";
    EXPECT_EQ(judge(kSome, kA + ":6", from, kSome, {kA, 7}), kReplace);
    EXPECT_EQ(judge({}, "", from, kSome, {kA, 7}), kFill);
    EXPECT_EQ(judge(kSome, "", from, kSome, {kA, 7}), kFill) << "emptied and filled by hand";
    EXPECT_EQ(judge(kSome, "nonsense", from, kSome, {kA, 7}), kFill);
    EXPECT_EQ(judge({}, "", from, {}, {kA, 7}), kFill) << "so that the next loss is noticed";
    // A store that never had a revision has lost something if it is empty.
    EXPECT_EQ(judge({}, "", from, kSome, {}), kFill);
    EXPECT_EQ(judge(kSome, "", from, kSome, {}), kTake);
    EXPECT_EQ(judge({}, "", from, {}, {}), kTake);
    EXPECT_EQ(judge(kSome, kA + ":1", from, kSome, {}), kTake);
  }
  // Another store in its place.
  EXPECT_EQ(judge({{"two", "{}"}}, kB + ":1", From::kStore, kSome, {kA, 7}), kFill);
  EXPECT_EQ(judge(kSome, kB + ":1", From::kStore, kSome, {kA, 7}), kTake) << "nothing is missing";
  EXPECT_EQ(judge({{"two", "{}"}}, kB + ":1", From::kFile, kSome, {kA, 7}), kTake);
}

TEST(Revision, ReadsWhatItWrites) {
  const Revision revision{.lineage = kA, .number = 42};
  EXPECT_EQ(Revision::Parse(revision.ToString()), revision);
  EXPECT_EQ(Revision{}.ToString(), "");
  for (const std::string& text :
       {std::string(), std::string("a:1"), std::string(32, 'g') + ":1", kA, kA + ":", kA + ":-1",
        kA + ":1 ", kA + ":1234567890123456", kA + "a:1", kA + ":0x1"}) {
    EXPECT_EQ(Revision::Parse(text), std::nullopt) << text;
  }
  EXPECT_NE(NewLineage(), NewLineage());
  EXPECT_TRUE(Revision::Parse(NewLineage() + ":1"));
}

}  // namespace
}  // namespace sluice::reload
