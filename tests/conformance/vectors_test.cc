// SPDX-License-Identifier: Apache-2.0
// Runs tests/conformance/vectors/*.json against every store and against the reference model.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "conformance/model.h"
#include "conformance/model_spec.h"
#include "sluice/memory_store.h"
#include "sluice/redis_store.h"
#include "support/redis_server.h"

namespace sluice {
namespace {

using boost::json::value;

struct Step {
  std::int64_t now_us;
  std::string key;
  std::int64_t cost;
  Action action;      // kGive if the vector has "give" in place of "cost".
  std::string error;  // Empty if a decision is expected.
  Decision expected;  // Without `limit`, which the vectors leave open.
};

struct Vector {
  std::string name;
  std::vector<Limit> limits;
  std::vector<Step> steps;
};

std::vector<Vector> LoadVectors(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::vector<Vector> vectors;
  const value document = boost::json::parse(text.str());
  for (const value& entry : document.at("vectors").as_array()) {
    Vector vector{.name = std::string(entry.at("name").as_string()), .limits = {}, .steps = {}};
    for (const value& limit : entry.at("limits").as_array()) {
      vector.limits.push_back(Limit::Parse(std::string(limit.as_string())).value());
    }
    for (const value& step : entry.at("steps").as_array()) {
      const bool gives = step.as_object().contains("give");
      Step parsed{.now_us = step.at("now_us").as_int64(),
                  .key = std::string(step.at("key").as_string()),
                  .cost = step.at(gives ? "give" : "cost").as_int64(),
                  .action = gives ? Action::kGive : Action::kCheck,
                  .error = {},
                  .expected = {}};
      if (const value* error = step.as_object().if_contains("error")) {
        parsed.error = std::string(error->as_string());
      } else {
        const value& expect = step.at("expect");
        parsed.expected = {
            .allowed = expect.at("allowed").as_bool(),
            .limit = 0,
            .remaining = expect.at("remaining").as_int64(),
            .retry_after = Micros{expect.at("retry_after_us").as_int64()},
            .reset_after = Micros{expect.at("reset_after_us").as_int64()},
            .delay = Micros{expect.at("delay_us").as_int64()},
        };
      }
      vector.steps.push_back(std::move(parsed));
    }
    vectors.push_back(std::move(vector));
  }
  return vectors;
}

// Decides one step under all limits of its vector.
using Decider =
    std::function<Expected<Decision>(const std::vector<Limit>& limits, const Step& step)>;

Decider OnStore(std::shared_ptr<Store> store) {
  return [store](const std::vector<Limit>& limits, const Step& step) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < limits.size(); ++i) names.push_back(std::to_string(i));
    std::vector<Charge> charges;
    for (std::size_t i = 0; i < limits.size(); ++i) {
      charges.push_back(
          {.key = step.key, .limit = &limits[i], .name = names[i], .cost = step.cost});
    }
    Request request{
        .charges = charges, .now = TimePoint{Micros{step.now_us}}, .action = step.action};
    std::promise<void> answered;
    store->Apply({&request, 1}, [&] { answered.set_value(); });
    answered.get_future().wait();
    return request.outcome;
  };
}

Decider OnModel() {
  auto model = std::make_shared<model::Model>();
  return [model](const std::vector<Limit>& limits, const Step& step) -> Expected<Decision> {
    std::vector<model::Model::Charge> charges;
    for (std::size_t i = 0; i < limits.size(); ++i) {
      charges.push_back({step.key, std::to_string(i), SpecOf(limits[i]), step.cost});
    }
    const auto group = step.action == Action::kGive ? model->Give(charges, step.now_us)
                                                    : model->Decide(charges, step.now_us);
    if (group.cost_exceeds) return std::unexpected(Error{ErrorCode::kCostExceedsLimit, ""});
    return DecisionOf(group.overall);
  };
}

// One server for all vectors, and a key space for each.
Decider OnRedis() {
  static testing_support::RedisServer server;
  static int vectors = 0;
  const std::string query = "?timeout=60s&connect_timeout=60s&prefix=v" + std::to_string(++vectors);
  return OnStore(RedisStore::Create({.uri = server.Uri(query)}).value());
}

struct Subject {
  std::string name;
  std::function<Decider()> make;
};

void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }

std::vector<Subject> Subjects() {
  return {
      {"memory", [] { return OnStore(std::make_shared<MemoryStore>()); }},
      {"memory_keeping_all",
       [] {
         return OnStore(std::make_shared<MemoryStore>(
             MemoryStore::Options{.recovered_kept_for = Micros::max()}));
       }},
      {"model", OnModel},
      {"redis", OnRedis},
  };
}

class Vectors : public testing::TestWithParam<std::tuple<std::string, Subject>> {};

TEST_P(Vectors, AreDecidedAsExpected) {
  const auto& [file, subject] = GetParam();
  const auto vectors = LoadVectors(std::filesystem::path(SLUICE_VECTORS) / (file + ".json"));
  ASSERT_FALSE(vectors.empty());
  for (const Vector& vector : vectors) {
    ASSERT_FALSE(vector.steps.empty()) << vector.name;
    const Decider decide = subject.make();
    for (std::size_t i = 0; i < vector.steps.size(); ++i) {
      SCOPED_TRACE(vector.name + ", step " + std::to_string(i));
      const Step& step = vector.steps[i];
      auto decision = decide(vector.limits, step);
      ASSERT_EQ(decision ? "" : ToString(decision.error().code), step.error);
      if (!decision) continue;
      decision->limit = 0;
      ASSERT_EQ(*decision, step.expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Vectors,
                         testing::Combine(testing::Values("token_bucket", "leaky_bucket", "gcra",
                                                          "fixed_window", "sliding_window",
                                                          "sliding_window_counter", "give",
                                                          "groups", "coarse_ticks", "calendar"),
                                          testing::ValuesIn(Subjects())),
                         [](const auto& param) {
                           return std::get<0>(param.param) + "_" + std::get<1>(param.param).name;
                         });

}  // namespace
}  // namespace sluice
