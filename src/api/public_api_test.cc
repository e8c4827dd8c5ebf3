// SPDX-License-Identifier: Apache-2.0
#include "api/public_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>
#include <string>

#include "api/admin_api.h"
#include "api/assets.h"
#include "reload/rule_set_store.h"
#include "sluice/memory_store.h"
#include "telemetry/heavy_hitters.h"

namespace sluice::api {
namespace {

// All methods that OpenAPI can describe: those of a path with any method.
constexpr const char* kMethods[] = {"GET",     "PUT",  "POST",  "DELETE",
                                    "OPTIONS", "HEAD", "PATCH", "TRACE"};

enum class Listener { kPublic, kAdmin };

// The operations of a listener; only those of the admin API name theirs.
std::set<std::string> Described(Listener listener) {
  std::set<std::string> all;
  const boost::json::value document = boost::json::parse(kOpenApi);
  for (const auto& [path, item] : document.at("paths").as_object()) {
    const boost::json::object& operations = item.as_object();
    if (operations.contains("servers") != (listener == Listener::kAdmin)) continue;
    for (const auto& [method, operation] : operations) {
      if (method == "servers") continue;
      std::string upper = method;
      for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      all.insert(upper + " " + std::string(path));
    }
  }
  return all;
}

class Routes : public testing::Test {
 protected:
  MemoryStore store_;
  telemetry::Registry registry_;
  service::ServiceMetrics metrics_{registry_};
  telemetry::HeavyHitters keys_;
  telemetry::Logger logger_{{.level = telemetry::LogLevel::kOff}};
  service::Engine engine_{{.store = store_, .metrics = metrics_, .keys = keys_, .logger = logger_},
                          nullptr};
  const net::Access access_{net::Access::Door::kOpen};
};

TEST_F(Routes, OfThePublicApiAreDescribedAndNoOther) {
  const PublicApi api({.service = {.engine = engine_,
                                   .registry = registry_,
                                   .instruments = {.metrics = metrics_, .logger = logger_},
                                   .health = [] { return Health{}; },
                                   .version = "test"},
                       .clients = {},
                       .access = access_,
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
  EXPECT_EQ(routes, Described(Listener::kPublic));
}

TEST_F(Routes, OfTheAdminApiAreDescribedAndNoOther) {
  reload::ProcessRuleSetStore managed;
  reload::Keeper keeper({.places = {}, .publish = [](auto) {}},
                        {.managed = managed, .logger = logger_, .metrics = metrics_});
  const AdminApi api({.engine = engine_,
                      .keeper = keeper,
                      .keys = keys_,
                      .instruments = {.metrics = metrics_, .logger = logger_},
                      .health = [] { return Health{}; },
                      .reload = [](reload::Keeper::Done) {},
                      .guard_status = [] { return std::string("null"); },
                      .access = access_});
  const auto routes = api.routes();
  EXPECT_EQ(std::set(routes.begin(), routes.end()), Described(Listener::kAdmin));
}

}  // namespace
}  // namespace sluice::api
