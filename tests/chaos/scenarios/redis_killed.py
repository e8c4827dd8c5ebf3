# SPDX-License-Identifier: Apache-2.0
"""Redis is killed under load and comes back, with what it had or without."""

import time

from harness import Bucket, Quota, of_rule_set, rule_set, scenario, wait_for, wait_for_store
from load import subjects

LIMIT = Bucket(capacity=50, refill_per_s=5)
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
    load = trial.load([service], subjects("local", 20) + subjects("plenty", 20),
                      rate=trial.length(1000, 400))
    for _ in range(trial.length(3, 1)):
        time.sleep(trial.length(5.0, 1.0))
        killed = time.monotonic()
        redis.kill()
        wait_for(load, "local", 50, killed)
        time.sleep(trial.length(3.0, 1.0))
        redis.restart()
        back = time.monotonic()
        wait_for_store(load)
        trial.progress("killed and restarted")
    time.sleep(trial.length(5.0, 0.5))
    records = load.stop()
    trial.expect_answers(load, records)
    trial.expect_back(records, back, within=3.0)
    trial.expect_bounded(of_rule_set(records, "local"), LIMIT, extra_bursts=1)
    return service, records
