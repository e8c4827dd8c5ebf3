# SPDX-License-Identifier: Apache-2.0
"""The clock that decides jumps an hour, in both directions; so does one that must not matter."""

import time
import typing

from clock import Clock
from harness import by_subject, rule_set, scenario, worst_burst
from load import subjects

HOUR_S = 3600

# Where the clock is after each jump: forward, back, further back, and forward again.
JUMPS = (HOUR_S, 0, -HOUR_S, 0)

# How late a key may be granted something after its window, because nobody asked at that moment.
LATE_S = 0.5
LATE_SHORT_S = 3.0


class Window(typing.NamedTuple):
    """A limit of any algorithm whose budget is full again after a window."""
    algorithm: str
    amount: int
    window_s: int

    @property
    def band(self):
        numbers = {"limit": self.amount, "window": f"{self.window_s}s"}
        if self.algorithm == "TOKEN_BUCKET":
            numbers = {"capacity": self.amount, "refill": self.amount,
                       "period": f"{self.window_s}s"}
        return {"label": "b", "algorithm": self.algorithm, **numbers}

    @property
    def burst(self):
        """The most at once besides what flows back: two budgets around a boundary, by design."""
        return self.amount * (2 if self.algorithm == "FIXED_WINDOW" else 1)


@scenario("clock-of-service", "back: no lock-out beyond a window; forth: at most one extra burst")
def clock_of_service(trial):
    clock = trial.own(Clock())
    jump(trial, clock, lambda rules: trial.service(rules, env=clock.environment), extra_bursts=1)


@scenario("clock-of-service-on-redis", "the service's clock does not matter: Redis has its own")
def clock_of_service_on_redis(trial):
    clock = trial.own(Clock())
    redis = trial.redis()
    jump(trial, clock, lambda rules: trial.service(rules, *redis.patient_store(),
                                                   env=clock.environment), extra_bursts=0)


@scenario("clock-of-service-without-redis",
          "back: no lock-out beyond a window; forth: at most one extra burst")
def clock_of_service_without_redis(trial):
    clock = trial.own(Clock())
    redis = trial.redis()
    jump(trial, clock, lambda rules: trial.service(rules, "--store", redis.uri,
                                                   env=clock.environment), extra_bursts=1,
         before=redis.kill)


@scenario("clock-of-redis", "back: no lock-out beyond a window; forth: at most one extra burst")
def clock_of_redis(trial):
    clock = trial.own(Clock())
    redis = trial.redis(env=clock.environment)
    jump(trial, clock, lambda rules: trial.service(rules, *redis.patient_store()), extra_bursts=1)


def jump(trial, clock, start_service, extra_bursts, before=lambda: None):
    limits = {algorithm.lower(): Window(algorithm, amount=20, window_s=trial.length(5, 2))
              for algorithm in ("TOKEN_BUCKET", "FIXED_WINDOW", "SLIDING_WINDOW",
                                "SLIDING_WINDOW_COUNTER")}
    service = start_service([rule_set(name, limit) for name, limit in limits.items()])
    asked = [subject for name in limits for subject in subjects(name, trial.length(4, 2))]
    load = trial.load([service], asked, rate=trial.length(800, 300))
    before()
    stay_s = trial.length(12.0, 2.5)
    moments = []
    time.sleep(stay_s)
    for shift in JUMPS:
        clock.shift(shift)
        moments.append(time.monotonic())
        trial.progress(f"the clock is {shift} s ahead")
        time.sleep(stay_s)
    records = load.stop()
    trial.expect_answers(load, records)
    for name, limit in limits.items():
        of_limit = [record for record in records if record.subject.rule_set == name]
        expect_nobody_locked_out(trial, name, limit, of_limit, load.lag(1.0))
        expect_bursts(trial, name, limit, of_limit, moments, extra_bursts)


def expect_nobody_locked_out(trial, name, limit, records, lag_s):
    longest = max(longest_pause(of_subject) for of_subject in by_subject(records).values())
    bound = limit.window_s + trial.length(LATE_S, LATE_SHORT_S + lag_s)
    trial.measure(f"{name}: longest lock-out", f"{longest:.2f} s of at most {bound:.1f} s")
    trial.expect(longest <= bound, f"{name}: a key was locked out for {longest:.2f} s")


def longest_pause(records):
    """The longest time that a key that is constantly asked for was granted nothing."""
    moments = [records[0].sent, *(record.answered for record in records if record.allowed),
               records[-1].answered]
    return max(after - before for before, after in zip(moments, moments[1:]))


def expect_bursts(trial, name, limit, records, moments, extra_bursts):
    """Around each jump: from halfway to the one before until halfway to the one after."""
    stay_s = moments[1] - moments[0]
    around = [[record for record in records if abs(record.answered - moment) < stay_s / 2]
              for moment in moments]
    worst = max(worst_burst(of_subject, limit.amount / limit.window_s)
                for of_jump in around for of_subject in by_subject(of_jump).values())
    bound = limit.burst + extra_bursts * limit.amount
    trial.measure(f"{name}: worst burst", f"{worst:.0f} of at most {bound}")
    # A bucket's last token arrives the moment that it is full: one more than the oracle counts.
    trial.expect(worst <= bound + 1, f"{name}: {worst:.1f} at once, more than {bound}")
