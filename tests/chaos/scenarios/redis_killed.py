# SPDX-License-Identifier: Apache-2.0
"""Redis is killed under load and comes back, with what it had or without."""

import time

from harness import Bucket, rule_set, scenario, seconds_until_store, wait_for
from load import subjects

LIMIT = Bucket(capacity=50, refill_per_s=5)


@scenario("redis-killed", "answers in time; at most one extra burst per key per loss of state")
def redis_killed(trial):
    kill_and_restart(trial, trial.redis())


@scenario("redis-killed-persistent", "answers in time; at most one extra burst per key and outage")
def redis_killed_persistent(trial):
    kill_and_restart(trial, trial.redis("--appendonly", "yes", "--appendfsync", "always"))


def kill_and_restart(trial, redis):
    service = trial.service([rule_set("local", LIMIT)], "--store", redis.uri)
    load = trial.load([service], subjects("local", 20), rate=trial.length(1000, 400))
    for number in range(trial.length(3, 1)):
        time.sleep(trial.length(5.0, 1.0))
        killed = time.monotonic()
        redis.kill()
        wait_for(load, "local", 50, killed)
        time.sleep(trial.length(3.0, 1.0))
        back = time.monotonic()
        redis.restart()
        wait_for(load, "store", 50, back)
        trial.progress(f"killed and restarted {number + 1}")
    time.sleep(trial.length(5.0, 1.0))
    records = load.stop()
    trial.expect_answers(load, records)
    trial.measure("by the store again", f"{seconds_until_store(records, back):.2f} s after start")
    trial.expect_bounded(records, LIMIT, extra_bursts=1)
