# SPDX-License-Identifier: Apache-2.0
"""Clients that misbehave at every door, beside good ones that must not notice."""

import collections
import contextlib
import pathlib
import resource
import time

import support
from doors import RLS_CONFIG, RULE_SETS, GoodClients
from harness import DEADLINE_S, GRACE_S, HANGS_S, millis, percentile, scenario
from hostile import HostileClients, Storm
from support import eventually

DOORS = ("http", "resp", "grpc")

# So that clients that hold on for nothing are gone before a scenario ends.
IMPATIENT = ("--http-header-timeout", "2s", "--http-idle-timeout", "5s",
             "--resp-idle-timeout", "5s")

# What a few hundred clients, and each of thousands of connections, may make the service hold.
MEMORY_MAX_BYTES = 64 << 20
MEMORY_OF_CONNECTION_BYTES = 32 << 10


@scenario("hostile-clients", "a hundred clients misbehave in all ways: good ones notice nothing")
def hostile_clients(trial):
    with GoodCompany(trial, *IMPATIENT) as company:
        crowd = trial.own(HostileClients(company.ports, 34, trial.random.getrandbits(32)))
        time.sleep(trial.length(60.0, 8.0))
        for way, count in sorted(crowd.connections().items()):
            trial.measure(way, f"{count} connections")
        crowd.remove()


@scenario("slow-clients", "hundreds of slow clients at each door: good ones notice nothing")
def slow_clients(trial):
    with GoodCompany(trial, *IMPATIENT) as company:
        crowd = trial.own(HostileClients(company.ports, trial.length(300, 100),
                                         trial.random.getrandbits(32),
                                         only=("half a request", "a byte at a time")))
        time.sleep(trial.length(30.0, 6.0))
        trial.measure("slow connections", sum(crowd.connections().values()))
        crowd.remove()


@scenario("garbage-flood", "a door flooded with garbage: good clients of all doors notice nothing")
def garbage_flood(trial):
    with GoodCompany(trial, *IMPATIENT) as company:
        for door, port in company.ports.items():
            crowd = trial.own(HostileClients({door: port}, trial.length(20, 10),
                                             trial.random.getrandbits(32),
                                             only=("garbage", "garbage after a request")))
            time.sleep(trial.length(10.0, 2.0))
            trial.measure(f"floods of {door}", sum(crowd.connections().values()))
            crowd.remove()


@scenario("connection-storm", "10,000 connections in 5 s: caps hold, who is connected is served")
def connection_storm(trial):
    # With fewer files, each door takes fewer connections than configured.
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = trial.length(min(8_000, (files_max - 1_000) // len(DOORS)), 800)
    count, seconds = trial.length(10_000, 1_000), trial.length(5.0, 1.0)
    caps = [part for door in DOORS for part in (f"--{door}-connections-max", str(most))]
    memory_max_bytes = MEMORY_MAX_BYTES + most * MEMORY_OF_CONNECTION_BYTES
    with GoodCompany(trial, *caps, requests_per_connection=0,
                     memory_max_bytes=memory_max_bytes) as company:
        for door, port in company.ports.items():
            storm = trial.own(Storm())
            took = storm.connect(port, count, seconds)
            eventually(lambda: storm.held() <= most, "what is refused is closed")
            opened = support.eventually_get(
                lambda: company.metric("sluice_connections", door=door),
                lambda open: 0.95 * most <= open <= most,
                f"{most} connections at {door}, or hardly fewer")
            refused = company.metric("sluice_connections_refused_total", door=door)
            trial.measure(f"storm at {door}", f"{count} connections in {took:.1f} s: {opened:.0f} "
                                              f"open of at most {most}, {refused:.0f} refused")
            trial.expect(refused >= count - most, f"{refused:.0f} refused at {door}")
            time.sleep(trial.length(3.0, 0.5))
            storm.close()
            storm.remove()


class GoodCompany(contextlib.AbstractContextManager):
    """A service with good clients at all doors. At the end all their answers must have been right
    and in time, and no trace of the misbehaviour may be left in the service."""

    def __init__(self, trial, *arguments, requests_per_connection=50,
                 memory_max_bytes=MEMORY_MAX_BYTES):
        self.trial = trial
        self.memory_max_bytes = memory_max_bytes
        rls = trial.folder()
        rls.write("edge.yaml", RLS_CONFIG)
        self.service = trial.service(RULE_SETS, "--resp", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
                                     "--rls-config", str(rls), *arguments)
        self.ports = {"http": self.service.port, "resp": self.service.resp_port,
                      "grpc": self.service.grpc_port}
        # It stays open, so that its requests are not refused.
        self.watcher = support.Client(self.service.port)
        self.watcher.request("GET", "/metrics")
        self.descriptors = self.open_descriptors()
        clients = trial.length(10, 5)
        self.good = trial.own(GoodClients(self.ports, clients, trial.length(20, 10),
                                          requests_per_connection))
        eventually(lambda: self.good.asked() >= 6 * clients, "good clients are served")
        self.memory = self.memory_bytes()

    def __exit__(self, kind, error, traceback):
        if kind:
            return
        records = self.good.stop()
        noise = percentile(self.good.lags(), 0.99)
        self.good.remove()
        self.expect_right_and_in_time(records, noise)
        self.expect_nothing_left()

    def metric(self, name, **labels):
        text = self.watcher.request("GET", "/metrics").body.decode()
        return support.parse_metrics(text)[name, frozenset(labels.items())]

    def open_descriptors(self):
        return len(list(pathlib.Path(f"/proc/{self.service.pid}/fd").iterdir()))

    def memory_bytes(self, what="VmRSS"):
        status = pathlib.Path(f"/proc/{self.service.pid}/status").read_text("ascii")
        return int(status.split(f"{what}:")[1].split()[0]) << 10

    def expect_right_and_in_time(self, records, noise):
        self.trial.measure("good clients late by", f"{millis(noise)} at p99: the machine's noise")
        problems = collections.Counter(record.problem for record in records if record.problem)
        self.trial.expect(not problems, f"good clients: {problems.most_common(5)}")
        for door in DOORS:
            took = sorted(record.took for record in records if record.door == door)
            p99 = percentile(took, 0.99)
            most = took[-1]
            self.trial.measure(f"good clients at {door}",
                               f"{len(took)} answers, p99 {millis(p99)}, most {millis(most)}")
            if self.trial.short:
                self.trial.expect(most <= HANGS_S * 5, f"{door}: an answer took {most:.1f} s")
            else:
                self.trial.expect(p99 <= DEADLINE_S + GRACE_S + noise,
                                  f"{door}: p99 is {millis(p99)}")

    def expect_nothing_left(self):
        eventually(lambda: self.open_descriptors() <= self.descriptors,
                   "all descriptors are closed")
        if not is_sanitized(support.PROGRAM):
            self.expect_memory_bounded()
        # A build with sanitizers reports here what it has found.
        self.trial.expect(self.service.stop() == 0, "the service did not end well")

    def expect_memory_bounded(self):
        most = self.memory_bytes("VmHWM") - self.memory
        left = support.eventually_get(lambda: self.memory_bytes() - self.memory,
                                      lambda left: left <= MEMORY_MAX_BYTES, "memory is given back")
        self.trial.measure("memory", f"at most {most / 2**20:.0f} MiB more, "
                                     f"{left / 2**20:.0f} MiB more afterwards")
        self.trial.expect(most <= self.memory_max_bytes, "memory is not bounded")


def is_sanitized(program):
    """Such a build keeps freed memory, to detect who touches it."""
    return b"__asan_init" in pathlib.Path(program).read_bytes()
