// SPDX-License-Identifier: Apache-2.0
// The simulator's Redis answers like a real one: the same random calls of the script get the same
// replies, byte for byte.
#include "simulate/lua_redis.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <future>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "conformance/script.h"
#include "conformance/traffic.h"
#include "redis/resp.h"

namespace sluice::simulate {
namespace {

std::string TextOf(std::span<const redis::RespNode> nodes) {
  std::string text;
  for (const redis::RespNode& node : nodes) {
    text += text::Cat(static_cast<int>(node.type), ":", node.number, ":", node.text, "\n");
  }
  return text;
}

class LuaRedisTest : public ScriptTest {
 protected:
  void SetUp() override {
    ScriptTest::SetUp();
    for (const auto& [command, form] : {std::pair{"SCRIPT", redis::ProgramForm::kScript},
                                        {"FUNCTION", redis::ProgramForm::kFunction}}) {
      const std::array<std::string, 3> load = {command, "LOAD", redis::ProgramAs(form).source};
      redis_.Execute(load, kStartUs);
    }
    for (const core::AlgorithmRow& row : core::kAlgorithms) {
      limits_.push_back(SimpleLimit(row.algorithm, 7, 3, Micros{1'000'000}));
      limits_.push_back(SimpleLimit(row.algorithm, 20, 10, Micros{60'000'000}));
    }
    for (std::size_t i = 0; i < limits_.size(); ++i) names_.push_back(text::Cat("n", i));
  }

  std::string AskReal(const std::string& command) {
    std::promise<std::string> answer;
    client_->Send(command, "", [&](Expected<std::span<const redis::RespNode>> reply) {
      answer.set_value(reply ? TextOf(*reply) : reply.error().message);
    });
    return answer.get_future().get();
  }

  // `batch` takes receipts from the reply.
  std::string AskSimulated(const std::string& command, redis::Batch& batch) {
    redis::RespParser parser;
    EXPECT_EQ(parser.Parse(command), redis::RespParser::Status::kMessage);
    std::vector<std::string> words;
    for (const redis::RespNode& node : parser.nodes().subspan(1)) words.emplace_back(node.text);
    const std::string reply = redis_.Execute(words, now_us_);
    redis::RespParser answer;
    EXPECT_EQ(answer.Parse(reply), redis::RespParser::Status::kMessage) << reply;
    EXPECT_TRUE(batch.Decode(answer.nodes()));
    return TextOf(answer.nodes());
  }

  static void AboutHold(Random& random, Request& request, HoldTerms& terms, std::string& id) {
    constexpr std::array kActions = {Action::kHold, Action::kHold, Action::kSettle,
                                     Action::kExtend};
    request.action = kActions[static_cast<std::size_t>(random.Between(0, 3))];
    id = std::string("id ") + static_cast<char>('a' + random.Between(0, 9));
    const std::int64_t ttl = random.AnySize(random.OneIn(4) ? kHoldTtlMax.count() : 60'000'000);
    terms = {.id = id,
             .ttl = std::max(kHoldTtlMin, Micros{ttl}),
             .on_expiry = random.OneIn(2) ? OnExpiry::kRelease : OnExpiry::kCharge};
    request.hold = &terms;
  }

  // Sends some random requests in one call to both.
  void AskBoth(Random& random) {
    struct Asked {
      std::vector<Charge> charges;
      std::vector<std::string> keys;
      Request request;
      std::vector<redis::Receipt> receipts;
      std::string id;
      HoldTerms terms;
    };
    std::deque<Asked> all;
    redis::Batch batch;
    std::vector<redis::Receipt> refund;
    Request back;
    for (std::int64_t i = random.Between(1, 6); i > 0; --i) {
      Asked& asked = all.emplace_back();
      for (std::int64_t j = random.OneIn(3) ? random.Between(2, 3) : 1; j > 0; --j) {
        asked.keys.push_back(text::Cat("k", random.Between(1, 4), ".", j));
      }
      for (const std::string& key : asked.keys) {
        const auto number = random.Between(0, static_cast<std::int64_t>(limits_.size()) - 1);
        // Now and then another limit has the same name: states are carried over.
        asked.charges.push_back(
            {.key = key,
             .limit = &limits_[static_cast<std::size_t>(number)],
             .name = random.OneIn(20) ? "shared"
                                      : std::string_view(names_[static_cast<std::size_t>(number)]),
             .cost = random.Between(0, 3)});
      }
      asked.request.charges = asked.charges;
      asked.request.now = At(now_us_);
      asked.request.action = random.OneIn(10) ? Action::kReset : RandomAction(random);
      if (random.OneIn(2)) AboutHold(random, asked.request, asked.terms, asked.id);
      redis::Task task{.request = &asked.request};
      if (asked.request.action == Action::kHold && random.OneIn(6)) {
        task.kind = redis::Task::Kind::kLook;
      } else if (asked.request.action == Action::kCheck && random.OneIn(3)) {
        random.OneIn(2) ? void(task.kind = redis::Task::Kind::kLook)
                        : void(task.receipts = &asked.receipts);
      }
      batch.Add(task, "p", 64);
    }
    if (!receipts_.empty() && random.OneIn(3)) {
      refund = std::exchange(receipts_, {});
      refunds_ += static_cast<int>(refund.size());
      back.now = At(now_us_);
      batch.Add({.request = &back, .kind = redis::Task::Kind::kRefund, .receipts = &refund}, "p",
                64);
    }
    if (batch.empty()) return;
    std::string command;
    batch.AppendCommand(command, form_);
    const std::string real = AskReal(command);
    ASSERT_EQ(real, AskSimulated(command, batch)) << command;
    for (Asked& asked : all) {
      for (redis::Receipt& receipt : asked.receipts) {
        receipt.charge = nullptr;
        receipts_.push_back(std::move(receipt));
      }
    }
  }

  std::vector<Limit> limits_;
  std::vector<std::string> names_;  // One for each limit.
  std::vector<redis::Receipt> receipts_;
  LuaRedis redis_;
  std::int64_t now_us_ = kStartUs;
  int refunds_ = 0;
};

TEST_F(LuaRedisTest, AnswersLikeARealServer) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE(text::Cat("SLUICE_TEST_SEED=", seed));
    Random random(seed);
    for (int i = 0; i < 2'000; ++i) {
      now_us_ += random.OneIn(3) ? random.AnySize(60'000'000) : 0;
      form_ = random.OneIn(2) ? redis::ProgramForm::kFunction : redis::ProgramForm::kScript;
      ASSERT_NO_FATAL_FAILURE(AskBoth(random));
    }
  }
  EXPECT_GT(refunds_, 100) << "otherwise they were not tested";
}

TEST_F(LuaRedisTest, AnswersLikeARealServerThatIsFull) {
  form_ = redis::ProgramForm::kScript;
  Random random(Seeds().front());
  for (int i = 0; i < 500; ++i) {
    if (i % 50 == 0) {
      const bool full = i % 100 != 0;
      server_.Cli(full ? "config set maxmemory 1" : "config set maxmemory 0");
      redis_.set_full(full);
    }
    now_us_ += random.AnySize(2'000'000);
    ASSERT_NO_FATAL_FAILURE(AskBoth(random));
  }
}

}  // namespace
}  // namespace sluice::simulate
