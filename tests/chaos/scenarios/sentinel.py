# SPDX-License-Identifier: Apache-2.0
"""The master behind Sentinels dies, or hangs and comes back as if nothing had happened."""

import re
import signal
import time

import support
from harness import Bucket, rule_set, scenario, strays, wait_for_store
from load import Subject, subjects
from support import eventually

LIMIT = Bucket(capacity=50, refill_per_s=5)

# From the master's end to decisions by the new one: a second until Sentinel declares it dead, its
# election, and ours.
BACK_WITHIN_S = 4.0

# These ask only after the failover, so that any record of them is from after it.
LATE_SUBJECTS = [Subject("local", f"late-{number}") for number in range(20)]


@scenario("sentinel-master-killed",
          "by the store again within 4 s; nothing to the old master; no client error")
def master_killed(trial):
    group = trial.sentinels()
    writes = write_commands(group.master)
    failover = Failover(trial, group, group.master.kill)
    # As a supervisor would. Until the Sentinels tell it otherwise, it considers itself the master.
    group.master.restart()
    trial.progress("the old master is back, empty")
    failover.finish()
    asked = failover.old_master.commands & writes
    trial.expect(not asked, f"the old master was asked: {sorted(asked)}")


@scenario("sentinel-master-hangs",
          "by the store again within 4 s; nothing to the old master; no client error")
def master_hangs(trial):
    group = trial.sentinels()
    writes = write_commands(group.master)
    heard = trial.own(support.Process(["redis-cli", "-p", str(group.master.port), "monitor"]))
    eventually(lambda: "OK" in heard.output(), "the monitor listens")
    failover = Failover(trial, group, lambda: group.master.send(signal.SIGSTOP))
    time.sleep(max(0.0, failover.failed + 5.0 - time.monotonic()))
    group.master.send(signal.SIGCONT)
    trial.progress("the old master goes on")
    failover.finish()
    said = re.findall(r'^((\d+\.\d+) \[.*?\] "(\w+)" .*late-.*)$', heard.output(), re.M)
    asked_late = [line for line, when, command in said
                  if command.lower() in writes and float(when) <= failover.old_master.until]
    trial.expect(not asked_late, f"the old master was asked: {asked_late[:3]}")


def write_commands(redis):
    """Everything that may change something."""
    return {"eval", "evalsha", "fcall",
            *redis.cli("command", "list", "filterby", "aclcat", "write").split()}


class OldMaster:
    """What a server did while it considered itself the master: after that, the new one tells it
    what to write."""

    def __init__(self, redis):
        self.redis = redis
        self.commands = set()
        self.until = 0.0  # Wall-clock time.

    def look(self):
        """Whether it still does."""
        now = time.time()
        info = self.redis.cli("info", "replication", "commandstats")
        if "role:master" not in info:
            return False
        self.until = now
        self.commands = set(re.findall(r"^cmdstat_([^:|]+)", info, re.M))
        return True


class Failover:
    """A load during a failure of the master. Once there is a new one, others ask, too."""

    def __init__(self, trial, group, fail):
        self.trial, self.group = trial, group
        service = trial.service([rule_set("local", LIMIT)], "--store", group.uri)
        self.load = trial.load([service], subjects("local", 20), rate=trial.length(1000, 400))
        time.sleep(trial.length(3.0, 0.5))
        self.failed = time.monotonic()
        fail()
        eventually(lambda: group.master_port() == group.replica.port, "a new master is elected")
        trial.measure("elected after", f"{time.monotonic() - self.failed:.2f} s")
        self.load.set_subjects(subjects("local", 20) + LATE_SUBJECTS)
        wait_for_store(self.load)
        self.over = time.monotonic()
        self.old_master = OldMaster(group.master)

    def finish(self):
        trial = self.trial
        if not self.old_master.look():
            trial.measure("not judged", "what the old master was asked: it is a replica already")
        if not trial.short:  # It takes the Sentinels ten seconds.
            eventually(lambda: not self.old_master.look(), "the old master becomes a replica")
            trial.progress("the old master is a replica")
        time.sleep(trial.length(5.0, 1.0))
        records = self.load.stop()
        self.old_master.look()
        trial.expect_answers(self.load, records)
        trial.expect_back(records, self.failed + 0.1, BACK_WITHIN_S)
        trial.expect_bounded(records, LIMIT, extra_bursts=1,
                             outside=strays(records, self.failed, self.over))
