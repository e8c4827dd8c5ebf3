// SPDX-License-Identifier: Apache-2.0
#include "api/health.h"

#include <gtest/gtest.h>

namespace sluice::api {
namespace {

std::string Shown(const Health::Store& store) {
  std::string out;
  JsonWriter json(out);
  AppendStore(json, store);
  return out;
}

TEST(Health, ShowsWhatIsKnownOfAStore) {
  EXPECT_EQ(Shown({.kind = "memory"}), R"({"kind":"memory","status":"UP"})");
  EXPECT_EQ(Shown({.kind = "sentinel",
                   .address = "redis-sentinel://s/m",
                   .reachable = false,
                   .breaker = "open",
                   .overloaded = true,
                   .problem = "refused",
                   .masters = {{.address = "a:1", .problem = "refused"}, {.address = "b:2"}}}),
            R"({"kind":"sentinel","status":"DOWN","address":"redis-sentinel://s/m",)"
            R"("breaker":"open","overloaded":true,"problem":"refused",)"
            R"("masters":[{"address":"a:1","status":"DOWN","problem":"refused"},)"
            R"({"address":"b:2","status":"UP"}]})");
}

TEST(Health, ShowsWhatBecameOfSnapshots) {
  Health::Store store{.kind = "memory", .snapshot = Health::Snapshot{}};
  EXPECT_EQ(Shown(store), R"({"kind":"memory","status":"UP","snapshot":{"failures":0}})");
  store.snapshot = {.failures = 2,
                    .saved_at = TimePoint{std::chrono::milliseconds{1'700'000'000'999}},
                    .problem = "no space"};
  EXPECT_EQ(Shown(store), R"({"kind":"memory","status":"UP","snapshot":{"failures":2,)"
                          R"("savedAtSeconds":1700000000,"problem":"no space"}})");
}

TEST(Health, IsReadyOnceItKnowsItsRules) {
  Health health{.store = {.kind = "memory"}};
  EXPECT_TRUE(health.ready());
  health.draining = true;
  EXPECT_FALSE(health.ready());
  health.draining = false;
  health.rules = reload::RulesStatus{.ready = false, .store_works = false};
  EXPECT_FALSE(health.ready());
  health.rules->ready = true;
  EXPECT_TRUE(health.ready() && health.degraded());
}

TEST(Health, ShowsHowTheRulesAre) {
  const auto shown = [](const reload::RulesStatus& rules) {
    std::string out;
    JsonWriter json(out);
    json.BeginObject();
    AppendRulesFields(json, rules);
    json.EndObject();
    return out;
  };
  EXPECT_EQ(shown({}), R"({"status":"UP","rejected":0,"restored":0})");
  EXPECT_EQ(shown({.ready = false, .store_works = false, .problem = "refused"}),
            R"({"status":"DOWN","problem":"refused","rejected":0,"restored":0})");
  EXPECT_EQ(shown({.store_works = false, .problem = "refused", .restored = 2}),
            R"({"status":"DEGRADED","problem":"refused","rejected":0,"restored":2})");
  EXPECT_EQ(shown({.keeps = true, .keep_problem = "no space", .rejected_count = 3}),
            R"({"status":"DEGRADED","rejected":3,"restored":0,"kept":false})");
}

TEST(Health, AClusterThatHasFailedDoesNotWorkEvenIfItAnswers) {
  Health::Store store{.kind = "cluster",
                      .latency = Micros{120},
                      .cluster = Health::Cluster{.state = "ok", .slots_ok = 16384, .masters = 3}};
  EXPECT_TRUE(store.works());
  store.cluster->state = "fail";
  store.cluster->slots_failed = 5461;
  EXPECT_FALSE(store.works());
  EXPECT_EQ(Shown(store),
            R"({"kind":"cluster","status":"DOWN","latencyMicros":120,)"
            R"("cluster":{"state":"fail","slotsOk":16384,"slotsSuspected":0,"slotsFailed":5461,)"
            R"("nodes":0,"masters":3}})");
}

}  // namespace
}  // namespace sluice::api
