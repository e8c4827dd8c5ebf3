// SPDX-License-Identifier: Apache-2.0
// sluice.v1.Limiter over HTTP/2, from the bytes of a client to those of the answer.
#include "grpc/limiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sluice/v1/limiter.pb.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grpc/services.h"
#include "rules/parse.h"
#include "service/hold_ticket.h"
#include "sluice/memory_store.h"
#include "support/h2_client.h"
#include "support/rls_engine.h"

namespace sluice::grpc {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

constexpr std::string_view kRules = R"(
ruleSets:
  - id: api
    rules:
      - id: user
        scope: PER_USER
        bands:
          - {label: burst, algorithm: token_bucket, capacity: 2, refill: 1, period: 1s}
          - {label: day, algorithm: fixed_window, limit: 50, window: 1d}
      - {id: trial, scope: PER_USER, shadow: true, bands: [{label: t, algorithm: fixed_window, limit: 1, window: 1d}]}
  - {id: ip, rules: [{id: r, scope: PER_IP, bands: [{algorithm: fixed_window, limit: 2, window: 1d}]}]}
  - {id: plan, rules: [{id: r, scope: CUSTOM, attribute: plan, bands: [{algorithm: fixed_window, limit: 9, window: 1d}]}]}
  - {id: path, rules: [{id: r, scope: GLOBAL, match: {paths: [/v1/*], methods: [GET]}, bands: [{algorithm: fixed_window, limit: 9, window: 1d}]}]}
  - {id: blocks, rules: [{id: b, scope: PER_USER, bands: [{limit: 5, window: 1h}], overrides: [{key: mallory, blocked: true}]}]}
  - id: llm
    rules:
      - id: requests
        scope: PER_USER
        cost: 2
        bands: [{label: rpd, algorithm: fixed_window, limit: 100, window: 1d}]
      - id: tokens
        scope: PER_USER
        cost: {attribute: tokens, default: 1}
        hold: {ttl: 1m}
        bands: [{label: tpd, algorithm: fixed_window, limit: 1000, window: 1d}]
      - id: streams
        scope: PER_USER
        bands: [{label: open, algorithm: concurrency, limit: 2, ttl: 30s}]
)";

constexpr const char* kWindow = "algorithm=fixed_window,limit=10,window=1d";
constexpr const char* kSlots = "algorithm=concurrency,limit=2,ttl=30s";

// The numbers of gRPC's statuses.
constexpr int kOk = 0;
constexpr int kInvalidArgument = 3;
constexpr int kNotFound = 5;
constexpr int kAlreadyExists = 6;
constexpr int kResourceExhausted = 8;
constexpr int kFailedPrecondition = 9;
constexpr int kInternal = 13;
constexpr int kUnavailable = 14;

std::shared_ptr<const service::Catalog> MakeCatalog() {
  auto catalog = std::make_shared<service::Catalog>(*test::RlsCatalog({}));
  catalog->limits.emplace(
      "login", *Limit::TokenBucket({.capacity = 5, .refill = 1, .period = Micros{60'000'000}}));
  auto sets = rules::ParseRuleSets(kRules, "test.yaml");
  if (!sets) throw std::invalid_argument(sets.error().front().ToString());
  catalog->rules = *rules::RuleBook::Build(std::move(*sets), 1);
  return catalog;
}

v1::CheckRequest OfLimit(std::string limit, std::string key = "k") {
  v1::CheckRequest request;
  request.set_limit(std::move(limit));
  request.set_key(std::move(key));
  return request;
}

v1::CheckRequest OfRules(std::string rule_set, std::string user = "ann") {
  v1::CheckRequest request;
  request.set_rule_set(std::move(rule_set));
  request.mutable_context()->set_user_id(std::move(user));
  return request;
}

// The same as another message with the same fields.
template <typename Message>
Message As(const v1::CheckRequest& request) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(request.SerializeAsString()));
  return message;
}

v1::HoldRequest HoldOf(const v1::CheckRequest& request, std::int64_t permits,
                       std::chrono::seconds ttl = 60s) {
  auto hold = As<v1::HoldRequest>(request);
  hold.set_permits(permits);
  if (ttl > 0s) hold.mutable_ttl()->set_seconds(ttl.count());
  return hold;
}

v1::HoldRequest WithId(v1::HoldRequest hold, std::string id) {
  hold.set_id(std::move(id));
  return hold;
}

Micros In(const google::protobuf::Duration& duration) {
  return std::chrono::seconds(duration.seconds()) + Micros{duration.nanos() / 1000};
}

Micros In(const google::protobuf::Timestamp& time) {
  return std::chrono::seconds(time.seconds()) + Micros{time.nanos() / 1000};
}

// Decides when told to.
class LaterStore final : public Store {
 public:
  explicit LaterStore(Store& store) : store_(store) {}

  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    waiting_.push_back([this, requests, done = std::move(done)]() mutable {
      store_.Apply(requests, std::move(done));
    });
  }
  void Decide() {
    for (auto& work : std::exchange(waiting_, {})) work();
  }
  std::size_t waiting() const { return waiting_.size(); }

 private:
  Store& store_;
  std::vector<std::move_only_function<void()>> waiting_;
};

class BrokenStore final : public Store {
 public:
  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    for (Request& request : requests) {
      request.outcome = std::unexpected(Error{ErrorCode::kUnavailable, "out of reach"});
    }
    done();
  }
};

template <typename Response>
struct Answer {
  int status = -1;
  std::string message;
  Response response;

  const Response* operator->() const { return &response; }
};

class LimiterTest : public testing::Test {
 protected:
  LimiterTest() { MakeOn(memory_); }

  void MakeOn(Store& store, std::uint32_t streams_max = 1024) {
    services_.reset();
    engine_.emplace(store, clock_, std::vector<std::string>{});
    (*engine_)->SetCatalog(MakeCatalog());
    services_ = std::make_shared<Services>(
        **engine_, Services::Options{.limits = {.streams_max = streams_max}}, counters_,
        Serving::kYes, [this] { ++answered_later_; });
  }

  void Exchange() {
    while (true) {
      const std::string request = client_.Take();
      if (!request.empty()) services_->Receive(request, {});
      std::string answer;
      services_->session().Produce(answer, SIZE_MAX);
      if (!answer.empty()) client_.Feed(answer);
      if (request.empty() && answer.empty()) return;
    }
  }

  std::int32_t Send(const std::string& method, const std::string& message) {
    const std::int32_t id = client_.Call("/sluice.v1.Limiter/" + method, message);
    Exchange();
    return id;
  }

  template <typename Response>
  Answer<Response> AnswerOf(std::int32_t id) {
    const auto& stream = client_.stream(id);
    Answer<Response> answer;
    if (!stream.closed) return answer;
    answer.status = std::stoi(stream.grpc_status());
    answer.message = stream.grpc_message();
    const auto messages = stream.Messages();
    EXPECT_THAT(messages, SizeIs(answer.status == kOk ? 1 : 0));
    EXPECT_TRUE(messages.empty() || answer.response.ParseFromString(messages.front()));
    return answer;
  }

  template <typename Response, typename Message>
  Answer<Response> Call(const std::string& method, const Message& message) {
    return AnswerOf<Response>(Send(method, message.SerializeAsString()));
  }

  auto Check(const v1::CheckRequest& request) { return Call<v1::CheckResponse>("Check", request); }
  auto Hold(const v1::HoldRequest& request) { return Call<v1::HoldResponse>("Hold", request); }
  auto Settle(const v1::SettleRequest& request) {
    return Call<v1::SettleResponse>("Settle", request);
  }
  auto Settle(const std::string& id, std::int64_t permits) {
    v1::SettleRequest request;
    request.set_id(id);
    request.set_permits(permits);
    return Settle(request);
  }
  auto Release(const std::string& id) {
    v1::ReleaseRequest request;
    request.set_id(id);
    return Call<v1::SettleResponse>("Release", request);
  }
  auto Extend(const std::string& id, std::chrono::seconds ttl = 0s) {
    v1::ExtendRequest request;
    request.set_id(id);
    if (ttl > 0s) request.mutable_ttl()->set_seconds(ttl.count());
    return Call<v1::ExtendResponse>("Extend", request);
  }

  std::int64_t Left(v1::CheckRequest request) {
    request.set_permits(0);
    return Check(request)->remaining();
  }

  ManualClock clock_{TimePoint{1'700'000'000s}};
  MemoryStore memory_{{.clock = &clock_}};
  std::optional<test::RlsEngine> engine_;
  Counters counters_;
  int answered_later_ = 0;
  std::shared_ptr<Services> services_;
  test::H2Client client_;
};

TEST_F(LimiterTest, ChecksALimitAndAKey) {
  auto request = OfLimit("login", "ann");
  request.set_permits(3);
  const auto passed = Check(request);
  EXPECT_EQ(passed.status, kOk);
  EXPECT_TRUE(passed->allowed());
  EXPECT_EQ(passed->limit(), 5);
  EXPECT_EQ(passed->remaining(), 2);
  EXPECT_EQ(In(passed->reset_after()), 3min);
  EXPECT_FALSE(passed->has_retry_after());
  EXPECT_FALSE(passed->has_delay());
  EXPECT_EQ(passed->source(), v1::SOURCE_STORE);

  const auto denied = Check(request);
  EXPECT_EQ(denied.status, kOk) << "a denial is an answer";
  EXPECT_FALSE(denied->allowed());
  EXPECT_EQ(denied->remaining(), 2);
  EXPECT_EQ(In(denied->retry_after()), 1min);
  EXPECT_FALSE(denied->has_denied_by());

  clock_.Advance(1min);
  EXPECT_TRUE(Check(request)->allowed());
  EXPECT_EQ(Check(OfLimit("login", "bob"))->remaining(), 4) << "one permit unless it says more";
}

TEST_F(LimiterTest, TakesLimitsThatAreWrittenOut) {
  EXPECT_EQ(Check(OfLimit(kWindow))->remaining(), 9);
  const auto leaky = Check(OfLimit("algorithm=leaky_bucket,capacity=3,leak=1,period=1s"));
  EXPECT_TRUE(leaky->allowed()) << leaky.message;
  const auto queued = Check(OfLimit("algorithm=leaky_bucket,capacity=3,leak=1,period=1s"));
  EXPECT_EQ(In(queued->delay()), 1s);
}

TEST_F(LimiterTest, ALookTakesNothingAndSaysWhatOneWouldGet) {
  auto look = OfLimit("login");
  look.set_permits(0);
  EXPECT_TRUE(Check(look)->allowed());
  EXPECT_EQ(Check(look)->remaining(), 5);
  auto all = OfLimit("login");
  all.set_permits(5);
  EXPECT_TRUE(Check(all)->allowed());
  const auto empty = Check(look);
  EXPECT_FALSE(empty->allowed());
  EXPECT_EQ(In(empty->retry_after()), 1min);
}

TEST_F(LimiterTest, ChecksByRules) {
  EXPECT_EQ(Check(OfRules("api"))->remaining(), 1);
  EXPECT_TRUE(Check(OfRules("api"))->allowed());
  const auto denied = Check(OfRules("api"));
  EXPECT_EQ(denied.status, kOk);
  EXPECT_FALSE(denied->allowed());
  EXPECT_EQ(denied->denied_by().rule(), "user");
  EXPECT_EQ(denied->denied_by().band(), "burst");
  EXPECT_EQ(In(denied->retry_after()), 1s);
  EXPECT_THAT(denied->bands(), IsEmpty());
  EXPECT_TRUE(Check(OfRules("api", "bob"))->allowed());
}

TEST_F(LimiterTest, TellsTheNumbersOfEachBand) {
  Check(OfRules("api"));
  auto request = OfRules("api");
  request.set_detail(true);
  const auto answer = Check(request);
  std::vector<std::string> bands;
  for (const v1::Band& band : answer->bands()) {
    bands.push_back(band.rule() + "/" + band.label() + " " + std::to_string(band.remaining()) +
                    " of " + std::to_string(band.limit()) + (band.shadow() ? " shadow" : "") +
                    (band.allowed() ? "" : " denies"));
  }
  EXPECT_THAT(
      bands, ElementsAre("user/burst 0 of 2", "user/day 48 of 50", "trial/t 0 of 1 shadow denies"));
  EXPECT_TRUE(answer->allowed());
}

TEST_F(LimiterTest, HasNoNumbersWhereNoLimitApplies) {
  v1::CheckRequest request;
  request.set_rule_set("api");
  const auto passed = Check(request);
  EXPECT_TRUE(passed->allowed());
  EXPECT_FALSE(passed->has_limit());
  EXPECT_FALSE(passed->has_remaining());
  const auto blocked = Check(OfRules("blocks", "mallory"));
  EXPECT_FALSE(blocked->allowed());
  EXPECT_EQ(blocked->denied_by().rule(), "b");
  EXPECT_EQ(blocked->denied_by().band(), "");
}

TEST_F(LimiterTest, ReadsTheWholeContext) {
  v1::CheckRequest request;
  request.set_rule_set("ip");
  request.mutable_context()->set_ip("2001:db8::1");
  EXPECT_EQ(Check(request)->remaining(), 1);
  request.mutable_context()->set_ip("2001:db8::ffff");
  EXPECT_EQ(Check(request)->remaining(), 0) << "the same /64";

  request.Clear();
  request.set_rule_set("plan");
  (*request.mutable_context()->mutable_attributes())["plan"] = "gold";
  EXPECT_EQ(Check(request)->remaining(), 8);

  request.Clear();
  request.set_rule_set("path");
  request.mutable_context()->set_method("GET");
  request.mutable_context()->set_path("/v1/things?x=1");
  EXPECT_EQ(Check(request)->remaining(), 8);
  request.mutable_context()->set_path("");
  EXPECT_FALSE(Check(request)->has_limit());
}

TEST_F(LimiterTest, HoldsAndSettles) {
  const auto made = Hold(HoldOf(OfLimit(kWindow), 8));
  EXPECT_EQ(made.status, kOk) << made.message;
  EXPECT_TRUE(made->check().allowed());
  EXPECT_EQ(made->check().remaining(), 2);
  EXPECT_EQ(made->check().held(), 8);
  EXPECT_TRUE(made->holds());
  EXPECT_EQ(In(made->expires_at()), 1'700'000'060s);
  EXPECT_THAT(made->id(), Not(IsEmpty()));
  EXPECT_EQ(Check(OfLimit(kWindow))->held(), 8);

  const auto settled = Settle(made->id(), 3);
  EXPECT_EQ(settled.status, kOk);
  EXPECT_FALSE(settled->late());
  EXPECT_FALSE(settled->overdrawn());
  EXPECT_EQ(settled->source(), v1::SOURCE_STORE);
  ASSERT_THAT(settled->budgets(), SizeIs(1));
  const v1::Budget& budget = settled->budgets(0);
  EXPECT_EQ(budget.name(), kWindow);
  EXPECT_EQ(budget.key(), "k");
  EXPECT_EQ(budget.cost(), 3);
  EXPECT_EQ(budget.limit(), 10);
  EXPECT_EQ(budget.remaining(), 6);
  EXPECT_EQ(budget.held(), 0);
  EXPECT_TRUE(budget.has_reset_after());
  EXPECT_EQ(Settle(made->id(), 9)->budgets(0).remaining(), 6) << "it was settled already";
}

TEST_F(LimiterTest, ADeniedHoldIsAnAnswerWithoutAnId) {
  Check(OfLimit(kWindow));
  const auto denied = Hold(HoldOf(OfLimit(kWindow), 10));
  EXPECT_EQ(denied.status, kOk);
  EXPECT_FALSE(denied->check().allowed());
  EXPECT_GT(In(denied->check().retry_after()), 0s);
  EXPECT_EQ(denied->id(), "");
  EXPECT_FALSE(denied->holds());
  EXPECT_FALSE(denied->has_expires_at());
  EXPECT_EQ(Left(OfLimit(kWindow)), 9);
}

TEST_F(LimiterTest, HoldsByRulesAndSettlesThemOneByOne) {
  auto request = HoldOf(OfRules("llm"), 1, 0s);
  (*request.mutable_context()->mutable_attributes())["tokens"] = "800";
  request.set_detail(true);
  const auto made = Hold(request);
  ASSERT_EQ(made.status, kOk) << made.message;
  EXPECT_THAT(made->check().bands(), SizeIs(3));
  EXPECT_EQ(In(made->expires_at()), 1'700'000'030s) << "the shortest ttl of its rules";

  v1::SettleRequest settle;
  settle.set_id(made->id());
  (*settle.mutable_rules())["tokens"] = 250;
  const auto settled = Settle(settle);
  std::vector<std::string> budgets;
  for (const v1::Budget& budget : settled->budgets()) {
    budgets.push_back(budget.name() + " " + budget.key() + " " +
                      (budget.has_cost() ? std::to_string(budget.cost()) : "none") + " " +
                      std::to_string(budget.remaining()));
  }
  EXPECT_THAT(budgets,
              ElementsAre("llm/requests/rpd user:ann 2 98", "llm/tokens/tpd user:ann 250 750",
                          "llm/streams/open user:ann none 2"));
}

TEST_F(LimiterTest, SettlesForWhatWasHeldUnlessToldOtherwise) {
  const auto made = Hold(HoldOf(OfLimit(kWindow), 4));
  v1::SettleRequest settle;
  settle.set_id(made->id());
  EXPECT_EQ(Settle(settle)->budgets(0).cost(), 4);
  EXPECT_EQ(Left(OfLimit(kWindow)), 6);
}

TEST_F(LimiterTest, TellsWhatCostMoreThanWasHeld) {
  const auto made = Hold(HoldOf(OfLimit(kWindow), 4));
  const auto settled = Settle(made->id(), 15);
  EXPECT_TRUE(settled->overdrawn());
  EXPECT_FALSE(Check(OfLimit(kWindow))->allowed());
}

TEST_F(LimiterTest, AHoldOfTheSameIdIsTheSameHold) {
  const auto hold = WithId(HoldOf(OfLimit(kWindow), 4), "job 7");
  const auto first = Hold(hold);
  clock_.Advance(10s);
  const auto again = Hold(hold);
  EXPECT_EQ(again->id(), first->id());
  EXPECT_EQ(again->check().remaining(), 6);
  EXPECT_EQ(In(again->expires_at()), In(first->expires_at()));

  const auto other = Hold(WithId(HoldOf(OfLimit(kWindow), 5), "job 7"));
  EXPECT_EQ(other.status, kAlreadyExists);
  EXPECT_THAT(other.message, StartsWith("HOLD_CONFLICT: "));
  Release(first->id());
  EXPECT_EQ(Hold(hold).status, kAlreadyExists) << "it has ended";
  EXPECT_EQ(Left(OfLimit(kWindow)), 10);
}

TEST_F(LimiterTest, AnExpiredHoldIsChargedOrReleased) {
  auto charged = HoldOf(OfLimit(kWindow, "charged"), 4);
  auto released = HoldOf(OfLimit(kWindow, "released"), 4);
  released.set_on_expiry(v1::ON_EXPIRY_RELEASE);
  const auto late = Hold(charged);
  Hold(released);
  clock_.Advance(1min);
  EXPECT_EQ(Left(OfLimit(kWindow, "charged")), 6);
  EXPECT_EQ(Left(OfLimit(kWindow, "released")), 10);
  const auto settled = Settle(late->id(), 1);
  EXPECT_TRUE(settled->late());
  EXPECT_EQ(settled->budgets(0).remaining(), 9);
}

TEST_F(LimiterTest, ExtendsHolds) {
  const auto made = Hold(HoldOf(OfLimit(kSlots), 1, 0s));
  clock_.Advance(20s);
  const auto extended = Extend(made->id(), 100s);
  EXPECT_EQ(extended.status, kOk);
  EXPECT_EQ(In(extended->expires_at()), 1'700'000'120s);
  EXPECT_EQ(extended->source(), v1::SOURCE_STORE);
  ASSERT_THAT(extended->budgets(), SizeIs(1));
  EXPECT_EQ(extended->budgets(0).held(), 1);
  EXPECT_FALSE(extended->budgets(0).has_cost());
  EXPECT_EQ(In(Extend(made->id())->expires_at()), 1'700'000'050s) << "as long as it was made for";
  clock_.Advance(30s);
  const auto lost = Extend(made->id());
  EXPECT_EQ(lost.status, kFailedPrecondition);
  EXPECT_THAT(lost.message, StartsWith("HOLD_LOST: "));
}

TEST_F(LimiterTest, ReleasesHolds) {
  const auto first = Hold(HoldOf(OfLimit(kSlots), 1, 0s));
  Hold(HoldOf(OfLimit(kSlots), 1, 0s));
  EXPECT_FALSE(Hold(HoldOf(OfLimit(kSlots), 1, 0s))->check().allowed());
  const auto released = Release(first->id());
  EXPECT_EQ(released.status, kOk);
  EXPECT_FALSE(released->late());
  EXPECT_EQ(released->budgets(0).remaining(), 1);
  EXPECT_FALSE(released->budgets(0).has_cost());
  EXPECT_EQ(Release(first->id())->budgets(0).remaining(), 1) << "nothing is released twice";
  clock_.Advance(5min);
  EXPECT_TRUE(Release(first->id())->late());
}

TEST_F(LimiterTest, GivesBack) {
  auto all = OfLimit(kWindow);
  all.set_permits(10);
  Check(all);
  auto give = As<v1::GiveRequest>(OfLimit(kWindow));
  give.set_permits(4);
  const auto given = Call<v1::GiveResponse>("Give", give);
  EXPECT_EQ(given.status, kOk);
  EXPECT_EQ(given->limit(), 10);
  EXPECT_EQ(given->remaining(), 4);
  EXPECT_EQ(given->source(), v1::SOURCE_STORE);
  give.set_permits(100);
  EXPECT_EQ(Call<v1::GiveResponse>("Give", give)->remaining(), 10) << "never more than all";

  Check(OfRules("api"));
  Check(OfRules("api"));
  const auto by_rules = Call<v1::GiveResponse>("Give", As<v1::GiveRequest>(OfRules("api")));
  EXPECT_EQ(by_rules->remaining(), 1);
  const auto blocked =
      Call<v1::GiveResponse>("Give", As<v1::GiveRequest>(OfRules("blocks", "mallory")));
  EXPECT_EQ(blocked.status, kOk);
  EXPECT_FALSE(blocked->has_limit());
}

TEST_F(LimiterTest, DecidesABatchInOrder) {
  v1::CheckBatchRequest batch;
  *batch.add_checks() = OfRules("api");
  *batch.add_checks() = OfLimit("login");
  *batch.add_checks() = OfRules("api");
  *batch.add_checks() = OfRules("nothing");
  *batch.add_checks() = OfRules("api");
  *batch.add_checks() = OfLimit("login");
  *batch.add_checks() = OfLimit("nothing");
  *batch.add_checks() = OfLimit(kSlots);
  *batch.add_checks() = OfRules("llm");
  auto look = OfLimit("login");
  look.set_permits(0);
  *batch.add_checks() = look;
  const auto answer = Call<v1::CheckBatchResponse>("CheckBatch", batch);
  ASSERT_EQ(answer.status, kOk) << answer.message;
  std::vector<std::string> results;
  for (const v1::CheckResult& result : answer->results()) {
    if (result.has_error()) {
      const std::string& message = result.error().message();
      results.push_back(std::to_string(result.error().code()) + " " +
                        message.substr(0, message.find(':')));
    } else {
      results.push_back(std::string(result.check().allowed() ? "yes " : "no ") +
                        std::to_string(result.check().remaining()));
    }
  }
  EXPECT_THAT(results, ElementsAre("yes 1", "yes 4", "yes 0", "5 NOT_FOUND", "no 0", "yes 3",
                                   "3 INVALID_REQUEST", "9 NEEDS_HOLD", "9 NEEDS_HOLD", "yes 3"));
  EXPECT_EQ(answer->results(4).check().denied_by().rule(), "user");
  const std::string metrics = engine_->registry().Text();
  EXPECT_THAT(metrics, AllOf(HasSubstr(R"(sluice_errors_total{code="FAILED_PRECONDITION"} 2)"),
                             HasSubstr(R"(sluice_errors_total{code="NOT_FOUND"} 1)")));
}

TEST_F(LimiterTest, BoundsBatches) {
  v1::CheckBatchRequest batch;
  EXPECT_THAT(Call<v1::CheckBatchResponse>("CheckBatch", batch)->results(), IsEmpty());
  for (int i = 0; i < 1000; ++i) *batch.add_checks() = OfLimit("login", std::to_string(i));
  EXPECT_THAT(Call<v1::CheckBatchResponse>("CheckBatch", batch)->results(), SizeIs(1000));
  *batch.add_checks() = OfLimit("login");
  const auto refused = Call<v1::CheckBatchResponse>("CheckBatch", batch);
  EXPECT_EQ(refused.status, kInvalidArgument);
  EXPECT_THAT(refused.message, HasSubstr("1000"));
  EXPECT_EQ(Left(OfLimit("login", "0")), 4) << "nothing was taken by it";

  batch.Clear();
  *batch.add_checks() = OfRules("api");
  batch.mutable_checks(0)->set_detail(true);
  const auto answer = Call<v1::CheckBatchResponse>("CheckBatch", batch);
  EXPECT_EQ(answer->results(0).error().code(), kInvalidArgument);
  EXPECT_THAT(answer->results(0).error().message(), HasSubstr("detail"));
}

TEST_F(LimiterTest, SaysWhatWasExpected) {
  const auto expect = [&](const std::string& method, const google::protobuf::Message& message,
                          int status, const std::string& text) {
    const auto answer = Call<v1::CheckResponse>(method, message);
    EXPECT_EQ(answer.status, status) << message.ShortDebugString();
    EXPECT_THAT(answer.message, HasSubstr(text)) << message.ShortDebugString();
  };
  constexpr const char* kEither = "expected rule_set, and perhaps context and detail, or else";
  expect("Check", v1::CheckRequest(), kInvalidArgument, kEither);
  auto mixed = OfRules("api");
  mixed.set_limit("login");
  expect("Check", mixed, kInvalidArgument, kEither);
  mixed = OfRules("api");
  mixed.set_key("k");
  expect("Hold", mixed, kInvalidArgument, kEither);
  mixed = OfLimit("login");
  mixed.mutable_context();
  expect("Give", mixed, kInvalidArgument, kEither);
  mixed = OfLimit("login");
  mixed.set_detail(true);
  expect("Check", mixed, kInvalidArgument, kEither);

  auto request = OfLimit("login");
  request.set_permits(-1);
  expect("Check", request, kInvalidArgument, "permits is -1; expected a whole number");
  request.set_permits(6);
  expect("Check", request, kInvalidArgument, "COST_EXCEEDS_LIMIT: ");
  expect("Check", OfLimit("nothing"), kInvalidArgument, "no limit is named");
  expect("Check", OfLimit("limit=x,window=1h"), kInvalidArgument, "INVALID_LIMIT: ");
  expect("Check", OfLimit("login", ""), kInvalidArgument, "INVALID_KEY: ");
  expect("Check", OfLimit("login", std::string(1025, 'k')), kInvalidArgument, "INVALID_KEY: ");
  expect("Check", OfRules("nothing"), kNotFound, "there is no rule set");
  expect("Check", OfRules("llm"), kFailedPrecondition, "NEEDS_HOLD: ");
  expect("Check", OfLimit(kSlots), kFailedPrecondition, "NEEDS_HOLD: ");
  auto attributes = OfRules("api");
  for (int i = 0; i < 65; ++i) {
    (*attributes.mutable_context()->mutable_attributes())[std::to_string(i)] = "x";
  }
  expect("Check", attributes, kInvalidArgument, "context.attributes: more than 64");

  const auto expect_ttl = [&](std::int64_t seconds, std::int32_t nanos) {
    auto hold = HoldOf(OfLimit(kWindow), 1, 0s);
    hold.mutable_ttl()->set_seconds(seconds);
    hold.mutable_ttl()->set_nanos(nanos);
    expect("Hold", hold, kInvalidArgument, "ttl: expected a duration from 1ms to 1d");
  };
  expect_ttl(0, 999'999);
  expect_ttl(86'400, 1'000);
  expect_ttl(-1, 0);
  expect_ttl(1, -1);
  expect_ttl(0, 1'000'000'000);
  expect_ttl(INT64_MAX, 0);
  auto hold = HoldOf(OfLimit(kWindow), 1, 0s);
  expect("Hold", hold, kInvalidArgument, "ttl");
  hold = HoldOf(OfLimit(kWindow), 1);
  hold.set_on_expiry(static_cast<v1::OnExpiry>(3));
  expect("Hold", hold, kInvalidArgument, "on_expiry is 3; expected CHARGE (1) or RELEASE (2)");
  expect("Hold", WithId(HoldOf(OfLimit(kWindow), 1), "\n"), kInvalidArgument, "id");
  expect("Hold", WithId(HoldOf(OfLimit(kWindow), 1), std::string(65, 'x')), kInvalidArgument, "id");

  v1::SettleRequest settle;
  expect("Settle", settle, kInvalidArgument, "this is not the id of a hold");
  settle.set_id("job 7");
  expect("Settle", settle, kInvalidArgument, "this is not the id of a hold");
  settle.set_id(Hold(HoldOf(OfRules("llm"), 1))->id());
  (*settle.mutable_rules())["other"] = 1;
  expect("Settle", settle, kNotFound, "the hold is not on a rule");
  settle.set_permits(1);
  expect("Settle", settle, kInvalidArgument, "permits and rules exclude each other");
  settle.clear_rules();
  settle.set_permits(-1);
  expect("Settle", settle, kInvalidArgument, "INVALID_COST: ");
  for (int i = 0; i < 129; ++i) (*settle.mutable_rules())[std::to_string(i)] = 1;
  settle.clear_permits();
  expect("Settle", settle, kInvalidArgument, "rules: more than 128");
  expect("Release", v1::ReleaseRequest(), kInvalidArgument, "this is not the id of a hold");
  expect("Extend", v1::ExtendRequest(), kInvalidArgument, "this is not the id of a hold");
  v1::ExtendRequest extend;
  extend.set_id(Hold(HoldOf(OfLimit(kWindow), 1))->id());
  extend.mutable_ttl();
  expect("Extend", extend, kInvalidArgument, "ttl: expected a duration");
}

TEST_F(LimiterTest, RefusesWhatIsNotSuchAMessage) {
  for (const char* method :
       {"Check", "CheckBatch", "Hold", "Settle", "Release", "Extend", "Give"}) {
    const auto cut = AnswerOf<v1::CheckResponse>(Send(method, "\x0a\xff"));
    EXPECT_EQ(cut.status, kInternal) << method;
    EXPECT_THAT(cut.message, StartsWith("the message is not a")) << method;
  }
  EXPECT_EQ(AnswerOf<v1::CheckResponse>(Send("Check", "\x1a\x01\xff")).status, kInternal)
      << "not UTF-8";
  EXPECT_EQ(AnswerOf<v1::CheckResponse>(Send("Check", "\x12\x03\x0a\x01\xff")).status, kInternal);
  EXPECT_EQ(AnswerOf<v1::CheckResponse>(Send("Reset", "")).status, 12) << "no such method";
}

TEST_F(LimiterTest, BoundsTheHoldsOnOneBudget) {
  const auto request = HoldOf(OfLimit("algorithm=concurrency,limit=9999,ttl=30s"), 1, 0s);
  for (std::size_t i = 0; i < kLiveHoldsMax; ++i) ASSERT_TRUE(Hold(request)->holds()) << i;
  const auto refused = Hold(request);
  EXPECT_EQ(refused.status, kResourceExhausted);
  EXPECT_THAT(refused.message, StartsWith("TOO_MANY_HOLDS: "));
}

TEST_F(LimiterTest, NamesKeysThatAreNotText) {
  const service::HoldTicket ticket{
      .id = "x",
      .ttl = 1min,
      .parts = {{.key = "a\xff", .limit = *Limit::Parse(kWindow), .name = "n\xfe", .held = 1}}};
  const auto released = Release(*ticket.ToText());
  ASSERT_EQ(released.status, kOk) << released.message;
  EXPECT_EQ(released->budgets(0).key(), "a\uFFFDFF");
  EXPECT_EQ(released->budgets(0).name(), "n\uFFFDFE");
}

TEST_F(LimiterTest, AnOutageIsAnError) {
  BrokenStore broken;
  MakeOn(broken);
  const auto by_limit = Check(OfLimit("login"));
  EXPECT_EQ(by_limit.status, kUnavailable);
  EXPECT_EQ(by_limit.message, "UNAVAILABLE: out of reach");
  EXPECT_EQ(Check(OfRules("api")).status, kUnavailable);
  EXPECT_EQ(Hold(HoldOf(OfRules("llm"), 1)).status, kUnavailable);
  EXPECT_EQ(Hold(HoldOf(OfLimit(kWindow), 1)).status, kUnavailable);
  v1::CheckBatchRequest batch;
  *batch.add_checks() = OfRules("api");
  *batch.add_checks() = OfLimit("login");
  const auto answer = Call<v1::CheckBatchResponse>("CheckBatch", batch);
  EXPECT_EQ(answer->results(0).error().code(), kUnavailable);
  EXPECT_EQ(answer->results(1).error().code(), kUnavailable);
  services_.reset();
}

TEST_F(LimiterTest, AnswersWhenTheStoreDoes) {
  LaterStore later(memory_);
  MakeOn(later);
  const std::int32_t check = Send("Check", OfRules("api").SerializeAsString());
  v1::CheckBatchRequest batch;
  *batch.add_checks() = OfRules("api");
  *batch.add_checks() = OfLimit("login");
  const std::int32_t both = Send("CheckBatch", batch.SerializeAsString());
  const std::int32_t hold = Send("Hold", HoldOf(OfLimit(kSlots), 1, 0s).SerializeAsString());
  EXPECT_EQ(AnswerOf<v1::CheckResponse>(check).status, -1);
  EXPECT_EQ(later.waiting(), 4U) << "a batch asks once by rules, and once for limits";
  later.Decide();
  EXPECT_EQ(answered_later_, 3);
  Exchange();
  EXPECT_EQ(AnswerOf<v1::CheckResponse>(check)->remaining(), 1);
  const auto results = AnswerOf<v1::CheckBatchResponse>(both);
  EXPECT_EQ(results->results(0).check().remaining(), 0);
  EXPECT_EQ(results->results(1).check().remaining(), 4);
  EXPECT_TRUE(AnswerOf<v1::HoldResponse>(hold)->holds());

  Send("Check", OfRules("api").SerializeAsString());
  services_.reset();
  later.Decide();
  EXPECT_EQ(answered_later_, 3) << "nobody is there any more";
  EXPECT_THAT(engine_->registry().Text(), HasSubstr(R"(allowed="false"} 1)")) << "it counts";
}

TEST_F(LimiterTest, BoundsWhatWaitsForTheStore) {
  LaterStore later(memory_);
  MakeOn(later, 4);
  v1::CheckBatchRequest batch;
  for (int i = 0; i < 200; ++i) *batch.add_checks() = OfLimit("login");
  const std::int32_t large = Send("CheckBatch", batch.SerializeAsString());
  EXPECT_EQ(Check(OfLimit("login")).status, kResourceExhausted) << "it weighs as much as four";
  later.Decide();
  Exchange();
  EXPECT_THAT(AnswerOf<v1::CheckBatchResponse>(large)->results(), SizeIs(200));
  const std::int32_t next = Send("Check", OfLimit("login", "bob").SerializeAsString());
  later.Decide();
  Exchange();
  EXPECT_TRUE(AnswerOf<v1::CheckResponse>(next)->allowed());
  services_.reset();
}

TEST_F(LimiterTest, HoldsNoCatalogThatWasReplaced) {
  const std::weak_ptr<const service::Catalog> before = (*engine_)->catalog();
  const auto made = Hold(HoldOf(OfRules("llm"), 1));
  Check(OfRules("api"));
  Release(made->id());
  (*engine_)->SetCatalog(MakeCatalog());
  EXPECT_TRUE(before.expired());
}

}  // namespace
}  // namespace sluice::grpc
