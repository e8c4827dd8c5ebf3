# SPDX-License-Identifier: Apache-2.0
"""Ten thousand clients want the slots of one concurrency limit; half of them are killed while they
hold some."""

import collections
import time
import typing

from harness import rule_set, scenario
from holders import Holders
from support import eventually

HOLDERS = 10_000
PROCESSES = 8


class Slots(typing.NamedTuple):
    """So many at a time, for everybody together."""
    limit: int
    ttl_s: int

    @property
    def band(self):
        return {"label": "b", "algorithm": "CONCURRENCY", "limit": self.limit,
                "ttl": f"{self.ttl_s}s"}


LIMIT = Slots(limit=100, ttl_s=3)


@scenario("holders", "10,000 clients want 100 slots: never more are held; those of the dead are "
                     "back when their ttl is over, and not before")
def holders(trial):
    redis = trial.redis()
    # All of them may ask at once, for the same budget.
    services = [trial.service([rule_set("jobs", LIMIT, "FAIL_CLOSED")], *redis.patient_store(),
                              "--in-flight-max", str(2 * HOLDERS)) for _ in range(2)]
    folder = trial.folder()
    crowds = [trial.own(Holders([service.port for service in services], f"p{number}",
                                HOLDERS // PROCESSES, folder / f"p{number}", "jobs",
                                trial.random.getrandbits(32)))
              for number in range(PROCESSES)]

    def all_slots_are_taken():
        return held_in_store(trial, services[0]) == LIMIT.limit

    eventually(lambda: sum(crowd.outcomes().total() for crowd in crowds) >= HOLDERS
               and all(crowd.outcomes()["granted"] for crowd in crowds),
               "everybody has asked, and every process has had slots")
    time.sleep(trial.length(20.0, 1.0))
    eventually(all_slots_are_taken, "all slots are taken")

    dead, living = crowds[:PROCESSES // 2], crowds[PROCESSES // 2:]
    answers = sum((crowd.outcomes() for crowd in dead), collections.Counter())
    killed = time.time()
    for crowd in dead:
        crowd.kill()
    services.pop().kill()
    for crowd in living:
        crowd.set_ports([services[0].port])
    taken_along = [until for crowd in dead for _, until in crowd.held() if until > killed]
    trial.measure("killed", f"{len(dead)} of {PROCESSES} processes, with {len(taken_along)} slots")
    trial.expect(taken_along, "none of those that were killed held anything")
    eventually(all_slots_are_taken, "those who live have taken the other slots")
    # From here on, only the dead hold any.
    answers = sum((crowd.stop() for crowd in living), answers)
    back, denied_late = all_at_once(services[0])
    trial.measure("answers", ", ".join(f"{count} {name}" for name, count
                                       in sorted(answers.items())))
    trial.measure("all slots are back", f"{back - killed:.2f} s after the kill, of a ttl of "
                                        f"{LIMIT.ttl_s} s")
    trial.expect(back >= max(taken_along), "a slot was back before its hold had expired")
    trial.expect(not denied_late, "a slot was not back although all holds had expired")
    most = most_at_once([interval for crowd in crowds for interval in crowd.held()])
    trial.measure("held at once", f"at most {most} of {LIMIT.limit}, as the clients saw it")
    trial.expect(most <= LIMIT.limit, f"{most} clients held a slot at once")
    trial.expect(set(answers) <= {"granted", "denied", "broken"}, "requests failed")


def held_in_store(trial, service):
    """What the store says; never more than there may be."""
    held = service.check("jobs", permits=0, userId="all").json["rules"][0]["bands"][0]["held"]
    trial.expect(held <= LIMIT.limit, f"the store has {held} units on hold")
    return held


def all_at_once(service):
    """Asks for all slots in one hold until it is granted. Returns when the store decided that, and
    whether it had denied it after the last expiry, by its own word."""
    free_at, denied_late = None, False
    while True:
        asked = time.time()
        answer = service.request("POST", "/api/v1/holds", {
            "ruleSet": "jobs", "permits": LIMIT.limit, "context": {"userId": "all"}})
        if answer.status == 201:
            return answer.json["expiresAtMicros"] / 1e6 - LIMIT.ttl_s, denied_late
        denied_late = denied_late or (free_at is not None and asked > free_at)
        free_at = free_at or time.time() + answer.json["retryAfterMicros"] / 1e6
        time.sleep(0.01)


def most_at_once(intervals):
    changes = sorted([(begun, 1) for begun, _ in intervals] + [(end, -1) for _, end in intervals])
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most
