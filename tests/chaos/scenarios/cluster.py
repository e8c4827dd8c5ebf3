# SPDX-License-Identifier: Apache-2.0
"""A Cluster that loses a master, and one whose slots move."""

import binascii
import time

from harness import (Bucket, Quota, by_subject, of_rule_set, rule_set, scenario, strays, wait_for,
                     wait_for_store)
from load import subjects

LIMIT = Bucket(capacity=50, refill_per_s=5)
SMALL = Quota(capacity=5)
PLENTY = Quota(capacity=1_000_000)

SLOTS_AT_A_TIME = 100

# Slots move while requests wait: what matters here is that each of them is counted once.
PATIENCE_S = 5.0
PATIENT = ("--deadline", "5s", "--breaker-slow-percent", "100", "--breaker-slow-after", "5s")


@scenario("cluster-master-killed",
          "by the store again within 5 s; no lost count; at most one extra burst per key")
def master_killed(trial):
    cluster = trial.cluster()
    service = trial.service([rule_set("local", LIMIT), rule_set("plenty", PLENTY)],
                            "--store", cluster.uri)
    load = trial.load([service], subjects("local", 30) + subjects("plenty", 30),
                      rate=trial.length(1000, 600))
    time.sleep(trial.length(3.0, 0.5))
    killed = time.monotonic()
    cluster.nodes[0].kill()
    wait_for(load, "local", 20, killed)
    trial.progress("killed a master")
    cluster.wait_for_master(cluster.nodes[cluster.MASTERS])
    trial.measure("elected after", f"{time.monotonic() - killed:.2f} s")
    wait_for_store(load)
    over = time.monotonic()
    time.sleep(trial.length(5.0, 0.5))
    records = load.stop()

    trial.expect_answers(load, records)
    trial.expect_back([r for r in records if cluster.first_owner(slot_of(r.subject)) == 0],
                      killed + 0.1, within=5.0)
    trial.expect_bounded(of_rule_set(records, "local"), LIMIT, extra_bursts=1,
                         outside=strays(records, killed, over))
    trial.expect_counted(service, records, "plenty")


@scenario("cluster-resharding", "no lost count; no over-admission; no failure")
def resharding(trial):
    cluster = trial.cluster()
    service = trial.service([rule_set("small", SMALL), rule_set("plenty", PLENTY)],
                            "--store", f"{cluster.uri}?timeout=5s", *PATIENT)
    rounds = trial.length(20, 2)
    load = trial.load([service], movers("small", rounds) + movers("plenty", rounds),
                      rate=trial.length(1000, 400))
    for number in range(rounds):
        took = cluster.move_slots(cluster.nodes[0], cluster.nodes[1 + number % 2], SLOTS_AT_A_TIME)
        trial.progress(f"{SLOTS_AT_A_TIME} slots moved in {took:.1f} s")
        time.sleep(0.5)
    records = load.stop()

    trial.expect_answers(load, records, PATIENCE_S)
    others = {record.source for record in records} - {"store", "deny-cache"}
    trial.expect(not others, f"not only the store decided: {others}")
    trial.expect_counted(service, records, "plenty")
    trial.expect_counted(service, records, "small")
    most = max(sum(record.allowed for record in of_subject)
               for of_subject in by_subject(of_rule_set(records, "small")).values())
    trial.measure("most granted", f"{most} of {SMALL.capacity}")
    trial.expect(most == SMALL.capacity, "a budget was overdrawn, or nobody used one up")


def movers(rule_set_name, rounds):
    """Subjects two thirds of whom move: the tool takes the lowest slots first."""
    every = subjects(rule_set_name, 20_000)
    moving = [s for s in every if slot_of(s) < rounds * SLOTS_AT_A_TIME]
    return moving[:40] + every[:20]


def slot_of(subject):
    return binascii.crc_hqx(f"user:{subject.user}".encode(), 0) % 16384
