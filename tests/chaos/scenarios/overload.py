# SPDX-License-Identifier: Apache-2.0
"""A flood of distinct keys at a Redis that cannot keep up with it."""

import collections
import concurrent.futures
import threading

from harness import SETTLED, Quota, local_units, rule_set, scenario
from support import PATIENCE, Client, eventually

LIMIT = Quota(capacity=100)
FLOOD = [f"flood-{number}" for number in range(32_000)]
GREEDY = [f"flood-{number % 10}" for number in range(3_000)]  # Some ask again and again.
HONEST = [f"honest-{number}" for number in range(50)]
DENIED = "denied"
BATCH = 250
CLIENTS = 16
PLACES = 256

# Keeps Redis busy for about 40 ms.
BUSY = "local x = 0 for i = 1, 4000000 do x = x + i end return x"


@scenario("overload", "nobody passes undecided; no key gets more than its limit and its share; who "
                      "was denied stays denied; known clients are decided by the store")
def overload(trial):
    places_are_scarce(trial)
    if not trial.short:
        redis_is_busy(trial)


def places_are_scarce(trial):
    """All places are taken for as long as the flood lasts, however busy the machine is."""
    redis = trial.redis()
    service = trial.service([rule_set("open", LIMIT, "FAIL_OPEN")], *redis.patient_store(),
                            "--in-flight-max", str(PLACES), "--instances", "1",
                            "--deny-cache-trust", "1d")
    prepare(service)
    known = Answers()
    known.ask(service, HONEST)
    answers = Answers()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        redis.cli("client", "pause", "600000", "write")
        try:
            waiting = [pool.submit(answers.ask, service, FLOOD[:BATCH])]
            eventually(lambda: in_flight(service) + bypassed(service) == BATCH, "all have come")
            # More than once: a rejected request has a place for an instant.
            fresh = min(in_flight(service) for _ in range(5))
            for part in [FLOOD[BATCH:], GREEDY]:
                list(pool.map(lambda users: answers.ask(service, users), batches(part)))
            honest = Answers()
            waiting.append(pool.submit(honest.ask, service, HONEST))
            eventually(lambda: in_flight(service) == fresh + len(HONEST), "they have places")
            expect_denied(trial, service)
        finally:
            redis.cli("client", "unpause")
        for future in waiting:
            future.result(PATIENCE)
    trial.measure("flood", str(answers))
    trial.measure("known clients", str(honest))
    trial.expect(honest.sources == {"store": len(HONEST)}, "the flood took the places of others")
    answers.add(known)
    answers.add(honest)
    expect_decided(trial, service, answers)


def redis_is_busy(trial):
    """The default, with a neighbour that leaves Redis no time: answers come late."""
    redis = trial.redis()
    service = trial.service([rule_set("open", LIMIT, "FAIL_OPEN")], "--store", redis.uri,
                            "--instances", "1")
    prepare(service)
    answers = Answers()
    answers.ask(service, HONEST)
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            redis.cli("eval", BUSY, "0")

    with concurrent.futures.ThreadPoolExecutor(CLIENTS + 2) as pool:
        neighbours = [pool.submit(busy) for _ in range(2)]
        try:
            list(pool.map(lambda users: answers.ask(service, users), batches(FLOOD + GREEDY)))
            expect_denied(trial, service)
        finally:
            stop.set()
        for future in neighbours:
            future.result(PATIENCE)
    trial.measure("flood, Redis busy", str(answers))
    expect_decided(trial, service, answers)


class Answers:
    """Who decided, and what each user was granted."""

    def __init__(self):
        self.sources = collections.Counter()
        self.granted = collections.Counter()
        self.lock = threading.Lock()

    def __str__(self):
        return ", ".join(f"{count} by {name}" for name, count in sorted(self.sources.items()))

    def ask(self, service, users):
        """One request for each, all in one batch."""
        client = Client(service.port)
        try:
            answer = client.request("POST", "/api/v1/check/batch", {"checks": [
                {"ruleSet": "open", "context": {"userId": user}} for user in users]})
        finally:
            client.close()
        with self.lock:
            for user, result in zip(users, answer.json["results"], strict=True):
                self.sources[result.get("source", "an error")] += 1
                self.granted[user] += bool(result.get("allowed"))

    def add(self, other):
        self.sources += other.sources
        self.granted += other.granted


def batches(users):
    return [users[at:at + BATCH] for at in range(0, len(users), BATCH)]


def prepare(service):
    """One client is denied, and that is remembered."""
    eventually(lambda: service.metric("sluice_redis_listening") == 1, "it listens")
    eventually(lambda: service.check("open", permits=LIMIT.capacity,
                                     userId=DENIED).json.get("source") == "deny-cache",
               "a denial that is remembered")


def in_flight(service):
    return service.metric("sluice_guard_in_flight")


def bypassed(service):
    return service.metric("sluice_overload_decisions_total", reason="in_flight")


def expect_denied(trial, service):
    statuses = {service.check("open", userId=DENIED).status for _ in range(20)}
    trial.expect(statuses == {429}, f"a client that was denied was answered {sorted(statuses)}")


def expect_decided(trial, service, answers):
    trial.expect(answers.sources.keys() <= {"store", "overload", "deny-cache"},
                 f"somebody passed undecided: {answers}")
    trial.expect(answers.sources["overload"] > len(FLOOD) / 2, "it was no overload")
    worst = max(answers.granted.values())
    # The share of the only instance is the full limit.
    trial.measure("worst key", f"{worst} of {LIMIT.capacity} (at most {2 * LIMIT.capacity})")
    trial.expect(worst <= 2 * LIMIT.capacity, f"a key was granted {worst}")
    eventually(lambda: in_flight(service) == 0 and local_units(service, "granted") == sum(
        local_units(service, state) for state in SETTLED), "all is accounted for")
    trial.measure("units", ", ".join(f"{local_units(service, state):.0f} {state}"
                                     for state in ("granted", *SETTLED)))
    unknown = service.metric("sluice_guard_late_answers_total", outcome="unknown")
    trial.expect(local_units(service, "dropped") <= unknown, "units granted locally were lost")
    passed = service.metric("sluice_degraded_decisions_total", source="fail_open")
    trial.expect(passed == 0, f"FAIL_OPEN let {passed:.0f} pass")
