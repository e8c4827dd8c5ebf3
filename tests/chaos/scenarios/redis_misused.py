# SPDX-License-Identifier: Apache-2.0
"""What operators and neighbours do to a Redis: flush its scripts, kill its clients, fill it up."""

import collections
import time

from harness import Quota, rule_set, scenario, wait_for, wait_for_store
from load import subjects

PLENTY = Quota(capacity=1_000_000)

# What each policy may answer while the store fails. An error is a 503, never a denial.
BY_POLICY = {
    "FAIL_OPEN": {"store", "fail-open", "overload"},
    "FAIL_CLOSED": {"store", "UNAVAILABLE", "OUTCOME_UNKNOWN", "STORE_FULL"},
    "LOCAL": {"store", "local", "overload"},
}


@scenario("script-flush", "no failed decision")
def script_flush(trial):
    redis = trial.redis()
    # So that the policy decides only because of a failure.
    service = trial.service([rule_set("closed", PLENTY, "FAIL_CLOSED")], *redis.patient_store())
    load = trial.load([service], subjects("closed", 100), rate=trial.length(1000, 400))
    for _ in range(trial.length(20, 4)):
        redis.cli("function", "flush")
        redis.cli("script", "flush")
        time.sleep(1.0)
    records = load.stop()
    trial.expect_answers(load, records)
    loads = service.metric("sluice_redis_script_loads_total")
    trial.measure("script loaded", f"{loads:.0f} times")
    trial.expect(loads >= trial.length(20, 4), "the functions were not flushed")
    trial.expect({record.outcome for record in records} == {"store"}, "a decision failed")


@scenario("client-kill", "failures have a type, and the policy answers")
def client_kill(trial):
    redis = trial.redis()
    service, load = load_of_every_policy(trial, redis)
    at_first = service.metric("sluice_redis_connects_total")
    begun = time.monotonic()
    killed = 0
    while time.monotonic() < begun + trial.length(20.0, 4.0):
        # Its own connection is skipped.
        killed += int(redis.cli("client", "kill", "type", "normal"))
        time.sleep(0.1)
    healed = time.monotonic()
    wait_for_store(load)
    records = load.stop()
    expect_policies(trial, load, records)
    made = service.metric("sluice_redis_connects_total") - at_first
    trial.measure("connections", f"{killed} killed, {made:.0f} made")
    trial.expect(min(killed, made) >= trial.length(20, 4), "hardly anybody was killed")
    by_store = sum(record.source == "store" for record in records if begun < record.sent < healed)
    trial.measure("by the store meanwhile", by_store)
    trial.expect(by_store > 0, "the store never decided while clients were killed")


@scenario("maxmemory", "failures have a type; nobody passes undecided; nothing is charged")
def maxmemory(trial):
    redis = trial.redis("--maxmemory-policy", "noeviction")
    service, load = load_of_every_policy(trial, redis)
    redis.cli("config", "set", "maxmemory", "1")
    full_from = time.monotonic()
    for outcome in ("STORE_FULL", "overload"):
        wait_for(load, outcome, 3, full_from)
    time.sleep(trial.length(10.0, 1.0))
    full_until = time.monotonic()
    redis.cli("config", "set", "maxmemory", "0")
    wait_for_store(load)
    records = load.stop()
    expect_policies(trial, load, records)
    codes = collections.Counter(r.error for r in records if r.error)
    trial.measure("errors", dict(codes))
    trial.expect(all(r.source != "store" for r in records
                     if full_from < r.sent and r.answered < full_until),
                 "the store decided while it was full")
    trial.expect("fail-open" not in {record.outcome for record in records},
                 "the full store let requests pass")
    trial.expect_counted(service, records, "LOCAL")


def load_of_every_policy(trial, redis):
    service = trial.service([rule_set(policy, PLENTY, policy) for policy in BY_POLICY],
                            "--store", redis.uri)
    asked_about = [s for policy in BY_POLICY for s in subjects(policy, 30)]
    return service, trial.load([service], asked_about, rate=trial.length(1000, 400))


def expect_policies(trial, load, records):
    trial.expect_answers(load, records, but=BY_POLICY["FAIL_CLOSED"])
    for policy, may in BY_POLICY.items():
        outcomes = {r.outcome for r in records if r.subject.rule_set == policy}
        trial.expect(outcomes <= may, f"{policy} answered {sorted(outcomes - may)}")
    statuses = {r.status for r in records}
    trial.expect(statuses <= {200, 503}, f"an outage was reported as {sorted(statuses)}")
