# SPDX-License-Identifier: Apache-2.0
"""Instances come and go, gracefully or not, while they share limits through one Redis."""

import time

from harness import Quota, by_subject, rule_set, scenario
from load import BROKEN, subjects
from support import eventually

# A key's quota is used up within the run, so all of it must have been granted.
LIMIT = Quota(capacity=500)


@scenario("instances", "two, then five instances come and go: together the limit, and never more")
def instances(trial):
    redis = trial.redis()
    rules = [rule_set("quota", LIMIT, on_store_failure="FAIL_CLOSED")]

    def start():
        return trial.service(rules, *redis.patient_store())

    running = [start(), start()]
    asked = subjects("quota", trial.length(40, 4))
    load = trial.load(running, asked, rate=trial.length(1200, 400))

    def share_out():
        load.set_ports([service.port for service in running])

    def leave():
        """As behind a load balancer: it gets no more requests before it is asked to end."""
        service = running.pop(trial.random.randrange(len(running)))
        share_out()
        trial.expect(service.stop() == 0, "an instance did not end well")

    def die():
        running.pop(trial.random.randrange(len(running))).kill()
        share_out()

    def come():
        running.append(start())
        share_out()

    stay_s = trial.length(1.5, 0.3)
    for instances_max in (2, 5):
        while len(running) < instances_max:
            come()
        for change in trial.length(3, 1) * [leave, come, die, come]:
            time.sleep(stay_s)
            change()
        trial.progress(f"with {instances_max} instances")
    time.sleep(stay_s)
    eventually(lambda: all(remaining(running[0], subject) == 0 for subject in asked),
               "all quotas are used up")
    records = load.stop()
    trial.expect_answers(load, records, but={BROKEN})
    granted, broken = [], []
    for of_subject in by_subject(records).values():
        granted.append(sum(record.allowed for record in of_subject))
        broken.append(sum(record.error == BROKEN for record in of_subject))
    in_all = LIMIT.capacity * len(asked)
    trial.measure("granted", f"{sum(granted)} of {in_all} ({sum(granted) / in_all:.2%}), most to "
                             f"one key {max(granted)} of {LIMIT.capacity}; {sum(broken)} broken")
    trial.expect(max(granted) <= LIMIT.capacity, "more than the limit was granted")
    # Only what a killed instance had taken and not yet answered may be missing. Apart from that,
    # the count is exact, not just within 1 %.
    trial.expect(all(LIMIT.capacity <= took + lost for took, lost in zip(granted, broken)),
                 f"less than the limits was granted: {granted}, broken {broken}")


def remaining(service, subject):
    return service.check(subject.rule_set, permits=0, userId=subject.user).json["remaining"]
