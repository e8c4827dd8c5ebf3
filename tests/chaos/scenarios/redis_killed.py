# SPDX-License-Identifier: Apache-2.0
"""Redis is killed under load and comes back, with or without its data."""

import time
import typing

from harness import (Bucket, Quota, of_rule_set, rule_set, scenario, strays, wait_for,
                     wait_for_store)
from load import subjects

LIMIT = Bucket(capacity=50, refill_per_s=5)
RATE = 1000
PLENTY = Quota(capacity=1_000_000)


@scenario("redis-killed", "answers in time; at most one extra burst per key per loss of state")
def redis_killed(trial):
    kill_and_restart(trial, trial.redis())


@scenario("redis-killed-persistent",
          "answers in time; at most one extra burst per key and outage; no lost count")
def redis_killed_persistent(trial):
    redis = trial.redis("--appendonly", "yes", "--appendfsync", "always")
    service, records = kill_and_restart(trial, redis)
    trial.expect_counted(service, records, "plenty")


def kill_and_restart(trial, redis):
    service = trial.service([rule_set("local", LIMIT), rule_set("plenty", PLENTY)],
                            "--store", redis.uri)
    load = trial.load([service], subjects("local", 10) + subjects("plenty", 10), RATE)
    outages = [outage(trial, load, redis) for _ in range(trial.length(3, 1))]
    time.sleep(trial.length(5.0, 0.5))
    records = load.stop()
    trial.expect_answers(load, records)
    trial.expect_back(records, outages[-1].back, within=3.0)
    for before, this, after in zip([None, *outages], outages, [*outages[1:], None]):
        around = [record for record in of_rule_set(records, "local")
                  if (not before or record.sent > before.over)
                  and (not after or record.answered < after.killed)]
        trial.expect_bounded(around, LIMIT, extra_bursts=1,
                             outside=strays(around, this.killed, this.over))
    return service, records


class Outage(typing.NamedTuple):
    killed: float
    back: float   # Redis is there
    over: float   # and decides


def outage(trial, load, redis):
    time.sleep(trial.length(5.0, 1.0))
    killed = time.monotonic()
    redis.kill()
    wait_for(load, "local", 50, killed)
    time.sleep(trial.length(3.0, 1.0))
    redis.restart()
    back = time.monotonic()
    wait_for_store(load)
    trial.progress("killed and restarted")
    return Outage(killed, back, time.monotonic())
