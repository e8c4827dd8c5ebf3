// SPDX-License-Identifier: Apache-2.0
// Checks at the server's time, which the script decides in its shortest way: memory decides the
// same, to the last field. Elsewhere, tests bring their own time.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "base/text.h"
#include "conformance/traffic.h"
#include "redis/resp.h"
#include "simulate/program_test.h"
#include "sluice/memory_store.h"
#include "store/redis/batch.h"
#include "store/redis/script.h"

namespace sluice::simulate {
namespace {

class ChecksTest : public ProgramTest {
 protected:
  struct Asked {
    std::string key;
    Charge charge;
    Decision each, expected_each;
    SeenState seen, expected_seen;
    Request request;
    Expected<Decision> expected = Decision{};
    std::vector<redis::Receipt> receipts;
  };

  // Some checks in one call. Now and then one of them is held, and none is plain then.
  void AskBoth(Random& random, const std::vector<Limit>& limits) {
    std::deque<Asked> all;
    redis::Batch batch;
    const bool holds = random.OneIn(20);
    const auto any_limit = [&] {
      return static_cast<std::size_t>(
          random.Between(0, static_cast<std::int64_t>(limits.size()) - 1));
    };
    const std::size_t most = any_limit();  // Checks of one limit make a run.
    for (std::int64_t i = random.Between(1, 8); i > 0; --i) {
      const std::size_t number = random.OneIn(4) ? any_limit() : most;
      // Sometimes under the key of the limit that differs only in its amount.
      const bool other = number % 3 == 1 && random.OneIn(10);
      const std::string key =
          text::Cat(rounds_, ".", random.Between(1, 4), ".", number - (other ? 1 : 0));
      const std::int64_t cost = random.OneIn(4) ? RandomCost(random, limits[number]) : 1;
      for (std::int64_t times = random.OneIn(5) ? random.Between(2, 4) : 1; times > 0; --times) {
        Asked& asked = all.emplace_back();
        asked.key = key;
        asked.charge = {.key = asked.key, .limit = &limits[number], .name = "n", .cost = cost};
        asked.request = {
            .charges = {&asked.charge, 1}, .each = {&asked.each, 1}, .seen = {&asked.seen, 1}};
        Request same = asked.request;
        same.now = At(now_us_);
        same.each = {&asked.expected_each, 1};
        same.seen = {&asked.expected_seen, 1};
        memory_.Apply({&same, 1}, [] {});
        asked.expected = same.outcome;
        batch.Add({.request = &asked.request, .receipts = holds ? &asked.receipts : nullptr}, "p",
                  64);
      }
    }
    if (batch.empty()) return;
    std::string command;
    batch.AppendCommand(command, GetParam(), "", At(now_us_));
    redis::RespParser question;
    ASSERT_EQ(question.Parse(command), redis::RespParser::Status::kMessage);
    std::vector<std::string> words;
    for (const auto& node : question.nodes().subspan(1)) words.emplace_back(node.text);
    const std::string reply = Execute(words);
    redis::RespParser answer;
    ASSERT_EQ(answer.Parse(reply), redis::RespParser::Status::kMessage);
    texts_ += answer.nodes().size() == 1;
    const auto decoded = batch.Decode(answer.nodes());
    ASSERT_TRUE(decoded) << decoded.error().message << "\n" << command << "\n" << reply;
    for (const Asked& asked : all) {
      const Expected<Decision>& outcome = asked.request.outcome;
      SCOPED_TRACE(text::Cat(asked.key, " ", asked.charge.limit->ToString(),
                             " cost=", asked.charge.cost, "\n", command, "\n", reply));
      ASSERT_EQ(outcome.has_value(), asked.expected.has_value());
      if (!outcome) continue;
      ASSERT_EQ(*outcome, *asked.expected);
      ASSERT_EQ(asked.each, asked.expected_each);
      ASSERT_EQ(asked.seen, asked.expected_seen);
    }
  }

  MemoryStore memory_{{.recovered_kept_for = Micros::max()}};
  int rounds_ = 0;
  int texts_ = 0;  // Replies in the short form.
};

TEST_P(ChecksTest, AreDecidedAsInMemory) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE(text::Cat("SLUICE_TEST_SEED=", seed));
    Random random(seed);
    for (int round = 0; round < 40; ++round) {
      ++rounds_;  // With keys of its own.
      now_us_ = kStartUs;
      std::vector<Limit> limits;
      for (const Algorithm algorithm : kAlgorithms) {
        // A call with a calendar has no short form.
        if (algorithm == Algorithm::kCalendar && round % 4 > 0) continue;
        limits.push_back(SimpleLimit(algorithm, 7, 3, Micros{1'000'000}));
        limits.push_back(SimpleLimit(algorithm, 9, 3, Micros{1'000'000}));
        limits.push_back(RandomLimit(random, algorithm));
      }
      for (int i = 0; i < 100; ++i) {
        const auto& limit = limits[static_cast<std::size_t>(i) % limits.size()];
        now_us_ = NextTime(random, now_us_, limit, {}, Time::kForward);
        ASSERT_NO_FATAL_FAILURE(AskBoth(random, limits));
      }
    }
  }
  EXPECT_GT(texts_, 1'000);
}

INSTANTIATE_TEST_SUITE_P(All, ChecksTest,
                         testing::Values(redis::ProgramForm::kFunction,
                                         redis::ProgramForm::kScript),
                         [](const auto& form) {
                           return form.param == redis::ProgramForm::kFunction ? "Function"
                                                                              : "Script";
                         });

}  // namespace
}  // namespace sluice::simulate
