// SPDX-License-Identifier: Apache-2.0
#include "grpc/services.h"

#include <envoy/service/ratelimit/v3/rls.pb.h>
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpc/health/v1/health.pb.h>
#include <grpc/reflection/v1/reflection.pb.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "sluice/memory_store.h"
#include "support/h2_client.h"
#include "support/rls_engine.h"

namespace sluice::grpc {
namespace {

namespace health = ::grpc::health::v1;
namespace reflection = ::grpc::reflection::v1;
using envoy::service::ratelimit::v3::RateLimitRequest;
using Response = envoy::service::ratelimit::v3::RateLimitResponse;
using test::Framed;
using test::H2Client;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::SizeIs;

constexpr const char* kDomain = R"(
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
)";
constexpr const char* kShouldRateLimit =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
constexpr const char* kCheck = "/grpc.health.v1.Health/Check";
constexpr const char* kWatch = "/grpc.health.v1.Health/Watch";

// Decides when told to.
class SlowStore final : public Store {
 public:
  explicit SlowStore(Store& store) : store_(store) {}

  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    batches.push_back(requests.size());
    waiting_.push_back([this, requests, done = std::move(done)]() mutable {
      store_.Apply(requests, std::move(done));
    });
  }
  void Decide() {
    for (auto& work : std::exchange(waiting_, {})) work();
  }

  std::vector<std::size_t> batches;

 private:
  Store& store_;
  std::vector<std::move_only_function<void()>> waiting_;
};

class ServicesTest : public testing::Test {
 protected:
  ServicesTest() { Make(memory_engine_); }

  void Make(test::RlsEngine& engine, const Session::Limits& limits = {}) {
    services_ = std::make_shared<Services>(*engine, Services::Options{.limits = limits}, counters_,
                                           Serving::kYes, [this] { ++answered_later_; });
  }

  void Exchange() {
    while (true) {
      const std::string request = client_.Take();
      if (!request.empty()) services_->Receive(request, now_);
      std::string answer;
      services_->session().Produce(answer, SIZE_MAX);
      if (!answer.empty()) client_.Feed(answer);
      if (request.empty() && answer.empty()) return;
    }
  }

  std::int32_t Ask(const std::string& user) {
    RateLimitRequest request;
    request.set_domain("edge");
    auto& entry = *request.add_descriptors()->add_entries();
    entry.set_key("user");
    entry.set_value(user);
    return client_.Call(kShouldRateLimit, request.SerializeAsString());
  }
  int CodeOf(std::int32_t id) {
    const auto messages = client_.stream(id).Messages();
    Response response;
    if (messages.size() != 1 || !response.ParseFromString(messages.front())) return -1;
    return response.overall_code();
  }

  std::int32_t AskHealth(const char* method, const std::string& service) {
    health::HealthCheckRequest request;
    request.set_service(service);
    return client_.Call(method, request.SerializeAsString());
  }
  std::vector<int> HealthOf(std::int32_t id) {
    std::vector<int> statuses;
    for (const std::string& message : client_.stream(id).Messages()) {
      health::HealthCheckResponse response;
      EXPECT_TRUE(response.ParseFromString(message));
      statuses.push_back(response.status());
    }
    return statuses;
  }

  reflection::ServerReflectionResponse Reflect(const reflection::ServerReflectionRequest& request,
                                               const std::string& package = "grpc.reflection.v1") {
    const std::int32_t id = client_.Call("/" + package + ".ServerReflection/ServerReflectionInfo",
                                         request.SerializeAsString());
    Exchange();
    EXPECT_EQ(client_.stream(id).grpc_status(), "0");
    reflection::ServerReflectionResponse response;
    const auto messages = client_.stream(id).Messages();
    EXPECT_THAT(messages, SizeIs(1));
    EXPECT_TRUE(!messages.empty() && response.ParseFromString(messages.front()));
    return response;
  }

  void ExpectLetsGoOfCatalog(test::RlsEngine& engine) {
    const std::weak_ptr<const service::Catalog> before = engine->catalog();
    for (int i = 0; i < 3; ++i) {
      Ask("ann");
      Exchange();
    }
    slow_.Decide();
    Exchange();
    engine->SetCatalog(test::RlsCatalog({kDomain}));
    EXPECT_TRUE(before.expired());
  }

  SteadyTime now_{};
  ManualClock clock_{TimePoint{std::chrono::hours{1}}};
  MemoryStore memory_{{.clock = &clock_}};
  SlowStore slow_{memory_};
  test::RlsEngine memory_engine_{memory_, clock_, {kDomain}};
  test::RlsEngine slow_engine_{slow_, clock_, {kDomain}};
  Counters counters_;
  int answered_later_ = 0;
  std::shared_ptr<Services> services_;
  H2Client client_;
};

TEST_F(ServicesTest, DecidesCalls) {
  std::vector<int> codes;
  for (int i = 0; i < 4; ++i) {
    const std::int32_t id = Ask("ann");
    Exchange();
    EXPECT_EQ(client_.stream(id).grpc_status(), "0");
    codes.push_back(CodeOf(id));
  }
  EXPECT_THAT(codes, ElementsAre(1, 1, 1, 2));
  EXPECT_EQ(answered_later_, 0);
}

TEST_F(ServicesTest, SaysWhatIsWrongWithACall) {
  const std::int32_t nothing = client_.Call(kShouldRateLimit, "");
  const std::int32_t malformed = client_.Call(kShouldRateLimit, "\x0a\xff");
  Exchange();
  EXPECT_EQ(client_.stream(nothing).grpc_status(), "3");
  EXPECT_EQ(client_.stream(malformed).grpc_status(), "13");
}

TEST_F(ServicesTest, DecidesAllThatCameTogetherAtOnce) {
  Make(slow_engine_);
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(Ask("ann"));
  Exchange();
  EXPECT_THAT(slow_.batches, ElementsAre(5));
  const std::int32_t later = Ask("bob");
  Exchange();
  EXPECT_THAT(slow_.batches, ElementsAre(5, 1));
  EXPECT_FALSE(client_.stream(ids[0]).closed);
  slow_.Decide();
  EXPECT_EQ(answered_later_, 2);
  Exchange();
  std::vector<int> codes;
  for (const std::int32_t id : ids) codes.push_back(CodeOf(id));
  EXPECT_THAT(codes, ElementsAre(1, 1, 1, 2, 2));
  EXPECT_EQ(CodeOf(later), 1);
}

TEST_F(ServicesTest, AQuietConnectionHoldsNoCatalogThatWasReplaced) {
  ExpectLetsGoOfCatalog(memory_engine_);
}

TEST_F(ServicesTest, NorAfterAStoreThatTakesItsTime) {
  Make(slow_engine_);
  ExpectLetsGoOfCatalog(slow_engine_);
}

TEST_F(ServicesTest, OutlivesNothingThatTheEngineStillHas) {
  Make(slow_engine_);
  Ask("ann");
  Exchange();
  services_.reset();
  slow_.Decide();
  EXPECT_EQ(answered_later_, 0);
  EXPECT_THAT(slow_engine_.registry().Text(), HasSubstr(R"(allowed="true"} 1)")) << "it counts";
}

TEST_F(ServicesTest, BoundsCallsThatWereGivenUp) {
  Make(slow_engine_, {.streams_max = 4});
  for (int i = 0; i < 4; ++i) {
    const std::int32_t id = Ask("ann");
    Exchange();
    client_.Cancel(id);
    Exchange();
  }
  const std::int32_t id = Ask("ann");
  Exchange();
  EXPECT_EQ(client_.stream(id).grpc_status(), "8");
  EXPECT_THAT(slow_.batches, SizeIs(4));
  slow_.Decide();
  const std::int32_t again = Ask("bob");
  Exchange();
  slow_.Decide();
  Exchange();
  EXPECT_EQ(CodeOf(again), 1);
}

TEST_F(ServicesTest, ChecksHealth) {
  const std::int32_t whole = AskHealth(kCheck, "");
  const std::int32_t rls = AskHealth(kCheck, std::string(kRlsServiceName));
  const std::int32_t other = AskHealth(kCheck, "other");
  const std::int32_t malformed = client_.Call(kCheck, "\x0a\xff");
  Exchange();
  EXPECT_THAT(HealthOf(whole), ElementsAre(health::HealthCheckResponse::SERVING));
  EXPECT_THAT(HealthOf(rls), ElementsAre(health::HealthCheckResponse::SERVING));
  EXPECT_EQ(client_.stream(other).grpc_status(), "5");
  EXPECT_EQ(client_.stream(malformed).grpc_status(), "13");
  services_->SetServing(Serving::kNo);
  const std::int32_t after = AskHealth(kCheck, "");
  Exchange();
  EXPECT_THAT(HealthOf(after), ElementsAre(health::HealthCheckResponse::NOT_SERVING));
}

TEST_F(ServicesTest, TellsThoseWhoWatch) {
  const std::int32_t watch = AskHealth(kWatch, "");
  const std::int32_t unknown = AskHealth(kWatch, "other");
  const std::int32_t given_up = AskHealth(kWatch, "");
  Exchange();
  client_.Cancel(given_up);
  Exchange();
  services_->SetServing(Serving::kNo);
  services_->SetServing(Serving::kNo);
  services_->SetServing(Serving::kYes);
  Exchange();
  EXPECT_THAT(HealthOf(watch), ElementsAre(1, 2, 1));
  EXPECT_THAT(HealthOf(unknown), ElementsAre(3));
  EXPECT_FALSE(client_.stream(watch).closed);
}

TEST_F(ServicesTest, EndsWatchesThatTakeNoReplies) {
  Make(memory_engine_, {.reply_bytes_max = 4});
  H2Client slow({.window = 0});
  health::HealthCheckRequest request;
  const std::int32_t id = slow.Call(kWatch, request.SerializeAsString());
  services_->Receive(slow.Take(), now_);
  services_->SetServing(Serving::kNo);  // Does not fit beside the first.
  services_->SetServing(Serving::kYes);
  EXPECT_EQ(counters_.refused.value(), 1U);
  slow.Cancel(id);
  services_->Receive(slow.Take(), now_);
  EXPECT_EQ(services_->session().open_calls(), 0U);
}

TEST_F(ServicesTest, LetsGoOfThoseWhoWatchWhenItDrains) {
  const std::int32_t watch = AskHealth(kWatch, "");
  const std::int32_t unknown = AskHealth(kWatch, "other");
  Exchange();
  services_->Drain();
  Exchange();
  EXPECT_THAT(HealthOf(watch), ElementsAre(1, 2));
  EXPECT_EQ(client_.stream(watch).grpc_status(), "14");
  EXPECT_EQ(client_.stream(unknown).grpc_status(), "14");
  EXPECT_TRUE(services_->session().finished());
}

TEST_F(ServicesTest, ListsItsServices) {
  for (const char* package : {"grpc.reflection.v1", "grpc.reflection.v1alpha"}) {
    reflection::ServerReflectionRequest request;
    request.set_list_services("");
    const auto response = Reflect(request, package);
    std::vector<std::string> names;
    for (const auto& service : response.list_services_response().service()) {
      names.push_back(service.name());
    }
    EXPECT_THAT(names, ElementsAre(kRlsServiceName, kLimiterServiceName, "grpc.health.v1.Health",
                                   "grpc.reflection.v1.ServerReflection",
                                   "grpc.reflection.v1alpha.ServerReflection"));
  }
}

TEST_F(ServicesTest, DescribesItself) {
  const auto files = [](const reflection::ServerReflectionResponse& response) {
    std::set<std::string> names;
    for (const auto& bytes : response.file_descriptor_response().file_descriptor_proto()) {
      google::protobuf::FileDescriptorProto file;
      EXPECT_TRUE(file.ParseFromString(bytes));
      names.insert(file.name());
    }
    return names;
  };
  reflection::ServerReflectionRequest request;
  request.set_file_containing_symbol(std::string(kRlsServiceName));
  const auto by_symbol = Reflect(request);
  EXPECT_THAT(files(by_symbol),
              IsSupersetOf({"envoy/service/ratelimit/v3/rls.proto",
                            "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
                            "google/protobuf/duration.proto"}));
  EXPECT_EQ(by_symbol.original_request().file_containing_symbol(), kRlsServiceName);
  request.set_file_containing_symbol("envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit");
  EXPECT_EQ(files(Reflect(request)), files(by_symbol));
  request.set_file_by_filename("envoy/type/v3/ratelimit_unit.proto");
  EXPECT_THAT(files(Reflect(request)), ElementsAre("envoy/type/v3/ratelimit_unit.proto"));
}

TEST_F(ServicesTest, SaysWhatItCannotDescribe) {
  reflection::ServerReflectionRequest request;
  request.set_file_by_filename("no/such.proto");
  EXPECT_EQ(Reflect(request).error_response().error_code(), 5);
  request.set_file_by_filename("google/protobuf/descriptor.proto");  // Compiled in, but not ours.
  EXPECT_EQ(Reflect(request).error_response().error_code(), 5);
  request.set_file_containing_symbol("no.such.Symbol");
  EXPECT_EQ(Reflect(request).error_response().error_code(), 5);
  request.mutable_file_containing_extension()->set_containing_type("no.such.Type");
  EXPECT_EQ(Reflect(request).error_response().error_code(), 5);
  request.set_all_extension_numbers_of_type("no.such.Type");
  EXPECT_EQ(Reflect(request).error_response().error_code(), 5);
  request.set_all_extension_numbers_of_type("envoy.config.core.v3.HeaderValue");
  EXPECT_EQ(Reflect(request).all_extension_numbers_response().base_type_name(),
            "envoy.config.core.v3.HeaderValue");
  EXPECT_EQ(Reflect({}).error_response().error_code(), 3);
  const std::int32_t id =
      client_.Call("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "\x0a\xff");
  Exchange();
  EXPECT_EQ(client_.stream(id).grpc_status(), "13");
}

TEST_F(ServicesTest, CountsErrorsByTheirStatus) {
  client_.Call(kShouldRateLimit, "");
  client_.Call("/none/None", "");
  AskHealth(kCheck, "none");
  Ask("alice");
  Exchange();
  const std::string text = memory_engine_.registry().Text();
  for (const char* line : {R"(sluice_errors_total{code="INVALID_ARGUMENT"} 1)",
                           R"(sluice_errors_total{code="UNIMPLEMENTED"} 1)",
                           R"(sluice_errors_total{code="NOT_FOUND"} 1)",
                           R"(sluice_errors_total{code="INTERNAL"} 0)"}) {
    EXPECT_THAT(text, testing::HasSubstr(line));
  }
}

}  // namespace
}  // namespace sluice::grpc
