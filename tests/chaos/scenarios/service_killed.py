# SPDX-License-Identifier: Apache-2.0
"""The service keeps its state in memory, with snapshots on disk, and is killed; or a snapshot is
damaged meanwhile."""

import os
import pathlib
import time

from harness import Quota, by_subject, rule_set, scenario
from load import BROKEN, subjects
from support import eventually

LIMIT = Quota(capacity=1_000_000)
INTERVAL_S = 1.0


@scenario("service-killed", "a killed service loses at most one interval of its snapshots")
def service_killed(trial):
    snapshot = trial.folder() / "state"
    service = start(trial, snapshot)
    asked = subjects("quota", 10)
    known = {subject: 0 for subject in asked}
    lost_s, lags_s = [], []
    for number in range(trial.length(5, 2)):
        load = trial.load([service], asked, rate=trial.length(1500, 300))
        eventually(lambda: os.path.exists(snapshot), "a snapshot")
        time.sleep(trial.random.uniform(1.5, 3.0) * INTERVAL_S)
        killed = time.monotonic()
        service.kill()
        records = load.stop()
        service.run()
        service.wait_until_up()
        for subject, of_subject in by_subject(records).items():
            kept = used(service, subject) - known[subject]
            lost_s.append(seconds_lost(of_subject, kept, killed))
            known[subject] += kept
        trial.progress(f"killed {number + 1}: lost {max(lost_s):.2f} s so far")
        trial.expect(service.logged("state restored"), "the log does not say what was restored")
        trial.expect_answers(load, records, but={BROKEN})
        lags_s.append(load.lag(1.0))
        load.remove()
    # A snapshot begins an interval after the previous one has ended, as soon as the machine allows.
    bound = INTERVAL_S + trial.length(0.25, 3.0) + (max(lags_s) if trial.short else 0)
    trial.measure("lost", f"at most the last {max(lost_s):.2f} s, of at most {bound:.2f} s")
    trial.expect(max(lost_s) <= bound, f"the last {max(lost_s):.2f} s were lost")


@scenario("snapshot-damaged", "a damaged snapshot is set aside, which is said; it starts empty")
def snapshot_damaged(trial):
    def truncate(content):
        return content[:trial.random.randrange(1, len(content))]

    def flip_a_bit(content):
        flipped = bytearray(content)
        flipped[trial.random.randrange(len(content))] ^= 1 << trial.random.randrange(8)
        return bytes(flipped)

    for damage in [truncate, flip_a_bit, lambda _: b""] * trial.length(10, 1):
        snapshot = pathlib.Path(trial.folder() / "state")
        service = start(trial, str(snapshot))
        for subject in subjects("quota", 100):
            service.check(subject.rule_set, userId=subject.user)
        trial.expect(service.stop() == 0, "it did not end well")
        snapshot.write_bytes(damage(snapshot.read_bytes()))
        service.run()
        service.wait_until_up()
        trial.expect(used(service, subject) == 0, "it did not start empty")
        said = service.logged("the snapshot is damaged and was set aside; starting empty")
        trial.expect(len(said) == 1 and "ERROR" in said[0].upper(), "the log does not say so")
        trial.expect(pathlib.Path(f"{snapshot}.damaged").exists(), "it was not set aside")
        trial.expect(service.stop() == 0 and snapshot.exists(), "the next one was not written")


def start(trial, snapshot):
    return trial.service([rule_set("quota", LIMIT)], "--snapshot", snapshot,
                         "--snapshot-interval", f"{INTERVAL_S * 1000:.0f}ms")


def used(service, subject):
    answer = service.check(subject.rule_set, permits=0, userId=subject.user)
    return LIMIT.capacity - answer.json["remaining"]


def seconds_lost(records, kept, killed):
    """How long before the kill the first forgotten unit was granted. The service may know of more
    units than it answered for: it was killed before it could."""
    granted = [record.answered for record in records if record.allowed]
    return killed - granted[kept] if kept < len(granted) else 0.0
