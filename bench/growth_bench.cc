// SPDX-License-Identifier: Apache-2.0
// How the cost of a decision grows with what the process holds and with what is asked. Prints one
// line for each size of each series: `SERIES SIZE NANOSECONDS`, which is processor time, the median
// of interleaved rounds. bench/README.md explains the series; growth_bench.py draws them.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "envoy/service/ratelimit/v3/rls.pb.h"
#include "grpc/rls.h"
#include "measure.h"
#include "rule_service.h"
#include "rules/parse.h"
#include "sluice/memory_store.h"
#include "support/rls_engine.h"

namespace {

using namespace sluice;
using namespace std::chrono_literals;
using bench::Median;
using bench::RuleService;
using bench::ThreadNanos;
using text::Cat;

constexpr int kRounds = 15;

// Runs what one size of a series measures once; returns nanoseconds for each operation.
using Round = std::move_only_function<double()>;

struct Series {
  std::string_view name;
  std::vector<std::int64_t> sizes;
  std::function<Round(std::int64_t size)> make;
};

template <typename Operation>
double NanosEach(std::size_t operations, Operation operation) {
  const double start = ThreadNanos();
  for (std::size_t i = 0; i < operations; ++i) operation(i);
  return (ThreadNanos() - start) / static_cast<double>(operations);
}

void Expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "growth_bench: %s\n", what);
  std::exit(1);
}

// So large that nothing is denied or recovers.
const Limit& LargeBucket() {
  static const Limit limit =
      *Limit::TokenBucket({.capacity = 1'000'000, .refill = 10, .period = 1h});
  return limit;
}

std::string KeyOf(std::int64_t number) { return Cat("user:", 10'000'000'000'000 + number); }

// Random keys among `size`, in memory in the order in which they are asked for: a door has just
// read the key that it asks for.
std::vector<std::string> Probes(std::int64_t size, std::size_t count) {
  std::mt19937_64 random(1);
  std::vector<std::string> probes;
  probes.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    probes.push_back(KeyOf(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size))));
  }
  return probes;
}

// A check in memory by the number of live keys.
Round Keys(std::int64_t size) {
  constexpr std::size_t kChecks = 500'000;
  auto store = std::make_unique<MemoryStore>(MemoryStore::Options{.keys_max = 1 << 26});
  for (std::int64_t i = 0; i < size; ++i) {
    Expect(store->Check({.key = KeyOf(i), .limit = &LargeBucket()}).has_value(), "no decision");
  }
  return [store = std::move(store), probes = Probes(size, kChecks)] {
    std::int64_t denied = 0;
    const double nanos = NanosEach(kChecks, [&](std::size_t i) {
      const auto decision = store->Check({.key = probes[i], .limit = &LargeBucket()});
      denied += decision && decision->allowed ? 0 : 1;
    });
    Expect(denied == 0, "a check was denied");
    return nanos;
  };
}

// A charge in memory by the number of charges in its request.
Round Charges(std::int64_t size) {
  constexpr std::size_t kCharges = 200'000;
  const auto each = static_cast<std::size_t>(size);
  auto store = std::make_unique<MemoryStore>();
  return [store = std::move(store), probes = Probes(100'000, kCharges), each] {
    std::vector<Charge> charges(each, {.key = {}, .limit = &LargeBucket()});
    std::size_t next = 0;
    std::int64_t denied = 0;
    const double nanos = NanosEach(kCharges / each, [&](std::size_t) {
      for (Charge& charge : charges) charge.key = probes[next++];
      const auto decision = store->CheckAll(charges);
      denied += decision && decision->allowed ? 0 : 1;
    });
    Expect(denied == 0, "a check was denied");
    return nanos / static_cast<double>(each);
  };
}

// A check under a sliding window log by the number of requests in its window. With each check, the
// oldest one leaves.
Round LogEntries(std::int64_t size) {
  constexpr std::size_t kChecks = 200'000;
  struct Log {
    explicit Log(std::int64_t entries)
        : limit(*Limit::SlidingWindow({.limit = entries, .window = Micros{10 * entries}})) {}

    bool Check() {
      now += 10us;
      const auto decision = store.Check({.key = "k", .limit = &limit}, now);
      return decision && decision->allowed;
    }

    Limit limit;
    MemoryStore store;
    TimePoint now{Micros{1'700'000'000'000'000}};
  };
  auto log = std::make_unique<Log>(size);
  for (std::int64_t i = 0; i < size; ++i) Expect(log->Check(), "a check was denied");
  return [log = std::move(log)] {
    std::int64_t denied = 0;
    const double nanos = NanosEach(kChecks, [&](std::size_t) { denied += log->Check() ? 0 : 1; });
    Expect(denied == 0, "a check was denied");
    return nanos;
  };
}

// POST /api/v1/check, from its body to the answer's.
Round RuleChecks(rules::RuleSetSpec spec, std::vector<std::string> bodies) {
  auto service = std::make_unique<RuleService>(rules::RuleSet::Compile(std::move(spec)));
  return [service = std::move(service), bodies = std::move(bodies)] {
    std::size_t applied = 0;
    const double nanos =
        NanosEach(bodies.size(), [&](std::size_t i) { applied += service->Check(bodies[i]); });
    Expect(applied == bodies.size(), "not every request fell under one rule");
    return nanos;
  };
}

// One rule, to be varied: a file of as many rules as there may be would be too long.
rules::RuleSetSpec OneRule(std::string_view rule) {
  const auto parsed = rules::ParseRuleSet(Cat("id: bench\nrules: [{id: r, ", rule, "}]"), "bench");
  Expect(parsed.has_value(), "the rule is not valid");
  return (*parsed)->spec();
}

constexpr std::size_t kBodies = 20'000;

std::string PathOf(std::int64_t rule, std::string_view item) {
  return Cat("/v1/service-", rule % 100, "/resource-", rule, "/items/", item);
}

// By the number of rules, each with a path of its own.
Round Rules(std::int64_t size) {
  rules::RuleSetSpec spec =
      OneRule("scope: PER_IP, match: {methods: [GET]}, bands: [{limit: 1000000, window: 1s}]");
  const rules::Rule one = std::move(spec.rules.front());
  spec.rules.clear();
  for (std::int64_t i = 0; i < size; ++i) {
    rules::Rule rule = one;
    rule.id = Cat("rule-", i);
    rule.match.paths.push_back(rules::PathPattern::Parse(PathOf(i, "{item}")).value());
    rule.bands.front().name = Cat("bench/", rule.id, "/band");
    spec.rules.push_back(std::move(rule));
  }
  std::mt19937_64 random(1);
  std::vector<std::string> bodies;
  for (std::size_t i = 0; i < kBodies; ++i) {
    const auto rule = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size));
    bodies.push_back(
        Cat(R"({"ruleSet":"bench","context":{"ip":"192.0.2.1","method":"GET","path":")",
            PathOf(rule, "4711"), "\"}}"));
  }
  return RuleChecks(std::move(spec), std::move(bodies));
}

// By the number of a rule's overrides; every client has one.
Round Overrides(std::int64_t size) {
  rules::RuleSetSpec spec = OneRule(
      "scope: PER_USER, bands: [{label: b, limit: 1000000, window: 1s}], "
      "overrides: [{key: u, bands: [{label: b, limit: 2000000, window: 1s}]}]");
  std::vector<rules::Override>& overrides = spec.rules.front().overrides;
  const rules::Override one = overrides.front();
  overrides.assign(static_cast<std::size_t>(size), one);
  for (std::int64_t i = 0; i < size; ++i) {
    overrides[static_cast<std::size_t>(i)].keys = {Cat("user-", i)};
  }
  std::mt19937_64 random(1);
  std::vector<std::string> bodies;
  for (std::size_t i = 0; i < kBodies; ++i) {
    bodies.push_back(Cat(R"({"ruleSet":"bench","context":{"userId":"user-)",
                         random() % static_cast<std::uint64_t>(size), "\"}}"));
  }
  return RuleChecks(std::move(spec), std::move(bodies));
}

// ShouldRateLimit by the number of descriptors in the configuration, from its message to the
// answer's.
Round Descriptors(std::int64_t size) {
  constexpr std::size_t kCalls = 20'000;
  struct Door {
    explicit Door(const std::string& yaml) : engine(store, SystemClock(), {yaml}) {}

    MemoryStore store;
    test::RlsEngine engine;
    grpc::RlsOptions options;
    grpc::RlsBatch batch{options};
    std::string reply;
  };
  std::string yaml = "domain: bench\ndescriptors:\n";
  for (std::int64_t i = 0; i < size; ++i) {
    // Short: a file may have 8 MiB.
    yaml +=
        Cat("- {key: u, value: u", i, ", rate_limit: {unit: day, requests_per_unit: 1000000}}\n");
  }
  auto door = std::make_unique<Door>(yaml);
  std::mt19937_64 random(1);
  std::vector<std::string> messages;
  for (std::size_t i = 0; i < kCalls; ++i) {
    envoy::service::ratelimit::v3::RateLimitRequest request;
    request.set_domain("bench");
    auto* const entry = request.add_descriptors()->add_entries();
    entry->set_key("u");
    entry->set_value(Cat("u", random() % static_cast<std::uint64_t>(size)));
    messages.push_back(request.SerializeAsString());
  }
  return [door = std::move(door), messages = std::move(messages)] {
    std::size_t answered = 0;
    const double nanos = NanosEach(messages.size(), [&](std::size_t i) {
      grpc::RlsBatch& batch = door->batch;
      batch.Start(door->engine->catalog(), TimePoint{});
      Expect(batch.Add(messages[i]).ok(), "a message was refused");
      door->engine->ApplyParts(batch.Requests(), [&](const service::Engine::Span& span) {
        batch.Count(*door->engine, span);
        answered += batch.Answer(0, door->reply).ok() ? 1 : 0;
      });
      batch.End();
    });
    Expect(answered == messages.size(), "a call was not answered");
    return nanos;
  };
}

}  // namespace

int main() {
  const std::vector<Series> all = {
      {"keys", {1'000, 10'000, 100'000, 1'000'000, 10'000'000, 30'000'000}, Keys},
      {"rules", {10, 100, 1'000, 10'000, 100'000}, Rules},
      {"overrides", {10, 100, 1'000, 10'000, 100'000}, Overrides},
      {"descriptors", {10, 100, 1'000, 10'000, 100'000}, Descriptors},
      {"charges", {1, 4, 16, 64}, Charges},
      {"log_entries", {10, 100, 1'000, 10'000, 100'000, 1'000'000}, LogEntries},
  };
  for (const Series& series : all) {
    std::vector<Round> rounds;
    for (const std::int64_t size : series.sizes) rounds.push_back(series.make(size));
    std::vector<std::vector<double>> nanos(rounds.size());
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < rounds.size(); ++i) nanos[i].push_back(rounds[i]());
    }
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      std::printf("%.*s %lld %.1f\n", static_cast<int>(series.name.size()), series.name.data(),
                  static_cast<long long>(series.sizes[i]), Median(nanos[i]));
    }
    std::fflush(stdout);
  }
  return 0;
}
