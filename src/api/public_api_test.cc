// SPDX-License-Identifier: Apache-2.0
#include "api/public_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>
#include <string>

#include "api/assets.h"
#include "sluice/memory_store.h"
#include "telemetry/heavy_hitters.h"

namespace sluice::api {
namespace {

// All that OpenAPI can describe: what a path with any method has.
constexpr const char* kMethods[] = {"GET",     "PUT",  "POST",  "DELETE",
                                    "OPTIONS", "HEAD", "PATCH", "TRACE"};

std::set<std::string> Described() {
  std::set<std::string> all;
  const boost::json::value document = boost::json::parse(kOpenApi);
  for (const auto& [path, operations] : document.at("paths").as_object()) {
    for (const auto& [method, operation] : operations.as_object()) {
      std::string upper = method;
      for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      all.insert(upper + " " + std::string(path));
    }
  }
  return all;
}

TEST(PublicApi, DescribesEveryRouteAndNoOther) {
  MemoryStore store;
  telemetry::Registry registry;
  telemetry::ServiceMetrics metrics(registry);
  telemetry::HeavyHitters keys;
  telemetry::Logger logger({.level = telemetry::LogLevel::kOff});
  service::Engine engine({.store = store, .metrics = metrics, .keys = keys, .logger = logger},
                         nullptr);
  const net::Access access(net::Access::Door::kOpen);
  const PublicApi api({.service = {.engine = engine,
                                   .registry = registry,
                                   .instruments = {.metrics = metrics, .logger = logger},
                                   .health = [] { return Health{}; },
                                   .version = "test"},
                       .clients = {},
                       .access = access,
                       .rls_json = [](const http::Request&, http::Exchange) {}});
  std::set<std::string> routes;
  for (const std::string& route : api.routes()) {
    if (!route.starts_with("* ")) {
      routes.insert(route);
      continue;
    }
    for (const char* method : kMethods) routes.insert(method + route.substr(1));
  }
  EXPECT_GT(routes.size(), 20U);
  EXPECT_EQ(routes, Described());
}

}  // namespace
}  // namespace sluice::api
