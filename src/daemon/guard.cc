// SPDX-License-Identifier: Apache-2.0
#include "daemon/guard.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/json_writer.h"

namespace sluice::daemon {
namespace {

using State = GuardedStore::BreakerState;
using Reason = GuardedStore::Reason;
using Stats = GuardedStore::Stats;
using enum telemetry::Registry::Type;

// An outage gets one line when it begins and one when it ends; the attempts in between, several a
// second, are logged at a lower level.
telemetry::LogLevel LevelOf(const GuardedStore::Transition& transition) {
  if (transition.from == State::kClosed) return telemetry::LogLevel::kWarn;
  if (transition.to == State::kClosed) return telemetry::LogLevel::kInfo;
  return telemetry::LogLevel::kDebug;
}

void LogTransition(telemetry::Logger& logger, const GuardedStore::Transition& transition) {
  logger.Log(
      LevelOf(transition), "circuit breaker",
      {{"from", ToString(transition.from)},
       {"to", ToString(transition.to)},
       {"number", transition.number},
       {"reason", ToString(transition.reason)},
       {"calls", transition.calls},
       {"failures", transition.failures},
       {"slow", transition.slow},
       {"open_us", transition.open_for.count()},
       {"error", transition.last_failure ? transition.last_failure->message : std::string_view{}}});
}

void LogOverload(telemetry::Logger& logger, const GuardedStore::OverloadChange& change) {
  if (change.begins) {
    return logger.Log(telemetry::LogLevel::kWarn, "the store answers but cannot keep up",
                      {{"number", change.number}});
  }
  logger.Log(telemetry::LogLevel::kInfo, "the store keeps up again",
             {{"number", change.number},
              {"decided_without_it", change.decisions},
              {"lasted_us", change.lasted.count()}});
}

// The value of the gauge.
int NumberOf(State state) {
  switch (state) {
    case State::kClosed:
      return 0;
    case State::kHalfOpen:
      return 1;
    case State::kOpen:
      break;
  }
  return 2;
}

void AddBreakerMetrics(telemetry::Registry& registry, const GuardedStore& guard) {
  registry.AddCallback(
      kGauge, "sluice_breaker_state", "Circuit breaker: 0 closed, 1 half open, 2 open.", {},
      [&guard] { return static_cast<double>(NumberOf(guard.GetStatus().breaker)); });
  const auto count = [&](std::string_view name, std::string_view help,
                         const telemetry::Labels& labels, const std::vector<Reason>& reasons) {
    registry.AddCallback(kCounter, name, help, labels, [&guard, reasons] {
      std::int64_t sum = 0;
      const auto counts = guard.GetStats().transitions_by_reason;
      for (const Reason reason : reasons) sum += counts[static_cast<std::size_t>(reason)];
      return static_cast<double>(sum);
    });
  };
  constexpr std::string_view kTransitions = "sluice_breaker_transitions_total";
  constexpr std::string_view kTransitionsHelp = "Changes of the circuit breaker, by the new state.";
  const std::vector<Reason> opening = {Reason::kFailures, Reason::kSlowCalls, Reason::kProbeFailed};
  count(kTransitions, kTransitionsHelp, {{"to", "closed"}}, {Reason::kProbesSucceeded});
  count(kTransitions, kTransitionsHelp, {{"to", "half_open"}}, {Reason::kOpenTimeOver});
  count(kTransitions, kTransitionsHelp, {{"to", "open"}}, opening);
  for (const Reason reason : opening) {
    count("sluice_breaker_opened_total", "How often the circuit breaker opened, by why.",
          {{"reason", std::string(ToString(reason))}}, {reason});
  }
}

}  // namespace

GuardedStore::Options GuardOptions(const config::Settings& settings, telemetry::Logger& logger,
                                   const Clock& clock) {
  const config::Settings::Guard& guard = settings.guard;
  GuardedStore::Options options;
  options.deadline = guard.deadline;
  options.in_flight_max = static_cast<std::size_t>(guard.in_flight_max);
  options.on_overload = guard.on_overload;
  options.breaker.window = guard.window;
  options.breaker.minimum_calls = guard.calls_min;
  options.breaker.failure_percent = guard.failure_percent;
  options.breaker.slow_percent = guard.slow_percent;
  options.breaker.slow_after = guard.slow_after;
  options.breaker.open_min = guard.open_min;
  options.breaker.open_max = guard.open_max;
  options.breaker.probe_deadline = guard.deadline;
  options.instances = std::max<std::int64_t>(guard.instances, 1);
  options.local = {.clock = &clock,
                   .keys_max = settings.memory.keys_max,
                   .log_entries_max = settings.memory.log_entries_max};
  options.deny_cache_entries = static_cast<std::size_t>(guard.deny_cache_entries);
  options.deny_cache_trust = guard.deny_cache_trust;
  options.on_transition = [&logger](const GuardedStore::Transition& transition) {
    LogTransition(logger, transition);
  };
  options.on_overload_change = [&logger](const GuardedStore::OverloadChange& change) {
    LogOverload(logger, change);
  };
  return options;
}

void AddGuardMetrics(telemetry::Registry& registry, const GuardedStore& guard) {
  AddBreakerMetrics(registry, guard);
  const auto add = [&](telemetry::Registry::Type type, std::string_view name, std::string_view help,
                       const telemetry::Labels& labels, std::int64_t Stats::* field) {
    registry.AddCallback(type, name, help, labels,
                         [&guard, field] { return static_cast<double>(guard.GetStats().*field); });
  };
  add(kGauge, "sluice_guard_in_flight", "Decisions that wait for the store.", {},
      &Stats::in_flight);
  constexpr std::string_view kBypassed = "sluice_guard_bypassed_total";
  constexpr std::string_view kBypassedHelp = "Decisions that policy made, by why.";
  add(kCounter, kBypassed, kBypassedHelp, {{"reason", "deadline"}}, &Stats::deadline_misses);
  add(kCounter, kBypassed, kBypassedHelp, {{"reason", "failure"}}, &Stats::store_failures);
  add(kCounter, kBypassed, kBypassedHelp, {{"reason", "breaker"}}, &Stats::breaker_rejections);
  add(kCounter, kBypassed, kBypassedHelp, {{"reason", "in_flight"}}, &Stats::in_flight_rejections);
  constexpr std::string_view kOverload = "sluice_overload_decisions_total";
  constexpr std::string_view kOverloadHelp =
      "Of these, while the store answered but could not keep up.";
  add(kCounter, kOverload, kOverloadHelp, {{"reason", "deadline"}}, &Stats::overload_deadline);
  add(kCounter, kOverload, kOverloadHelp, {{"reason", "breaker_slow"}}, &Stats::overload_breaker);
  add(kCounter, kOverload, kOverloadHelp, {{"reason", "in_flight"}}, &Stats::overload_in_flight);
  add(kCounter, kOverload, kOverloadHelp, {{"reason", "store_full"}}, &Stats::overload_full);
  add(kCounter, "sluice_overloads_total", "How often the store began not to keep up.", {},
      &Stats::overloads);
  registry.AddCallback(kGauge, "sluice_overloaded",
                       "1 while the store answers but cannot keep up, and 5 s after.", {},
                       [&guard] { return guard.GetStatus().overloaded ? 1.0 : 0.0; });
  constexpr std::string_view kLate = "sluice_guard_late_answers_total";
  constexpr std::string_view kLateHelp = "Answers of the store after their deadline.";
  add(kCounter, kLate, kLateHelp, {{"outcome", "charged"}}, &Stats::late_charged);
  add(kCounter, kLate, kLateHelp, {{"outcome", "not_charged"}}, &Stats::late_not_charged);
  add(kCounter, kLate, kLateHelp, {{"outcome", "unknown"}}, &Stats::late_unknown);
  constexpr std::string_view kUnits = "sluice_local_units_total";
  constexpr std::string_view kUnitsHelp = "Units granted locally, and what became of them.";
  add(kCounter, kUnits, kUnitsHelp, {{"state", "granted"}}, &Stats::local_units);
  add(kCounter, kUnits, kUnitsHelp, {{"state", "reported"}}, &Stats::reported_units);
  add(kCounter, kUnits, kUnitsHelp, {{"state", "recovered"}}, &Stats::recovered_units);
  add(kCounter, kUnits, kUnitsHelp, {{"state", "charged"}}, &Stats::charged_units);
  add(kCounter, kUnits, kUnitsHelp, {{"state", "dropped"}}, &Stats::dropped_units);
  add(kGauge, "sluice_local_unreported_states", "States whose local consumption is to be reported.",
      {}, &Stats::states_to_report);
  constexpr auto kSettles = "sluice_guard_settles_total";
  constexpr auto kSettlesHelp = "Settles of holds that Redis could not be told at once.";
  add(kCounter, kSettles, kSettlesHelp, {{"state", "kept"}}, &Stats::settles_kept);
  add(kCounter, kSettles, kSettlesHelp, {{"state", "sent"}}, &Stats::settles_sent);
  add(kCounter, kSettles, kSettlesHelp, {{"state", "dropped"}}, &Stats::settles_dropped);
  add(kGauge, "sluice_guard_settles_waiting", "Settles of holds that Redis is to be told.", {},
      &Stats::settles_waiting);
  add(kGauge, "sluice_local_holds", "Live holds on local shares.", {}, &Stats::local_holds);
  add(kGauge, "sluice_local_keys", "Keys whose local share was taken from.", {},
      &Stats::local_keys);
  add(kGauge, "sluice_deny_cache_entries",
      "Entries of the deny cache in use, those included that are over.", {},
      &Stats::deny_cache_entries);
  add(kGauge, "sluice_deny_cache_bytes", "Memory of the deny cache.", {}, &Stats::deny_cache_bytes);
  registry.AddCallback(kGauge, "sluice_guard_instances",
                       "Instances that share a limit under LOCAL.", {},
                       [&guard] { return static_cast<double>(guard.GetStatus().instances); });
}

std::string GuardStatus(const GuardedStore& guard) {
  const GuardedStore::Status status = guard.GetStatus();
  const Stats stats = guard.GetStats();
  std::string out;
  JsonWriter json(out);
  json.BeginObject().Field("breaker", ToString(status.breaker));
  json.Field("overloaded", status.overloaded);
  json.Field("instances", status.instances);
  if (const auto& last = status.last_transition) {
    json.Key("lastTransition").BeginObject();
    json.Field("from", ToString(last->from)).Field("to", ToString(last->to));
    json.Field("reason", ToString(last->reason)).Field("number", last->number);
    json.Field("calls", last->calls).Field("failures", last->failures).Field("slow", last->slow);
    if (last->last_failure) json.Field("error", last->last_failure->message);
    json.EndObject();
  }
  if (status.last_failure) json.Field("lastFailure", status.last_failure->message);
  json.Field("inFlight", stats.in_flight).Field("abandoned", stats.abandoned);
  json.Field("deadlineMisses", stats.deadline_misses);
  json.Field("storeFailures", stats.store_failures);
  json.Field("breakerRejections", stats.breaker_rejections);
  json.Field("inFlightRejections", stats.in_flight_rejections);
  json.Field("failedClosed", stats.failed_closed).Field("failedOpen", stats.failed_open);
  json.Field("localAllowed", stats.local_allowed).Field("localDenied", stats.local_denied);
  json.Field("overloads", stats.overloads);
  json.Field("overloadAllowed", stats.overload_allowed);
  json.Field("overloadDenied", stats.overload_denied);
  json.Field("knownDenied", stats.known_denied);
  json.Field("statesToReport", stats.states_to_report);
  json.Field("settlesToSend", stats.settles_waiting);
  json.Field("localHolds", stats.local_holds);
  json.Field("denyCacheEntries", stats.deny_cache_entries);
  json.Field("denyCacheHits", stats.deny_cache_hits).EndObject();
  return out;
}

}  // namespace sluice::daemon
