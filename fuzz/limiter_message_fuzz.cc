// SPDX-License-Identifier: Apache-2.0
// Any bytes as a message of sluice.v1.Limiter, after one that chooses the method: what protobuf
// accepts is read as protobuf reads it, and answered with a response of that method.
#include <sluice/v1/limiter.pb.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "grpc/limiter.h"
#include "grpc/limiter_request.h"
#include "rules/parse.h"
#include "support/rls_engine.h"

namespace {

namespace v1 = sluice::v1;
using sluice::grpc::BatchMessage;
using sluice::grpc::CheckMessage;
using sluice::grpc::ExtendMessage;
using sluice::grpc::LimiterAnswer;
using sluice::grpc::LimiterCall;
using sluice::grpc::LimiterMethod;
using sluice::grpc::SettleMessage;
using sluice::grpc::Status;
using sluice::grpc::StatusCode;

constexpr std::string_view kRules = R"(
ruleSets:
  - id: a
    rules:
      - {id: r, scope: PER_USER, bands: [{label: x, limit: 3, window: 1h}, {label: y, algorithm: token_bucket, capacity: 2, refill: 1, period: 1s}]}
      - {id: s, scope: PER_IP, shadow: true, bands: [{algorithm: concurrency, limit: 1, ttl: 1s}]}
  - {id: b, rules: [{id: r, scope: CUSTOM, attribute: t, cost: {attribute: c}, hold: {ttl: 1s}, bands: [{limit: 9, window: 1h}]}]}
  - {id: c, rules: [{id: r, scope: GLOBAL, match: {paths: ["/{x}/y"]}, bands: [{algorithm: concurrency, limit: 2, ttl: 1s}]}]}
)";

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

std::shared_ptr<const sluice::service::Catalog> Catalog() {
  auto catalog = std::make_shared<sluice::service::Catalog>(*sluice::test::RlsCatalog({}));
  catalog->limits.emplace("l", *sluice::Limit::Parse("limit=5,window=1h"));
  auto sets = sluice::rules::ParseRuleSets(kRules, "rules.yaml");
  if (!sets) throw std::invalid_argument(sets.error().front().ToString());
  catalog->rules = *sluice::rules::RuleBook::Build(std::move(*sets), 1);
  return catalog;
}

template <typename Message>
bool Parses(Message& message, std::string_view bytes) {
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

void ExpectEqual(const sluice::rules::Context& ours, const v1::Context& theirs) {
  Expect(ours.ip == theirs.ip() && ours.user_id == theirs.user_id());
  Expect(ours.api_key == theirs.api_key() && ours.method == theirs.method());
  Expect(ours.path.has_value() == theirs.has_path());
  Expect(ours.path.value_or("") == theirs.path());
  Expect(ours.attributes.size() == theirs.attributes().size());
  for (const auto& [name, value] : ours.attributes) {
    const auto found = theirs.attributes().find(std::string(name));
    Expect(found != theirs.attributes().end() && found->second == value);
  }
}

// Whether what protobuf accepts was read as it reads it.
template <typename Ours, typename Theirs, typename... Type>
std::optional<Theirs> ReadBoth(Ours& ours, std::string_view bytes, Type... type) {
  const Status status = ours.Parse(bytes, type...);
  Theirs theirs;
  if (!Parses(theirs, bytes)) return std::nullopt;
  Expect(status.ok() || status.code == StatusCode::kInvalidArgument);
  if (!status.ok()) return std::nullopt;
  return theirs;
}

void ExpectTtl(const std::optional<sluice::Micros>& ours, bool has,
               const google::protobuf::Duration& theirs) {
  Expect(ours.has_value() == has);
  if (has) Expect(ours->count() == theirs.seconds() * 1'000'000 + theirs.nanos() / 1'000);
}

template <typename Theirs>
void CompareCheck(std::string_view bytes, CheckMessage::Type type) {
  CheckMessage ours;
  const auto theirs = ReadBoth<CheckMessage, Theirs>(ours, bytes, type);
  if (!theirs) return;
  Expect(ours.rule_set == theirs->rule_set() && ours.limit == theirs->limit());
  Expect(ours.key == theirs->key());
  Expect(ours.permits == (theirs->has_permits() ? theirs->permits() : 1));
  ExpectEqual(ours.context, theirs->context());
  if constexpr (!std::is_same_v<Theirs, v1::GiveRequest>) {
    Expect(ours.detail == theirs->detail());
  }
  if constexpr (std::is_same_v<Theirs, v1::HoldRequest>) {
    Expect(ours.wish.id == theirs->id());
    ExpectTtl(ours.wish.ttl, theirs->has_ttl(), theirs->ttl());
    Expect(ours.wish.on_expiry.has_value() == (theirs->on_expiry() != 0));
  }
}

void Compare(LimiterMethod method, std::string_view bytes) {
  switch (method) {
    case LimiterMethod::kCheck:
      return CompareCheck<v1::CheckRequest>(bytes, CheckMessage::Type::kCheck);
    case LimiterMethod::kHold:
      return CompareCheck<v1::HoldRequest>(bytes, CheckMessage::Type::kHold);
    case LimiterMethod::kGive:
      return CompareCheck<v1::GiveRequest>(bytes, CheckMessage::Type::kGive);
    case LimiterMethod::kCheckBatch: {
      BatchMessage ours;
      const auto theirs = ReadBoth<BatchMessage, v1::CheckBatchRequest>(ours, bytes);
      if (!theirs) return;
      Expect(ours.checks.size() == static_cast<std::size_t>(theirs->checks_size()));
      for (const std::string_view check : ours.checks) Compare(LimiterMethod::kCheck, check);
      return;
    }
    case LimiterMethod::kSettle: {
      SettleMessage ours;
      const auto theirs = ReadBoth<SettleMessage, v1::SettleRequest>(ours, bytes);
      if (!theirs) return;
      Expect(ours.id == theirs->id() && ours.permits.has_value() == theirs->has_permits());
      Expect(ours.permits.value_or(0) == theirs->permits());
      Expect(ours.rules.size() == theirs->rules().size());
      for (const auto& [rule, permits] : ours.rules) {
        Expect(theirs->rules().at(std::string(rule)) == permits);
      }
      return;
    }
    case LimiterMethod::kRelease: {
      ExtendMessage ours;
      const auto theirs =
          ReadBoth<ExtendMessage, v1::ReleaseRequest>(ours, bytes, ExtendMessage::Type::kRelease);
      if (theirs) Expect(ours.id == theirs->id() && !ours.ttl);
      return;
    }
    case LimiterMethod::kExtend: {
      ExtendMessage ours;
      const auto theirs =
          ReadBoth<ExtendMessage, v1::ExtendRequest>(ours, bytes, ExtendMessage::Type::kExtend);
      if (!theirs) return;
      Expect(ours.id == theirs->id());
      ExpectTtl(ours.ttl, theirs->has_ttl(), theirs->ttl());
      return;
    }
  }
}

void ExpectReads(LimiterMethod method, const std::string& answer, std::size_t checks) {
  switch (method) {
    case LimiterMethod::kCheck: {
      v1::CheckResponse response;
      Expect(response.ParseFromString(answer) && response.source() != v1::SOURCE_UNSPECIFIED);
      return;
    }
    case LimiterMethod::kCheckBatch: {
      v1::CheckBatchResponse response;
      Expect(response.ParseFromString(answer));
      Expect(static_cast<std::size_t>(response.results_size()) == checks);
      for (const auto& result : response.results())
        Expect(result.has_check() || result.has_error());
      return;
    }
    case LimiterMethod::kHold: {
      v1::HoldResponse response;
      Expect(response.ParseFromString(answer));
      Expect(response.check().allowed() == !response.id().empty());
      Expect(response.holds() == response.has_expires_at());
      return;
    }
    case LimiterMethod::kSettle:
    case LimiterMethod::kRelease: {
      v1::SettleResponse response;
      Expect(response.ParseFromString(answer) && response.source() != v1::SOURCE_UNSPECIFIED);
      return;
    }
    case LimiterMethod::kExtend: {
      v1::ExtendResponse response;
      Expect(response.ParseFromString(answer) && response.has_expires_at());
      return;
    }
    case LimiterMethod::kGive: {
      v1::GiveResponse response;
      Expect(response.ParseFromString(answer) && response.source() != v1::SOURCE_UNSPECIFIED);
      return;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static sluice::ManualClock clock(sluice::TimePoint{sluice::Micros{1'700'000'000'000'000}});
  static sluice::MemoryStore store({.clock = &clock});
  static sluice::test::RlsEngine engine(store, clock, {});
  static const bool prepared = [] {
    engine->SetCatalog(Catalog());
    return true;
  }();
  if (!prepared || size == 0) return 0;
  const auto method = static_cast<LimiterMethod>(data[0] % 7);
  // A copy, so that nothing can be kept of it and nothing read past its end.
  auto copy = std::make_unique<char[]>(size);
  std::copy_n(data + 1, size - 1, copy.get());
  const std::string_view message(copy.get(), size - 1);
  const google::protobuf::LogSilencer quiet;
  Compare(method, message);

  clock.Advance(sluice::Micros{100'000});
  auto call = LimiterCall::Read(*engine, {}, method, message, {});
  if (!call) {
    Expect(!call.error().ok() && !call.error().message.empty());
    return 0;
  }
  copy.reset();
  const std::size_t checks = (*call)->checks();
  bool answered = false;
  LimiterCall::Run(*std::move(call), *engine, [&](const LimiterAnswer& answer) {
    answered = true;
    if (answer) ExpectReads(method, *answer, checks);
  });
  Expect(answered);
  return 0;
}
