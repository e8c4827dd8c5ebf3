// SPDX-License-Identifier: Apache-2.0
// What others wrote under a state's name, by accident or on purpose, in one call of the script with
// unrelated requests: those are decided as if it were not there.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/script.h"
#include "conformance/traffic.h"
#include "sluice/memory_store.h"
#include "store/redis/state_key.h"

namespace sluice {
namespace {

using redis::Command;
using redis::Receipt;
using redis::Task;
using namespace std::string_literals;

template <typename Container>
auto Pick(Random& random, const Container& container) {
  return container[static_cast<std::size_t>(
      random.Between(0, static_cast<std::int64_t>(std::size(container)) - 1))];
}

std::string Number(Random& random) {
  static const std::array kOdd = {""s,
                                  "-"s,
                                  "-0"s,
                                  "-1"s,
                                  "0"s,
                                  "00"s,
                                  "1.5"s,
                                  "+1"s,
                                  "0x10"s,
                                  "1e3"s,
                                  "1e400"s,
                                  "inf"s,
                                  "nan"s,
                                  "-9007199254740992"s,
                                  "4503599627370495"s,
                                  "4503599627370496"s,
                                  "9007199254740991"s,
                                  "9007199254740992"s,
                                  "9223372036854775807"s,
                                  "9223372036854775808"s,
                                  "18446744073709551616"s,
                                  std::string(400, '9'),
                                  "1\0002"s,
                                  "٣"s};
  switch (random.Between(0, 9)) {
    case 0:
    case 1:
      return Pick(random, kOdd);
    case 2:
      return std::to_string(random.AnySize(std::numeric_limits<std::int64_t>::max()));
    case 3:
    case 4:
      return std::to_string(kStartUs + random.Between(-100'000'000, 100'000'000));
    default:
      return std::to_string(random.Between(0, 40));
  }
}

std::string Journal(Random& random) {
  static const std::array kOdd = {";"s,  ";-"s,  ";x"s,     "; 1+"s, "; +1"s,
                                  ";5"s, ";5 "s, "; 1+1 "s, " ;"s};
  if (random.OneIn(2)) return Pick(random, kOdd);
  if (random.OneIn(20)) {
    std::string journal = random.OneIn(2) ? ";" : ";5";
    for (int i = 0; i < 20'000; ++i) journal += " 1+1";
    return journal;
  }
  std::string journal = ";" + (random.OneIn(2) ? Number(random) : "");
  for (std::int64_t i = random.Between(0, 3); i > 0; --i) {
    journal += " " + Number(random) + (random.OneIn(3) ? ":" : "+") + Number(random);
  }
  return journal;
}

// The text of a state: of the limit it will be asked under, or of another; intact, or not quite.
std::string StateText(Random& random, const std::string& own) {
  std::string text = own;
  if (random.OneIn(3)) {
    text = Pick(random, std::array{"b"s, "w"s, "c"s, "l"s, "z"s, ""s});
    for (int i = 0; i < 4; ++i) text += ":" + Number(random);
    for (std::int64_t i = random.Between(1, 4); i > 0; --i) text += " " + Number(random);
  } else if (random.OneIn(2)) {
    text = own.substr(0, own.find(' '));
    for (std::int64_t i = random.Between(1, 4); i > 0; --i) text += " " + Number(random);
  }
  if (random.OneIn(2)) text += Journal(random);
  if (random.OneIn(4) && !text.empty()) {
    text[static_cast<std::size_t>(random.Between(0, static_cast<std::int64_t>(text.size()) - 1))] =
        static_cast<char>(random.Between(0, 255));
  }
  if (random.OneIn(8)) text.resize(text.size() / 2);
  return text;
}

class ForeignStateTest : public ScriptTest {
 protected:
  static constexpr std::string_view kName = "n";

  static Charge ChargeOf(std::string_view key, const Limit& limit, std::int64_t cost) {
    return {.key = key, .limit = &limit, .name = kName, .cost = cost};
  }

  // Puts something under `key`.
  void Craft(Random& random, const std::string& key, const std::string& own) {
    switch (random.Between(0, 11)) {
      case 0:
        Tell(Command("RPUSH", key, "x"));
        return;
      case 1:
        Tell(Command("HSET", key, "f", own));
        return;
      case 2:
        Tell(Command("SADD", key, own));
        return;
      case 3:
        Tell(Command("XADD", key, "*", "f", "v"));
        return;
      case 4:
      case 5:
      case 6:
        CraftLog(random, key);
        return;
      default:
        Tell(Command("SET", key, StateText(random, own)));
    }
  }

  void CraftLog(Random& random, const std::string& key) {
    std::int64_t total = random.Between(0, 3);
    std::int64_t time = kStartUs - random.Between(0, 50);
    for (std::int64_t i = random.Between(1, 6); i > 0; --i) {
      const std::int64_t units = random.Between(1, 5);
      const bool sane = random.OneIn(2);
      std::string member = sane ? std::to_string(total) + " " + std::to_string(units) + " 60000000"
                                : Number(random) + " " + Number(random) + " " + Number(random);
      if (random.OneIn(4)) member += " " + Number(random);
      const std::string score =
          random.OneIn(4) ? Pick(random, std::array{"inf"s, "-inf"s, "1.5"s, "-5"s, "1e300"s, "0"s,
                                                    "4503599627370496"s, "1700000000000000.5"s})
                          : std::to_string(time);
      Tell(Command("ZADD", key, score, member));
      total += units;
      time += random.Between(0, 20);
    }
  }
};

class ForeignState : public ForeignStateTest, public testing::WithParamInterface<Algorithm> {};

TEST_P(ForeignState, IsNobodyElsesBusiness) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    int refused = 0;
    int decided = 0;
    for (int round = 0; round < 400; ++round) {
      SCOPED_TRACE("round " + std::to_string(round));
      Tell(Command("FLUSHALL"));
      const std::string place = std::to_string(seed) + ":" + std::to_string(round) + ":";
      const std::string bad = place + "bad";
      const Limit limit = RandomLimit(random, GetParam());
      const Limit other = RandomLimit(random, Pick(random, kAlgorithms));
      const std::int64_t now = kStartUs + random.Between(0, 1'000);
      const Charge sample = ChargeOf(bad, limit, 1);
      const std::string bad_key = redis::StateKey("p", sample);

      // A state of ours to start from.
      Request start{.charges = {&sample, 1}, .now = At(now)};
      std::vector<Receipt> held;
      Run({.request = &start, .receipts = random.OneIn(2) ? &held : nullptr});
      ASSERT_TRUE(start.outcome) << start.outcome.error().message;
      const std::string own = Tell(Command("GET", bad_key));
      Tell(Command("DEL", bad_key));
      Craft(random, bad_key, own);
      const std::string before = Tell(Command("DUMP", bad_key));

      MemoryStore memory(MemoryStore::Options{.recovered_kept_for = Micros::max()});
      struct Asked {
        std::vector<std::string> keys;
        std::vector<Charge> charges;
        std::vector<Decision> each, expected_each;
        std::vector<SeenState> seen, expected_seen;
        std::vector<Receipt> receipts;
        Request request;
        Expected<Decision> expected = Decision{};
        bool innocent = true;
        bool refund = false;
      };
      std::deque<Asked> asked;
      std::vector<Task> tasks;
      for (int i = 0; i < 24; ++i) {
        Asked& step = asked.emplace_back();
        step.innocent = !random.OneIn(3);
        const Limit& under = random.OneIn(4) ? other : limit;
        const Action action = RandomAction(random);
        // Others do not ask about those that share a request with it.
        const std::string suffix = step.innocent ? "" : "with it";
        step.keys = {place + std::to_string(random.Between(0, 3)) + suffix,
                     step.innocent ? place + "x" : bad};
        const std::int64_t cost =
            std::min(std::min(limit.amount(), other.amount()), RandomCost(random, under, action));
        const bool group = random.OneIn(3);
        if (group) step.charges.push_back(ChargeOf(step.keys[0], limit, cost));
        step.charges.push_back(ChargeOf(step.keys[1], under, cost));
        const std::size_t count = step.charges.size();
        step.each.resize(count);
        step.expected_each.resize(count);
        step.seen.resize(count);
        step.expected_seen.resize(count);
        step.request = {.charges = step.charges,
                        .now = At(now),
                        .each = step.each,
                        .seen = step.seen,
                        .action = action};
        if (step.innocent) {
          Request same = step.request;
          same.each = step.expected_each;
          same.seen = step.expected_seen;
          memory.Apply({&same, 1}, [] {});
          step.expected = same.outcome;
          tasks.push_back({.request = &step.request});
          continue;
        }
        switch (random.Between(0, 3)) {
          case 0:
            tasks.push_back({.request = &step.request,
                             .receipts = action == Action::kCheck ? &step.receipts : nullptr});
            break;
          case 1:
            tasks.push_back({.request = &step.request, .kind = Task::Kind::kLook});
            break;
          case 2:
            step.refund = true;
            step.receipts = {{.key = bad_key, .limit = limit, .units = 1, .when = now}};
            tasks.push_back({.request = &step.request,
                             .kind = Task::Kind::kRefund,
                             .receipts = &step.receipts});
            break;
          default:
            tasks.push_back({.request = &step.request});
        }
      }
      RunTogether(tasks);
      if (testing::Test::HasFatalFailure()) return;

      bool any_decided = false;
      for (const Asked& step : asked) {
        const Expected<Decision>& outcome = step.request.outcome;
        if (!step.innocent) {
          any_decided = any_decided || (outcome && (!step.refund || outcome->allowed));
          (outcome ? decided : refused) += 1;
          if (outcome) continue;
          ASSERT_EQ(outcome.error().code, ErrorCode::kForeignState) << outcome.error().message;
          continue;
        }
        ASSERT_EQ(outcome.has_value(), step.expected.has_value())
            << (outcome ? "" : outcome.error().message);
        if (!outcome) {
          ASSERT_EQ(outcome.error().code, step.expected.error().code);
          continue;
        }
        ASSERT_EQ(*outcome, *step.expected);
        ASSERT_EQ(step.each, step.expected_each);
        ASSERT_EQ(step.seen, step.expected_seen);
      }
      // A log is many members: a request may have changed some before it found one that is not
      // ours.
      const bool is_log = limit.algorithm() == Algorithm::kSlidingWindow ||
                          other.algorithm() == Algorithm::kSlidingWindow;
      if (!any_decided && !is_log) {
        ASSERT_EQ(Tell(Command("DUMP", bad_key)), before);
      }
    }
    EXPECT_GT(refused, 100);
    EXPECT_GT(decided, 100) << "some are states after all";
  }
}

INSTANTIATE_TEST_SUITE_P(All, ForeignState, testing::ValuesIn(kAlgorithms),
                         [](const auto& param) { return std::string(ToString(param.param)); });

// Values that once aborted the script, or went to the kernels unchecked.
TEST_F(ForeignStateTest, HasAnErrorOfItsOwn) {
  const Limit bucket = *Limit::Parse("algorithm=token_bucket,capacity=5,refill=1,period=1s");
  const Limit window = *Limit::Parse("algorithm=fixed_window,limit=5,window=1d");
  const Limit counter = *Limit::Parse("limit=5,window=1d");
  const auto expect_refused = [&](const Limit& limit, const std::string& value) {
    SCOPED_TRACE(value);
    const Charge bad = ChargeOf("bad", limit, 1);
    const Charge good = ChargeOf("good", limit, 1);
    const std::string key = redis::StateKey("p", bad);
    Tell(Command("SET", key, value));
    Request first{.charges = {&good, 1}, .now = At(kStartUs)};
    Request second{.charges = {&bad, 1}, .now = At(kStartUs)};
    std::vector<Receipt> receipts;
    RunTogether(
        std::vector<Task>{{.request = &first}, {.request = &second, .receipts = &receipts}});
    EXPECT_TRUE(first.outcome);
    ASSERT_FALSE(second.outcome);
    EXPECT_EQ(second.outcome.error().code, ErrorCode::kForeignState);
    EXPECT_NE(second.outcome.error().message.find(key), std::string::npos);
    EXPECT_EQ(Tell(Command("GET", key)), value) << "it is left as it is";
  };
  const auto head = [&](const Limit& limit) {
    const Charge charge = ChargeOf("head", limit, 1);
    Request request{.charges = {&charge, 1}, .now = At(kStartUs)};
    Run({.request = &request});
    const std::string text = Tell(Command("GET", redis::StateKey("p", charge)));
    Tell(Command("DEL", redis::StateKey("p", charge)));
    return text.substr(0, text.find(' '));
  };
  const std::string b = head(bucket);
  const std::string w = head(window);
  const std::string c = head(counter);
  for (const char* rest :
       {" 5 7;-", " 5 7;", " 5 7;1 2", " 99999999999999999999 7", " 5 -7", " 5 9007199254740993",
        " 5 4503599627370496", " 5", " 5 7 8", "", " -99999999999999999 7", " 1e400 7", " inf 7"}) {
    expect_refused(bucket, b + rest);
  }
  for (const char* rest : {" 0 5;-", " 0 9007199254740992", " 1 5", " -86400000000 5", " 0 -5"}) {
    expect_refused(window, w + rest);
  }
  for (const char* rest : {" 5 6", " 5 6 99999999999999", " 99999999999 1 1", " 5 6 7;-"}) {
    expect_refused(counter, c + rest);
  }
  for (const char* other : {"b:5:0:1:1 5 7", "b:5:1:0:1 5 7", "b:5:1:1:0 5 7", "b:5:1:1:7 5 7",
                            "b:99999999999999999999:1:1:1 5 7", "w:5:9007199254740991:0:1 0 5",
                            "c:5:1:0:1 5 7", "w:5:1:0:1 5 7 8", "l:5:1:0:1 5 7"}) {
    for (const Limit* limit : {&bucket, &window, &counter}) expect_refused(*limit, other);
  }
}

// The one answer for the whole call, so that the client looks for the master.
TEST_F(ForeignStateTest, AReplicaSaysSoOfTheWholeCall) {
  server_.Cli("replicaof 127.0.0.1 1");
  for (const char* text :
       {"algorithm=fixed_window,limit=5,window=1d", "algorithm=sliding_window,limit=5,window=1d"}) {
    const Limit limit = *Limit::Parse(text);
    const Charge charge = ChargeOf("k", limit, 1);
    Request request{.charges = {&charge, 1}, .now = At(kStartUs)};
    redis::Batch batch;
    ASSERT_EQ(batch.Add({.request = &request}, "p", 1), redis::Batch::Added::kTaken);
    std::string command;
    batch.AppendCommand(command, form_);
    EXPECT_TRUE(Tell(command).contains("read only replica"));
  }
}

}  // namespace
}  // namespace sluice
