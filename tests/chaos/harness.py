# SPDX-License-Identifier: Apache-2.0
"""The building blocks of scenarios: real servers, a load, and bounds that are checked on all
records.

A scenario is a function of a Trial that is registered by @scenario. It starts what it needs through
the trial, which ends it all afterwards, and says what must hold by `expect`.
"""

import collections
import contextlib
import json
import pathlib
import random
import sys
import time
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

# pylint: disable=wrong-import-position
import support
from load import Load
from proxy import Proxy
from servers import Cluster, Sentinels
from support import AGES, eventually, eventually_get

# The service's own default, and one for a machine on which every server may have to wait its turn.
DEADLINE_S = 0.020
PATIENT_DEADLINE_S = 0.200

# How much later than its deadline an answer may come, at the 99th percentile.
GRACE_S = 0.005

# In a short run beside other tests, only hanging answers are too late.
HANGS_S = 2.0

SCENARIOS = {}


class Scenario(typing.NamedTuple):
    name: str
    must_hold: str
    run: typing.Callable


def scenario(name, must_hold):
    def register(function):
        SCENARIOS[name] = Scenario(name, must_hold, function)
        return function
    return register


class Bucket(typing.NamedTuple):
    """A token bucket as a band of a rule."""
    capacity: int
    refill_per_s: int

    @property
    def band(self):
        return {"label": "b", "algorithm": "TOKEN_BUCKET", "capacity": self.capacity,
                "refill": self.refill_per_s, "period": "1s"}


class Quota(typing.NamedTuple):
    """A fixed amount, of which nothing comes back while a scenario runs."""
    capacity: int
    refill_per_s = 0

    @property
    def band(self):
        return {"label": "b", "algorithm": "FIXED_WINDOW", "limit": self.capacity, "window": AGES}


def rule_set(name, limit, on_store_failure="LOCAL"):
    """A rule set of one rule that gives every user a budget."""
    return {"id": name, "rules": [{"id": "r", "scope": "PER_USER", "bands": [limit.band],
                                   "onStoreFailure": on_store_failure}]}


class Trial:
    """One run of one scenario."""

    def __init__(self, short, seed):
        self.short = short
        self.deadline = PATIENT_DEADLINE_S if short else DEADLINE_S
        self.seed = seed
        self.random = random.Random(seed)
        self.failures = []
        self.measured = {}
        self.services = []
        self.begun = time.monotonic()
        self._owned = contextlib.ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._owned.close()

    def own(self, thing):
        """Removes it when the trial is over, in reverse order."""
        self._owned.callback(thing.remove)
        return thing

    def length(self, full, short):
        """An amount that depends on the kind of run."""
        return short if self.short else full

    # --- What is started -------------------------------------------------------------------------

    def folder(self):
        return self.own(support.Folder())

    def redis(self, *arguments, **keywords):
        return self.own(support.Redis(*arguments, **keywords))

    def sentinels(self, down_after_ms=1000):
        return self.own(Sentinels(down_after_ms))

    def cluster(self, node_timeout_ms=2000):
        return self.own(Cluster(node_timeout_ms))

    def proxy(self, port):
        return self.own(Proxy(port))

    def service(self, rule_sets, *arguments, **keywords):
        """One instance with these rule sets."""
        rules = self.folder().write("rules.yaml", json.dumps({"ruleSets": rule_sets}))
        return self.service_of(rules, *arguments, **keywords)

    def service_of(self, rules, *arguments, **keywords):
        """One instance with a rules file. One thread: the machine has other things to do."""
        settings = {"--rules": rules, "--threads": "1"}
        if self.short:
            settings |= {"--deadline": duration(self.deadline),
                         "--breaker-slow-after": duration(self.deadline)}
        flags = [part for name, value in settings.items() if name not in arguments
                 for part in (name, value)]
        service = self.own(support.Service(*flags, *arguments, **keywords))
        self.services.append(service)
        return service

    def load(self, services, subjects, rate):
        """Starts a load on these instances, and waits until the store answers."""
        load = self.own(Load([service.port for service in services], subjects, rate,
                             self.random.getrandbits(32)))
        wait_for(load, "store", 20, time.monotonic())
        return load

    # --- What is said ----------------------------------------------------------------------------

    def progress(self, text):
        print(f"  {time.monotonic() - self.begun:6.1f} s  {text}", flush=True)

    def measure(self, name, value):
        """A figure for the summary; several with one name are shown side by side."""
        self.measured[name] = f"{self.measured[name]}; {value}" if name in self.measured else value
        self.progress(f"{name}: {value}")

    def expect(self, holds, text):
        """What must hold. The scenario goes on, so that all failures are seen."""
        if not holds:
            self.failures.append(text)
            self.progress(f"FAILED: {text}")

    # --- What must hold of every scenario's answers ----------------------------------------------

    def expect_answers(self, load, records, deadline=None, but=()):
        """Every request was decided (except for the named errors), and in time."""
        outcomes = collections.Counter(record.outcome for record in records)
        self.measure("answers", ", ".join(f"{count} {name}" for name, count
                                          in sorted(outcomes.items())))
        errors = {record.error for record in records} - {"", *but}
        self.expect(not errors, f"requests failed: {sorted(errors)}")
        self.expect_in_time(load, records, deadline or self.deadline)

    def expect_in_time(self, load, records, deadline):
        took = sorted(record.took for record in records)
        p50, p99, most = (percentile(took, share) for share in (0.5, 0.99, 1.0))
        noise = load.lag()
        self.measure("answered after", f"p50 {millis(p50)}, p99 {millis(p99)}, most {millis(most)} "
                                       f"(generator late by {millis(noise)} at p99)")
        if self.short:
            # While the load generator is stalled, it does not see answers, either.
            bound = max(HANGS_S, 2 * deadline) + load.lag(1.0)
            self.expect(most <= bound, f"an answer took {millis(most)}, more than {millis(bound)}")
        elif noise > GRACE_S:
            self.measure("not judged", "how long answers took: the machine was too busy to tell")
        else:
            bound = deadline + GRACE_S
            self.expect(p99 <= bound, f"p99 is {millis(p99)}, more than {millis(bound)}")

    def expect_back(self, records, event, within):
        """The store decided again soon after an event."""
        back = seconds_until_store(records, event)
        self.measure("by the store again", "never" if back is None else f"{back:.2f} s later")
        self.expect(back is not None, "the store never decided again")
        # A busy machine delays elections and probes, which is not our fault.
        if back is not None and not self.short:
            self.expect(back <= within, f"the store decided again only after {back:.1f} s")

    def expect_bounded(self, records, limit, extra_bursts=0, outside=()):
        """No subject was ever granted more than its budget, what flowed back, and this many budgets
        more. Grants outside the outage, by the policy because a healthy store missed a deadline,
        come on top: each is its own outage."""
        bound = limit.capacity * (1 + extra_bursts)
        on_top = collections.Counter(record.subject for record in outside if record.allowed)
        bursts = {subject: worst_burst(of_subject, limit.refill_per_s) - on_top[subject]
                  for subject, of_subject in by_subject(records).items()}
        worst = max(bursts.values(), default=0.0)
        self.measure("worst burst", f"{worst:.0f} of {limit.capacity} (at most {bound})")
        self.expect(worst <= bound, f"a budget of {limit.capacity} granted {worst:.1f} at once")

    def expect_counted(self, service, records, rule_set_name):
        """What was granted was taken from the budgets in the store, once; only requests of which
        nobody knows whether they were charged may or may not have been. The rule set is LOCAL and
        its limit a Quota."""
        eventually(lambda: service.metric("sluice_guard_in_flight") == 0
                   and local_units(service, "granted") == sum(
                       local_units(service, state) for state in SETTLED), "all is reported")
        unknown = int(local_units(service, "dropped")
                      + service.metric("sluice_redis_unanswered_total"))
        granted = used = wrong = 0
        for subject, of_subject in by_subject(of_rule_set(records, rule_set_name)).items():
            answered = sum(record.allowed for record in of_subject)
            taken = used_in_store(service, subject)
            granted, used, wrong = (granted + answered, used + taken,
                                    wrong + abs(answered - taken))
        self.measure("counted", f"{used} of {granted} granted; {unknown} unknown")
        self.expect(wrong <= unknown, f"{wrong} units are not counted once")


# What happens to units that were granted locally.
SETTLED = ("reported", "recovered", "charged", "dropped")


def local_units(service, state):
    return service.metric("sluice_local_units_total", state=state)


def used_in_store(service, subject):
    """What was taken from a subject's budget, according to the store."""
    answer = eventually_get(
        lambda: service.check(subject.rule_set, permits=0, userId=subject.user).json,
        lambda answer: answer.get("source") in ("store", "deny-cache"), "an answer by the store")
    return answer["limit"] - answer["remaining"]


def wait_for(load, outcome, count, since):
    """Waits until this many requests sent after a time had an outcome."""
    eventually(lambda: load.outcomes(since)[outcome] >= count, f"{count} answers by {outcome}")


def wait_for_store(load):
    """Waits until only the store decides, for half a second."""
    def only_the_store():
        outcomes = load.outcomes(time.monotonic() - 0.5)
        return outcomes["store"] >= 10 and outcomes.keys() <= {"store", "deny-cache"}
    eventually(only_the_store, "only the store decides")


def strays(records, begin, end):
    """What was decided locally outside an outage."""
    return [record for record in records
            if record.source in ("local", "overload") and not begin <= record.answered <= end]


def of_rule_set(records, name):
    return [record for record in records if record.subject.rule_set == name]


def by_subject(records):
    grouped = collections.defaultdict(list)
    for record in records:
        grouped[record.subject].append(record)
    return grouped


def worst_burst(records, refill_per_s):
    """The most that was granted over any interval, less what flowed back during it. Records are in
    the order of their answers. A decision was made somewhere between sending and answer, so an
    interval may have been longer than that of its answers by the longest time one took."""
    allowed = [record for record in records if record.allowed]
    if not allowed:
        return 0.0
    level = worst = 0.0
    last = allowed[0].answered
    for record in allowed:
        level = max(0.0, level - refill_per_s * (record.answered - last)) + 1
        last = record.answered
        worst = max(worst, level)
    return worst - refill_per_s * max(record.took for record in allowed)


def percentile(ordered, share):
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def duration(seconds):
    """In the form of a setting."""
    return f"{seconds * 1000:.0f}ms"


def millis(seconds):
    return f"{seconds * 1000:.1f} ms"


def seconds_until_store(records, event, count=20):
    """How long after an event the store decided again for good: from then on, `count` answers in a
    row came from it. None if that never happened."""
    row = 0
    for record in records:
        if record.sent < event or record.outcome == "deny-cache":
            continue
        row = row + 1 if record.outcome == "store" else 0
        if row == 1:
            begun = record.answered
        if row == count:
            return begun - event
    return None
