# SPDX-License-Identifier: Apache-2.0
"""A network to Redis that swallows everything, and one that is slow."""

import time

from harness import (DEADLINE_S, Quota, duration, millis, percentile, rule_set, scenario,
                     wait_for, wait_for_store)
from load import subjects
from support import eventually

PLENTY = Quota(capacity=1_000_000)
CLOSED, OPEN = 0, 2


@scenario("black-hole", "the deadline holds; the breaker opens; it recovers by itself")
def black_hole(trial):
    proxy = trial.proxy(trial.redis().port)
    service = trial.service([rule_set("local", PLENTY)], "--store",
                            f"redis://127.0.0.1:{proxy.port}")
    load = trial.load([service], subjects("local", 100), rate=trial.length(1000, 400))
    time.sleep(trial.length(5.0, 0.5))
    proxy.black_hole()
    swallowed = time.monotonic()
    eventually(lambda: service.metric("sluice_breaker_state") == OPEN, "the breaker opens")
    opened = time.monotonic()
    trial.measure("breaker open after", millis(opened - swallowed))
    wait_for(load, "local", 20, swallowed)  # Silence is an outage, once it has lasted.
    time.sleep(trial.length(30.0, 3.0))
    healed = time.monotonic()
    proxy.heal()
    wait_for_store(load)
    eventually(lambda: service.metric("sluice_breaker_state") == CLOSED, "the breaker closes")
    time.sleep(trial.length(5.0, 0.5))
    records = load.stop()

    trial.expect_answers(load, records)
    for name, begin, end in (("until it opened", swallowed, opened), ("then", opened, healed)):
        took = sorted(r.took for r in records if begin <= r.sent < end)
        trial.measure(name, f"p50 {millis(percentile(took, 0.5))}, "
                            f"p99 {millis(percentile(took, 0.99))}")
    trial.expect_back(records, healed, within=3.0)
    hole = [r for r in records if swallowed + trial.deadline < r.sent and r.answered < healed]
    # Until nothing has been heard for a while, Redis might only be slow.
    trial.expect({r.source for r in hole} <= {"local", "overload"},
                 "somebody answered from the black hole")


@scenario("redis-slow", "the breaker does what it is set to, without flapping")
def redis_slow(trial):
    # For the defaults; in a short run all of them are longer.
    scale = trial.deadline / DEADLINE_S
    proxy = trial.proxy(trial.redis().port)
    service = trial.service(
        [rule_set("local", PLENTY)], "--store", f"redis://127.0.0.1:{proxy.port}",
        "--breaker-slow-after", duration(0.75 * trial.deadline))
    load = trial.load([service], subjects("local", 100), rate=trial.length(1000, 400))
    for delay_ms, opens in ((5, False), (17, True), (20, True), (100, True)):
        slow_period(trial, service, load, proxy, delay_ms * scale / 1000, opens)
    records = load.stop()
    trial.expect_answers(load, records)


def slow_period(trial, service, load, proxy, delay, opens):
    before = transitions(service)
    proxy.delay(delay)
    begun = time.monotonic()
    if opens:
        eventually(lambda: transitions(service)["open"] > before["open"], "the breaker opens")
    time.sleep(trial.length(10.0, 1.0))
    meanwhile = transitions(service)
    by_whom = load.outcomes(begun)
    proxy.delay(0)
    wait_for_store(load)
    after = transitions(service)

    changes = {to: meanwhile[to] - before[to] for to in before}
    trial.measure(f"{millis(delay)} late", f"{changes['open']} to open, {changes['closed']} to "
                  f"closed; {by_whom['store']} by the store, "
                  f"{by_whom['overload'] + by_whom['local']} locally")
    if load.lag(1.0) > trial.deadline:
        trial.measure("not judged", "the breaker: the machine stood still longer than a deadline")
        return
    trial.expect(changes["closed"] == 0, "the breaker closed while Redis was slow")
    trial.expect((changes["open"] > 0) == opens, "the breaker is not in the state it is set to")
    trial.expect(after["closed"] - meanwhile["closed"] == (1 if opens else 0),
                 "the breaker closed and opened again after Redis was well")


def transitions(service):
    return {to: int(service.metric("sluice_breaker_transitions_total", to=to))
            for to in ("open", "closed")}
