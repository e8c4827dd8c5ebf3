// SPDX-License-Identifier: Apache-2.0
#include "api/health.h"

#include <chrono>

namespace sluice::api {

void AppendStore(JsonWriter& json, const Health::Store& store) {
  json.BeginObject().Field("kind", store.kind);
  json.Field("status", store.works() ? "UP" : "DOWN");
  if (!store.address.empty()) json.Field("address", store.address);
  if (store.latency) json.Field("latencyMicros", store.latency->count());
  if (!store.breaker.empty()) json.Field("breaker", store.breaker);
  if (!store.breaker_reason.empty()) json.Field("breakerReason", store.breaker_reason);
  if (store.overloaded) json.Field("overloaded", true);
  if (!store.problem.empty()) json.Field("problem", store.problem);
  if (!store.masters.empty()) {
    json.Key("masters").BeginArray();
    for (const Health::Master& master : store.masters) {
      json.BeginObject().Field("address", master.address);
      json.Field("status", master.problem.empty() ? "UP" : "DOWN");
      if (!master.problem.empty()) json.Field("problem", master.problem);
      json.EndObject();
    }
    json.EndArray();
  }
  if (store.cluster) {
    json.Key("cluster").BeginObject().Field("state", store.cluster->state);
    json.Field("slotsOk", store.cluster->slots_ok);
    json.Field("slotsSuspected", store.cluster->slots_suspected);
    json.Field("slotsFailed", store.cluster->slots_failed);
    json.Field("nodes", store.cluster->nodes).Field("masters", store.cluster->masters);
    json.EndObject();
  }
  if (store.snapshot) {
    json.Key("snapshot").BeginObject().Field("failures", store.snapshot->failures);
    if (store.snapshot->saved_at) {
      json.Field("savedAtSeconds",
                 std::chrono::floor<std::chrono::seconds>(*store.snapshot->saved_at)
                     .time_since_epoch()
                     .count());
    }
    if (!store.snapshot->problem.empty()) json.Field("problem", store.snapshot->problem);
    json.EndObject();
  }
  json.EndObject();
}

void AppendReload(JsonWriter& json, const Health::Reload& reload) {
  json.BeginObject().Field("status", reload.problems.empty() ? "UP" : "DEGRADED");
  if (reload.good_at) {
    json.Field(
        "lastSuccessSeconds",
        std::chrono::floor<std::chrono::seconds>(*reload.good_at).time_since_epoch().count());
  }
  json.Key("problems").BeginArray();
  for (const std::string& problem : reload.problems) json.String(problem);
  json.EndArray().EndObject();
}

void AppendRulesFields(JsonWriter& json, const reload::RulesStatus& rules) {
  json.Field("status", !rules.ready ? "DOWN" : rules.degraded() ? "DEGRADED" : "UP");
  if (!rules.problem.empty()) json.Field("problem", rules.problem);
  json.Field("rejected", rules.rejected_count).Field("restored", rules.restored);
  if (rules.keeps) json.Field("kept", rules.keep_problem.empty());
}

}  // namespace sluice::api
