// SPDX-License-Identifier: Apache-2.0
// How the library interprets the script's replies, including those that our script never gives.
#include "store/redis/batch.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace sluice::redis {
namespace {

constexpr std::int64_t kNow = 1'700'000'000'000'000;
constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

const Limit kBucket = *Limit::Parse("algorithm=token_bucket,capacity=5,refill=1,period=1s");
const Limit kWindow = *Limit::Parse("algorithm=fixed_window,limit=5,window=1s");
const Limit kCounter = *Limit::Parse("limit=5,window=1s");
const Limit kLog = *Limit::Parse("algorithm=sliding_window,limit=5,window=1s");

RespNode Number(std::int64_t number) { return {RespType::kInteger, number, {}}; }

std::vector<RespNode> ReplyOf(std::vector<RespNode> nodes) {
  nodes.insert(nodes.begin(), {RespType::kArray, static_cast<std::int64_t>(nodes.size()), {}});
  return nodes;
}

// The outcome of one check under `limit` when the script returns `numbers` as status and state.
Expected<Decision> OutcomeOf(const Limit& limit, const std::vector<std::int64_t>& numbers,
                             std::int64_t cost = 1) {
  const Charge charge{.key = "k", .limit = &limit, .cost = cost};
  Request request{.charges = {&charge, 1}};
  Batch batch;
  EXPECT_EQ(batch.Add({.request = &request}, "p", 1), Batch::Added::kTaken);
  std::vector<RespNode> nodes = {Number(kNow)};
  for (const std::int64_t number : numbers) nodes.push_back(Number(number));
  const auto decoded = batch.Decode(ReplyOf(nodes));
  EXPECT_TRUE(decoded) << decoded.error().message;
  return request.outcome;
}

TEST(Batch, TakesNoNumbersForAStateThatNoStateHas) {
  const std::int64_t far = std::int64_t{1} << 52;
  const std::int64_t start = kNow - kNow % 1'000'000;
  const std::int64_t whole = kBucket.whole();
  EXPECT_TRUE(OutcomeOf(kBucket, {1, whole, kNow}));
  EXPECT_TRUE(OutcomeOf(kWindow, {1, start, 4}));
  EXPECT_TRUE(OutcomeOf(kCounter, {1, start / 1'000'000, 0, 4}));
  EXPECT_TRUE(OutcomeOf(kLog, {1, 4, kNow, kNow - 1, 0}));
  EXPECT_TRUE(OutcomeOf(kLog, {1, 0, -1, 0, 0}));
  const std::vector<std::pair<const Limit*, std::vector<std::int64_t>>> unsound = {
      {&kBucket, {1, whole + 1, kNow}},
      {&kBucket, {0, whole - (std::int64_t{1} << 53), kNow}},
      {&kBucket, {0, std::numeric_limits<std::int64_t>::min(), kNow}},
      {&kBucket, {1, whole, far}},
      {&kBucket, {1, whole, kHuge}},
      {&kWindow, {1, start + 1, 4}},
      {&kWindow, {1, -1'000'000, 4}},
      {&kWindow, {0, start, std::int64_t{1} << 53}},
      {&kWindow, {1, kHuge - kHuge % 1'000'000, 4}},
      {&kCounter, {1, far, 0, 4}},
      {&kCounter, {1, -1, 0, 4}},
      {&kCounter, {0, 5, kHuge, 4}},
      {&kCounter, {0, 5, 0, kHuge}},
      {&kCounter, {1, 5, 0, -4}},
      {&kLog, {1, -1, kNow, kNow, 0}},
      {&kLog, {0, kHuge, kNow, kNow, kNow}},
      {&kLog, {1, 4, far, kNow, 0}},
      {&kLog, {1, 4, kNow, kNow + 1, 0}},
      {&kLog, {1, 4, kNow, kNow - 1'000'000, 0}},
      {&kLog, {0, 5, kNow, kNow, kHuge}},
      {&kLog, {1, 4, -1, 0, 0}},
  };
  for (const auto& [limit, numbers] : unsound) {
    const auto outcome = OutcomeOf(*limit, numbers);
    ASSERT_FALSE(outcome) << limit->ToString() << " " << testing::PrintToString(numbers);
    EXPECT_EQ(outcome.error().code, ErrorCode::kForeignState) << outcome.error().message;
    EXPECT_TRUE(outcome.error().message.contains("p:{k}:")) << outcome.error().message;
  }
}

TEST(Batch, TakesNothingThatComesAfterAResetOfItsState) {
  const std::array charges = {Charge{.key = "k", .limit = &kWindow},
                              Charge{.key = "o", .limit = &kWindow}};
  Request reset{.charges = std::span(charges).first(1), .action = Action::kReset};
  Request check{.charges = std::span(charges).first(1)};
  Request both{.charges = charges};
  Request other{.charges = std::span(charges).last(1)};
  Batch batch;
  EXPECT_EQ(batch.Add({.request = &check}, "p", 9), Batch::Added::kTaken);
  EXPECT_EQ(batch.Add({.request = &reset}, "p", 9), Batch::Added::kTaken);
  EXPECT_EQ(batch.Add({.request = &check}, "p", 9), Batch::Added::kFull);
  EXPECT_EQ(batch.Add({.request = &both}, "p", 9), Batch::Added::kFull);
  EXPECT_EQ(batch.Add({.request = &other}, "p", 9), Batch::Added::kTaken);
}

// Any numbers are decided within the limit, or refused.
TEST(Batch, DecidesWithinTheLimitOrNotAtAll) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto any = [&]() -> std::int64_t {
    constexpr std::array<std::int64_t, 9> kEdges = {
        0, 1, -1, kNow, kNow - 1, kNow + 1, kNow - kNow % 1'000'000, kNow / 1'000'000, kHuge};
    if (random() % 2 == 0) return kEdges[random() % kEdges.size()];
    return static_cast<std::int64_t>(random()) >> (random() % 64);
  };
  int decided = 0;
  for (int i = 0; i < 40'000; ++i) {
    const std::array limits = {&kBucket, &kWindow, &kCounter, &kLog};
    const std::size_t kind = random() % limits.size();
    std::vector<std::int64_t> numbers = {static_cast<std::int64_t>(random() % 2)};
    for (std::size_t n = 0; n < (kind == 3 ? 4u : kind == 2 ? 3u : 2u); ++n) {
      numbers.push_back(any());
    }
    const auto outcome = OutcomeOf(*limits[kind], numbers, static_cast<std::int64_t>(random() % 6));
    if (!outcome) {
      // kStoreError: the numbers contradict the script's decision.
      ASSERT_TRUE(outcome.error().code == ErrorCode::kForeignState ||
                  outcome.error().code == ErrorCode::kStoreError);
      continue;
    }
    ++decided;
    ASSERT_GE(outcome->remaining, 0);
    ASSERT_LE(outcome->remaining, 5);
    ASSERT_GE(outcome->reset_after.count(), 0);
  }
  EXPECT_GT(decided, 100);
}

TEST(Batch, AnErrorOfOneRequestIsItsOwn) {
  const std::array<Charge, 3> charges = {Charge{.key = "a", .limit = &kBucket},
                                         Charge{.key = "b", .limit = &kBucket},
                                         Charge{.key = "c", .limit = &kBucket}};
  std::array<Request, 3> requests;
  Batch batch;
  for (std::size_t i = 0; i < 3; ++i) {
    requests[i].charges = {&charges[i], 1};
    ASSERT_EQ(batch.Add({.request = &requests[i]}, "p", 3), Batch::Added::kTaken);
  }
  const RespNode oom = {RespType::kBulkString, 0,
                        "OOM command not allowed when used memory > 'maxmemory'."};
  const std::vector<RespNode> nodes = {Number(kNow), Number(1), Number(0),  Number(-1), oom,
                                       Number(0),    Number(0), Number(-1), Number(0),  Number(0)};
  ASSERT_TRUE(batch.Decode(ReplyOf(nodes)));
  EXPECT_TRUE(requests[0].outcome);
  EXPECT_EQ(requests[1].outcome.error().code, ErrorCode::kStoreFull);
  EXPECT_EQ(requests[2].outcome.error().code, ErrorCode::kForeignState);

  // A reply that cannot be the script's is one error for the whole call.
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    std::vector<RespNode> other = nodes;
    other[i] = {};
    EXPECT_FALSE(batch.Decode(ReplyOf(other))) << i;
  }
  std::vector<RespNode> late = nodes;
  late[0] = Number(std::int64_t{1} << 52);
  EXPECT_FALSE(batch.Decode(ReplyOf(late)));
}

TEST(Batch, SendsEqualChecksAsOneRun) {
  const std::array<Charge, 4> charges = {Charge{.key = "a", .limit = &kBucket},
                                         Charge{.key = "b", .limit = &kBucket},
                                         Charge{.key = "c", .limit = &kBucket, .cost = 2},
                                         Charge{.key = "c", .limit = &kBucket, .cost = 2}};
  const auto arguments_of = [&](std::span<const Charge> asked) {
    std::vector<Request> requests(asked.size());
    Batch batch;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      requests[i].charges = asked.subspan(i, 1);
      EXPECT_EQ(batch.Add({.request = &requests[i]}, "p", 9), Batch::Added::kTaken);
    }
    std::string command;
    batch.AppendCommand(command, ProgramForm::kFunction);
    RespParser parser;
    EXPECT_EQ(parser.Parse(command), RespParser::Status::kMessage);
    std::vector<std::string> arguments;
    const auto words = parser.nodes().subspan(1);
    for (const RespNode& node : words.subspan(3 + batch.operations())) {
      arguments.emplace_back(node.text);
    }
    return arguments;
  };
  using Words = std::vector<std::string>;
  const std::string one = "b:5:1000000:1:1 1";
  const std::string two = "b:5:1000000:1:1 2";
  EXPECT_EQ(arguments_of(std::span(charges).first(1)), Words{one});
  EXPECT_EQ(arguments_of(std::span(charges).first(2)), Words{one});
  EXPECT_EQ(arguments_of(std::span(charges).first(3)), (Words{one, "2", "1", two}));
  EXPECT_EQ(arguments_of(charges), (Words{one, "2", "1", two, "1", "2"}));
  EXPECT_EQ(arguments_of(std::span(charges).last(2)), (Words{two, "1", "2"}));
}

TEST(Batch, ReadsALineForEachCheck) {
  const std::array<Charge, 4> charges = {
      Charge{.key = "a", .limit = &kBucket}, Charge{.key = "b", .limit = &kWindow},
      Charge{.key = "c", .limit = &kCounter}, Charge{.key = "d", .limit = &kBucket}};
  std::array<Request, 4> requests;
  Batch batch;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    requests[i].charges = {&charges[i], 1};
    ASSERT_EQ(batch.Add({.request = &requests[i]}, "p", 4), Batch::Added::kTaken);
  }
  const auto decode = [&](std::string_view text) {
    const RespNode node = {RespType::kBulkString, 0, text};
    return batch.Decode({&node, 1}).has_value();
  };
  const std::string good =
      "1700000000 000000\n1 5000000 1699999999999999\n0 1700000000000000 5\n-1 "
      "\n!OOM command not allowed when used memory > 'maxmemory'.";
  ASSERT_TRUE(decode(good));
  EXPECT_EQ(requests[0].outcome->remaining, 4);
  EXPECT_FALSE(requests[1].outcome->allowed);
  EXPECT_EQ(requests[2].outcome.error().code, ErrorCode::kForeignState);
  EXPECT_EQ(requests[3].outcome.error().code, ErrorCode::kStoreFull);
  ASSERT_TRUE(decode("1700000000 1\n1 \n1 \n1 \n1 "));
  for (const Request& request : requests) EXPECT_EQ(request.outcome->remaining, 4);

  // What cannot be the script's is one error for the whole call.
  for (const char* const bad :
       {"", "1700000000 0", "1700000000 0\n1 \n1 \n1 ", "1700000000 0\n1 \n1 \n1 \n1 \n1 ",
        "1700000000\n1 \n1 \n1 \n1 ", "1700000000 1000000\n1 \n1 \n1 \n1 ",
        "5000000000 0\n1 \n1 \n1 \n1 ", "1700000000 0\n2 \n1 \n1 \n1 ",
        "1700000000 0\n-2 \n1 \n1 \n1 ", "1700000000 0\n1 1\n1 \n1 \n1 ",
        "1700000000 0\n1 1 2 3\n1 \n1 \n1 ", "1700000000 0\n1 \n1 \n1 1 2 3 4\n1 ",
        "1700000000 0\n1 x\n1 \n1 \n1 ", "1700000000 0\n\n1 \n1 \n1 "}) {
    EXPECT_FALSE(decode(bad)) << bad;
  }
}

}  // namespace
}  // namespace sluice::redis
