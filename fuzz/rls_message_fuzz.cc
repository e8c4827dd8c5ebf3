// SPDX-License-Identifier: Apache-2.0
// Any bytes as a message of ShouldRateLimit: what protobuf accepts is read as protobuf reads it,
// and answered with a consistent response.
#include <envoy/service/ratelimit/v3/rls.pb.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "grpc/rls.h"
#include "support/rls_engine.h"

namespace {

using envoy::service::ratelimit::v3::RateLimitRequest;
using sluice::grpc::RlsBatch;
using sluice::grpc::RlsRequest;
using sluice::grpc::Status;
using sluice::grpc::StatusCode;
using Response = RlsBatch::Response;

constexpr const char* kEach = R"(
domain: e
descriptors:
  - key: a
    rate_limit: {unit: hour, requests_per_unit: 3, name: n}
    descriptors:
      - key: b
        rate_limit: {algorithm: token_bucket, unit: second, requests_per_unit: 2}
  - key: s
    shadow_mode: true
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: u
    rate_limit: {unlimited: true, replaces: [{name: n}]}
  - key: z
    rate_limit: {unit: day, requests_per_unit: 0}
)";
constexpr const char* kAll = R"(
domain: a
all_or_nothing: true
descriptors:
  - key: a
    rate_limit: {unit: hour, requests_per_unit: 3}
  - key: b
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: s
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
)";

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

void ExpectEqual(const RlsRequest& ours, const RateLimitRequest& theirs) {
  Expect(ours.domain == theirs.domain());
  Expect(ours.hits_addend == theirs.hits_addend());
  Expect(ours.descriptors.size() == static_cast<std::size_t>(theirs.descriptors_size()));
  for (std::size_t i = 0; i < ours.descriptors.size(); ++i) {
    const auto& our = ours.descriptors[i];
    const auto& their = theirs.descriptors(static_cast<int>(i));
    Expect(our.limit.has_value() == their.has_limit());
    if (our.limit) {
      Expect(our.limit->requests_per_unit == their.limit().requests_per_unit());
      Expect(our.limit->unit == their.limit().unit());
    }
    Expect(our.hits_addend.has_value() == their.has_hits_addend());
    if (our.hits_addend) Expect(*our.hits_addend == their.hits_addend().value());
    Expect(our.is_negative_hits == their.is_negative_hits());
    Expect(our.entry_count == static_cast<std::size_t>(their.entries_size()));
    for (std::size_t j = 0; j < our.entry_count; ++j) {
      const auto& entry = ours.entries[our.first_entry + j];
      Expect(entry.key == their.entries(static_cast<int>(j)).key());
      Expect(entry.value == their.entries(static_cast<int>(j)).value());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static sluice::ManualClock clock;
  static sluice::MemoryStore store({.clock = &clock});
  static sluice::test::RlsEngine engine(store, clock, {kEach, kAll});
  static RlsBatch batch({.headers = true});
  const std::string_view message(reinterpret_cast<const char*>(data), size);

  RlsRequest request;
  const Status parsed = request.Parse(message);
  RateLimitRequest reference;
  google::protobuf::LogSilencer quiet;
  if (reference.ParseFromArray(data, static_cast<int>(size))) {
    Expect(parsed.ok() || parsed.code == StatusCode::kInvalidArgument);
    if (parsed.ok()) ExpectEqual(request, reference);
  }

  clock.Advance(sluice::Micros{100'000});
  batch.Start(engine->catalog(), engine->Now());
  if (!batch.Add(message).ok()) return 0;
  Expect(parsed.ok());
  engine->Apply(batch.Requests(), [] {});
  std::string reply;
  const Status answered = batch.Answer(0, reply);
  if (answered.code == StatusCode::kInvalidArgument) return 0;
  Expect(answered.ok());
  Response response;
  Expect(response.ParseFromString(reply));
  Expect(static_cast<std::size_t>(response.statuses_size()) == request.descriptors.size());
  bool over = false;
  for (const auto& status : response.statuses()) {
    Expect(status.code() != Response::UNKNOWN);
    over = over || status.code() == Response::OVER_LIMIT;
  }
  Expect(over == (response.overall_code() == Response::OVER_LIMIT));
  Expect(over == response.dynamic_metadata().fields().contains("denied_by"));
  return 0;
}
