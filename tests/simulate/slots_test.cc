// SPDX-License-Identifier: Apache-2.0
// Slots taken and released at the server's time, which the script decides in a way of its own:
// memory decides the same, to the last field. Elsewhere, tests bring their own time.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "base/text.h"
#include "conformance/traffic.h"
#include "core/arithmetic.h"
#include "redis/resp.h"
#include "simulate/program_test.h"
#include "sluice/memory_store.h"
#include "store/redis/batch.h"
#include "store/redis/script.h"

namespace sluice::simulate {
namespace {

class SlotsTest : public ProgramTest {
 protected:
  struct Asked {
    std::string key;
    std::string id;
    Charge charge;
    HoldTerms terms, expected_terms;
    Decision each, expected_each;
    SeenState seen, expected_seen;
    Request request;
    Expected<Decision> expected = Decision{};
  };

  // Some requests about holds in one call. Now and then one of them is not plain, and none is then.
  void AskBoth(Random& random, const std::vector<Limit>& limits) {
    std::deque<Asked> all;
    redis::Batch batch;
    const bool is_plain = !random.OneIn(10);
    for (std::int64_t i = random.Between(1, 10); i > 0; --i) {
      const auto number =
          static_cast<std::size_t>(random.Between(0, static_cast<std::int64_t>(limits.size()) - 1));
      Asked& asked = all.emplace_back();
      // Limits of a pair differ in their amount, and have the same states.
      asked.key = text::Cat(rounds_, ".", random.Between(1, 4), ".", number / 2);
      asked.id = std::string(random.OneIn(3) ? 32 : 1,
                             static_cast<char>('a' + random.Between(0, ids_max_)));
      asked.charge = {
          .key = asked.key, .limit = &limits[number], .name = "n", .cost = random.Between(0, 3)};
      constexpr std::array kTtls = {Micros{0}, Micros{1'000}, Micros{5'000'000}, kHoldTtlMax};
      asked.terms = {.id = asked.id, .ttl = kTtls[static_cast<std::size_t>(random.Between(0, 3))]};
      asked.expected_terms = asked.terms;
      const bool is_other = !is_plain && random.OneIn(3);
      asked.request = {.charges = {&asked.charge, 1},
                       .each = {&asked.each, 1},
                       .seen = {&asked.seen, 1},
                       .action = is_other          ? Action::kExtend
                                 : random.OneIn(2) ? Action::kSettle
                                                   : Action::kHold,
                       .hold = &asked.terms};
      Request same = asked.request;
      same.now = At(now_us_);
      same.each = {&asked.expected_each, 1};
      same.seen = {&asked.expected_seen, 1};
      same.hold = &asked.expected_terms;
      memory_.Apply({&same, 1}, [] {});
      asked.expected = same.outcome;
      batch.Add({.request = &asked.request}, "p", 64);
    }
    if (batch.empty()) return;
    std::string command;
    batch.AppendCommand(command, GetParam());
    redis::RespParser question;
    ASSERT_EQ(question.Parse(command), redis::RespParser::Status::kMessage);
    std::vector<std::string> words;
    for (const auto& node : question.nodes().subspan(1)) words.emplace_back(node.text);
    const std::string reply = Execute(words);
    redis::RespParser answer;
    ASSERT_EQ(answer.Parse(reply), redis::RespParser::Status::kMessage);
    ASSERT_TRUE(redis_.Immortals().empty());
    const auto decoded = batch.Decode(answer.nodes());
    ASSERT_TRUE(decoded) << decoded.error().message << "\n" << command << "\n" << reply;
    if (answer.nodes().size() == 1) Count(answer.nodes().front().text);
    for (const Asked& asked : all) {
      const Expected<Decision>& outcome = asked.request.outcome;
      SCOPED_TRACE(text::Cat(asked.key, " ", asked.charge.limit->ToString(),
                             " cost=", asked.charge.cost, " id ", asked.id, " action ",
                             static_cast<int>(asked.request.action), "\n", command, "\n", reply));
      ASSERT_EQ(outcome.has_value(), asked.expected.has_value());
      if (!outcome) {
        ASSERT_EQ(outcome.error().code, asked.expected.error().code);
        continue;
      }
      ASSERT_EQ(*outcome, *asked.expected);
      ASSERT_EQ(asked.each, asked.expected_each);
      ASSERT_EQ(asked.seen, asked.expected_seen);
      ASSERT_EQ(asked.terms.expires, asked.expected_terms.expires);
      ASSERT_EQ(asked.terms.late, asked.expected_terms.late);
      ASSERT_EQ(asked.terms.overdrawn, asked.expected_terms.overdrawn);
      if (asked.request.action != Action::kSettle) expiry_ = core::Us(asked.terms.expires);
    }
  }

  // The lines of a reply that were decided in the short way, and those that were not.
  void Count(std::string_view text) {
    for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n', end + 1)) {
      ++(text.substr(end + 1).starts_with('h') ? long_ : short_);
    }
  }

  void Advance(Random& random) {
    std::int64_t next = now_us_ + random.AnySize(2'000'000);
    if (random.OneIn(10)) next = expiry_ + random.Between(-1, 1);
    if (random.OneIn(30)) next = expiry_ + kHoldRemembered.count() + random.Between(-1, 1);
    now_us_ = std::max(now_us_, next);
  }

  MemoryStore memory_{{.recovered_kept_for = Micros::max()}};
  std::int64_t expiry_ = kStartUs;
  int rounds_ = 0;
  std::int64_t ids_max_ = 0;
  int short_ = 0;
  int long_ = 0;
};

TEST_P(SlotsTest, AreTakenAndReleasedAsInMemory) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE(text::Cat("SLUICE_TEST_SEED=", seed));
    Random random(seed);
    for (int round = 0; round < 60; ++round) {
      ++rounds_;  // With keys of its own.
      ids_max_ = random.Between(2, 25);
      std::vector<Limit> limits;
      for (int pair = 0; pair < 3; ++pair) {
        const Micros ttl{random.AnySize(60'000'000) + 1'000};
        limits.push_back(*Limit::Make(Algorithm::kConcurrency, random.Between(1, 30), 1, ttl));
        limits.push_back(*Limit::Make(Algorithm::kConcurrency, random.Between(1, 30), 1, ttl));
      }
      for (int i = 0; i < 100; ++i) {
        Advance(random);
        ASSERT_NO_FATAL_FAILURE(AskBoth(random, limits));
      }
    }
  }
  EXPECT_GT(short_, 1'000);
  EXPECT_GT(long_, 1'000);
}

INSTANTIATE_TEST_SUITE_P(All, SlotsTest,
                         testing::Values(redis::ProgramForm::kFunction,
                                         redis::ProgramForm::kScript),
                         [](const auto& form) {
                           return form.param == redis::ProgramForm::kFunction ? "Function"
                                                                              : "Script";
                         });

}  // namespace
}  // namespace sluice::simulate
