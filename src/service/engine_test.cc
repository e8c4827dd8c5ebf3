// SPDX-License-Identifier: Apache-2.0
#include "service/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "base/mailbox.h"
#include "service/service_metrics.h"
#include "sluice/memory_store.h"
#include "telemetry/heavy_hitters.h"
#include "telemetry/log.h"

namespace sluice::service {
namespace {

using Steady = std::chrono::steady_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A remote store that fails or answers when told to.
class LateStore final : public Store {
 public:
  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    requests_ = requests;
    done_ = std::move(done);
    if (at_once_) Answer(Decision{.allowed = true});
  }
  void AnswerAtOnce() { at_once_ = true; }
  void Answer(const Expected<Decision>& outcome, Source source = Source::kStore) {
    for (Request& request : requests_) {
      request.outcome = outcome;
      request.source = source;
    }
    std::exchange(done_, nullptr)();
  }

 private:
  std::span<Request> requests_;
  std::move_only_function<void()> done_;
  bool at_once_ = false;
};

class EngineTest : public ::testing::Test {
 protected:
  telemetry::Registry registry_;
  service::ServiceMetrics metrics_{registry_};
  telemetry::HeavyHitters keys_;
  telemetry::Logger logger_{{.level = telemetry::LogLevel::kOff}};
  const Limit limit_ = *Limit::Parse("algorithm=fixed_window,limit=2,window=1h");
  const Charge charge_{.key = "k", .limit = &limit_};
  Request request_{.charges = {&charge_, 1}};
};

TEST_F(EngineTest, CountsWhatItDecides) {
  MemoryStore store;
  Engine engine({.store = store, .metrics = metrics_, .keys = keys_, .logger = logger_}, nullptr);
  int done = 0;
  for (int i = 0; i < 3; ++i) engine.Apply({&request_, 1}, [&] { ++done; });
  EXPECT_EQ(done, 3);
  EXPECT_FALSE(request_.outcome->allowed);
  const std::string text = registry_.Text();
  EXPECT_THAT(
      text, HasSubstr(R"(rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="true"} 2)"));
  EXPECT_THAT(
      text,
      HasSubstr(R"(rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="false"} 1)"));
  EXPECT_EQ(keys_.Top(telemetry::HeavyHitters::Kind::kBusy, 1, Steady::now()).at(0).count, 3U);
  EXPECT_EQ(keys_.Top(telemetry::HeavyHitters::Kind::kDenied, 1, Steady::now()).at(0).count, 1U);
}

TEST_F(EngineTest, ARequestUnderSeveralLimitsIsOneRequest) {
  MemoryStore store;
  Engine engine({.store = store, .metrics = metrics_, .keys = keys_, .logger = logger_}, nullptr);
  const Limit wide = *Limit::Parse("algorithm=token_bucket,capacity=9,refill=1,period=1h");
  const std::array charges = {Charge{.key = "wide", .limit = &wide, .name = "w"},
                              Charge{.key = "narrow", .limit = &limit_, .name = "n"}};
  std::array<Decision, 2> each;
  Request request{.charges = charges, .each = each};
  for (int i = 0; i < 5; ++i) engine.Apply({&request, 1}, [] {});
  const std::string text = registry_.Text();
  for (const std::string line :
       {R"(rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="true"} 2)",
        R"(rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="false"} 3)",
        R"(rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="true"} 0)",
        R"(rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="false"} 0)",
        R"(rate_limiter_check_seconds_count{algorithm="FIXED_WINDOW",allowed="false"} 3)",
        R"(sluice_limit_checks_total{algorithm="TOKEN_BUCKET",allowed="true"} 5)",
        R"(sluice_limit_checks_total{algorithm="FIXED_WINDOW",allowed="false"} 3)"}) {
    EXPECT_THAT(text, HasSubstr(line + "\n"));
  }
  // Only the key that was denied, and the limit that denied it.
  const auto denied = keys_.Top(telemetry::HeavyHitters::Kind::kDenied, 9, Steady::now());
  ASSERT_EQ(denied.size(), 1U);
  EXPECT_EQ(denied[0].name, "n");
  EXPECT_EQ(denied[0].key, "narrow");
  EXPECT_EQ(denied[0].count, 3U);
}

TEST_F(EngineTest, AKeyWhoseFirstChargeCostsNothingIsNotLost) {
  MemoryStore store;
  Engine engine({.store = store, .metrics = metrics_, .keys = keys_, .logger = logger_}, nullptr);
  const std::array charges = {Charge{.key = "k", .limit = &limit_, .name = "free", .cost = 0},
                              Charge{.key = "k", .limit = &limit_, .name = "dear"}};
  Request request{.charges = charges};
  engine.Apply({&request, 1}, [] {});
  const auto busy = keys_.Top(telemetry::HeavyHitters::Kind::kBusy, 9, Steady::now());
  ASSERT_EQ(busy.size(), 1U);
  EXPECT_EQ(busy[0].name, "dear");
}

TEST_F(EngineTest, NearIsFourFifths) {
  EXPECT_FALSE(IsNear({.allowed = true, .limit = 10, .remaining = 3}));
  EXPECT_TRUE(IsNear({.allowed = true, .limit = 10, .remaining = 2}));
  EXPECT_FALSE(IsNear({.allowed = true, .limit = 4, .remaining = 1}));
  EXPECT_TRUE(IsNear({.allowed = false, .limit = 1, .remaining = 0}));
}

TEST_F(EngineTest, LooksAreNotRequests) {
  MemoryStore store;
  Engine engine({.store = store, .metrics = metrics_, .keys = keys_, .logger = logger_}, nullptr);
  const Charge look{.key = "k", .limit = &limit_, .cost = 0};
  Request request{.charges = {&look, 1}};
  engine.Apply({&request, 1}, [] {});
  EXPECT_EQ(request.outcome->remaining, 2);
  const std::string text = registry_.Text();
  for (const char* name : {"rate_limiter_requests_total", "rate_limiter_check_seconds_count"}) {
    EXPECT_THAT(text,
                HasSubstr(std::string(name) + R"({algorithm="FIXED_WINDOW",allowed="true"} 0)"));
  }
  EXPECT_TRUE(keys_.Top(telemetry::HeavyHitters::Kind::kBusy, 1, Steady::now()).empty());
}

TEST_F(EngineTest, CountsOutagesAndDegradedDecisionsApart) {
  LateStore store;
  Engine engine({.store = store, .metrics = metrics_, .keys = keys_, .logger = logger_}, nullptr);
  bool done = false;
  engine.Apply({&request_, 1}, [&] { done = true; });
  EXPECT_FALSE(done);
  store.Answer(std::unexpected(Error{ErrorCode::kUnavailable, "gone"}));
  EXPECT_TRUE(done);
  engine.Apply({&request_, 1}, [] {});
  store.Answer(Decision{.allowed = true}, Source::kFailOpen);
  engine.Apply({&request_, 1}, [] {});
  store.Answer(Decision{.allowed = false}, Source::kOverload);
  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr(R"(source="fail_open"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(source="overload"} 1)")) << "which is no failure";
  EXPECT_THAT(text, HasSubstr(R"(sluice_store_failures_total{policy="FAIL_CLOSED"} 2)"))
      << "one that failed and one that was let through";
  EXPECT_THAT(
      text, HasSubstr(R"(rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="true"} 1)"));
}

// As on a loop: this is its thread, and calling Run is its turn.
class EngineOnALoopTest : public EngineTest {
 protected:
  void Ask(Request& request) {
    engine_.Apply({&request, 1}, [this] { answered_by_.push_back(std::this_thread::get_id()); });
  }
  void AnswerElsewhere() {
    std::thread([this] { store_.Answer(Decision{.allowed = true}); }).join();
  }
  bool IsCounted() {
    return !registry_.Text().contains(
        R"(rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="true"} 0)");
  }

  int wakes_ = 0;
  Mailbox mailbox_{[this] { ++wakes_; }};
  Mailbox::Home home_{mailbox_};
  LateStore store_;
  Engine engine_{{.store = store_, .metrics = metrics_, .keys = keys_, .logger = logger_}, nullptr};
  std::vector<std::thread::id> answered_by_;
};

TEST_F(EngineOnALoopTest, CountsAndAnswersOnTheLoopThatAsked) {
  Ask(request_);
  AnswerElsewhere();
  EXPECT_EQ(wakes_, 1);
  EXPECT_TRUE(answered_by_.empty());
  EXPECT_FALSE(IsCounted());
  mailbox_.Run();
  EXPECT_THAT(answered_by_, ElementsAre(std::this_thread::get_id()));
  EXPECT_TRUE(IsCounted());
}

// The guard may answer somebody while somebody else asks it.
TEST_F(EngineOnALoopTest, AnswersNobodyWhileAnotherAsks) {
  Ask(request_);
  store_.Answer(Decision{.allowed = true});
  EXPECT_TRUE(answered_by_.empty());
  mailbox_.Run();
  EXPECT_THAT(answered_by_, ElementsAre(std::this_thread::get_id()));
}

TEST_F(EngineOnALoopTest, AnswersAtOnceWhatTheStoreKnows) {
  store_.AnswerAtOnce();
  Ask(request_);
  EXPECT_THAT(answered_by_, ElementsAre(std::this_thread::get_id()));
  EXPECT_TRUE(IsCounted());
  EXPECT_EQ(wakes_, 0);
}

TEST_F(EngineOnALoopTest, SeesANewCatalogAtOnceAndLetsGoOfTheOld) {
  const auto publish = [this](std::uint64_t generation) {
    auto catalog = std::make_shared<Catalog>();
    catalog->generation = generation;
    engine_.SetCatalog(catalog);
    return std::weak_ptr<const Catalog>(catalog);
  };
  const auto old = publish(1);
  auto held = engine_.catalog();
  EXPECT_EQ(held->generation, 1U);
  EXPECT_EQ(old.use_count(), 2) << "the engine's, and that of the loop, whoever else it lets see";
  EXPECT_EQ(engine_.catalog(), held);

  publish(2);
  EXPECT_EQ(held->generation, 1U) << "a request sees one to its end";
  EXPECT_EQ(engine_.catalog()->generation, 2U);
  std::thread([this] { EXPECT_EQ(engine_.catalog()->generation, 2U); }).join();
  EXPECT_FALSE(old.expired());
  held.reset();
  EXPECT_TRUE(old.expired());
}

TEST_F(EngineOnALoopTest, DropsWhatComesHomeToALoopThatIsNoMore) {
  const auto held = std::make_shared<int>(0);
  engine_.Apply({&request_, 1}, [held] { ADD_FAILURE() << "nobody waits for it"; });
  AnswerElsewhere();
  EXPECT_EQ(held.use_count(), 2);
  mailbox_.Drop();
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace sluice::service
