# SPDX-License-Identifier: Apache-2.0
"""A bounded, steady load of checks over HTTP, with a record of each."""

import asyncio
import collections
import json
import random
import time
import typing

from worker import Worker

# Connections to each instance. A request that finds none free is not sent.
CONNECTIONS_MAX = 256
CONNECTIONS_AT_START = 16

# How long to wait for the last answers. Whatever takes longer counts as unanswered.
LAST_ANSWERS_S = 3.0

# Why there is no status: the connection broke or could not be made, or nothing came.
BROKEN = "broken"
UNANSWERED = "unanswered"


class Subject(typing.NamedTuple):
    """Whose budget a request asks for."""
    rule_set: str
    user: str


class Record(typing.NamedTuple):
    """One request and its result. Times are those of time.monotonic()."""
    sent: float
    answered: float
    subject: Subject
    port: int
    status: int      # 0: no answer
    allowed: bool
    source: str      # store, deny-cache, local, overload or fail-open; empty if it failed
    error: str       # the code of the answer, BROKEN or UNANSWERED; empty if it was decided

    @property
    def took(self):
        return self.answered - self.sent

    @property
    def outcome(self):
        return self.error or self.source


def subjects(rule_set, count):
    return [Subject(rule_set, f"user-{number}") for number in range(count)]


class Load:
    """Asks about random subjects at a steady rate until it is stopped, whatever the answers are."""

    def __init__(self, ports, asked_about, rate, seed):
        self.worker = Worker(lambda: _Generator(ports, asked_about, rate, seed))

    def set_ports(self, ports):
        """Selects the instances to ask from now on."""
        self.worker.call("set_ports", ports)

    def set_rate(self, rate):
        self.worker.call("set_rate", rate)

    def set_subjects(self, asked_about):
        self.worker.call("set_subjects", asked_about)

    def outcomes(self, since=0.0):
        """How often each outcome occurred, among requests sent after a time."""
        return self.worker.call("outcomes", since)

    def stop(self):
        """All records, in the order of the answers."""
        return self.worker.call("stop")

    def lag(self, share=0.99):
        """How late requests were sent, at the 99th percentile or another one, in seconds: the noise
        of the machine in what was measured."""
        return self.worker.call("lag", share)

    def remove(self):
        self.worker.remove()


class _Connection(asyncio.Protocol):
    """One connection with at most one request in flight."""

    def __init__(self, generator, port):
        self.generator = generator
        self.port = port
        self.transport = None
        self.received = bytearray()
        self.subject = None
        self.sent = 0.0

    def connection_made(self, transport):
        self.transport = transport

    def ask(self, subject, request):
        self.subject = subject
        self.sent = time.monotonic()
        self.transport.write(request)

    def data_received(self, data):
        self.received += data
        head_end = self.received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = bytes(self.received[:head_end]).lower()
        start = head.index(b"content-length:") + len(b"content-length:")
        end = head.find(b"\r\n", start)
        length = int(head[start:end] if end > 0 else head[start:])
        if len(self.received) < head_end + 4 + length:
            return
        status = int(head[9:12])
        body = json.loads(bytes(self.received[head_end + 4:]))
        self.received.clear()
        self.finish(status, body)
        if b"connection: close" in head:
            self.transport.close()
        else:
            self.generator.idle[self.port].append(self)

    def connection_lost(self, _error):
        self.finish(0, {"error": {"code": BROKEN}})
        self.generator.gone(self)

    def finish(self, status, body):
        if self.subject is None:
            return
        self.generator.records.append(Record(
            self.sent, time.monotonic(), self.subject, self.port, status,
            bool(body.get("allowed")), body.get("source", ""),
            body["error"]["code"] if "error" in body else ""))
        self.subject = None


class _Generator:
    TICK_S = 0.001

    def __init__(self, ports, asked_about, rate, seed):
        self.random = random.Random(seed)
        self.rate = rate
        self.records = []
        self.lags = []
        self.idle = collections.defaultdict(collections.deque)
        self.connections = collections.defaultdict(set)
        self.requests = {}
        self.set_subjects(asked_about)
        self.ports = []
        self.running = asyncio.ensure_future(self.run(ports))

    def set_ports(self, ports):
        self.ports = list(ports)

    def set_rate(self, rate):
        self.rate = rate

    def set_subjects(self, asked_about):
        self.asked_about = list(asked_about)
        for subject in self.asked_about:
            self.requests.setdefault(subject, _request(subject))

    async def run(self, ports):
        await asyncio.gather(*(self.connect(port) for port in ports
                               for _ in range(CONNECTIONS_AT_START)))
        self.set_ports(ports)
        due = time.monotonic()
        while True:
            await asyncio.sleep(self.TICK_S)
            now = time.monotonic()
            if self.rate <= 0:
                due = now
            while self.rate > 0 and due <= now:
                self.lags.append(now - due)
                due += 1 / self.rate
                if self.ports:
                    self.ask(self.random.choice(self.ports), self.random.choice(self.asked_about))

    def ask(self, port, subject):
        while self.idle[port]:
            connection = self.idle[port].popleft()
            if not connection.transport.is_closing():
                connection.ask(subject, self.requests[subject])
                return
        if len(self.connections[port]) < CONNECTIONS_MAX:
            asyncio.ensure_future(self.connect(port, subject))

    async def connect(self, port, subject=None):
        connection = _Connection(self, port)
        self.connections[port].add(connection)
        begun = time.monotonic()
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection, "127.0.0.1", port)
        except OSError:
            self.gone(connection)
            if subject:
                self.records.append(Record(begun, time.monotonic(), subject, port, 0, False, "",
                                           BROKEN))
            return
        if subject:
            connection.ask(subject, self.requests[subject])
        else:
            self.idle[port].append(connection)

    def gone(self, connection):
        self.connections[connection.port].discard(connection)

    def outcomes(self, since):
        counts = collections.Counter()
        for record in reversed(self.records):
            if record.answered < since:
                break
            if record.sent >= since:
                counts[record.outcome] += 1
        return counts

    async def stop(self):
        self.running.cancel()
        deadline = time.monotonic() + LAST_ANSWERS_S
        while self.under_way() and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for connection in self.under_way():
            connection.finish(0, {"error": {"code": UNANSWERED}})
        return self.records

    def under_way(self):
        return [connection for every in self.connections.values() for connection in every
                if connection.subject]

    def lag(self, share):
        ordered = sorted(self.lags)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def _request(subject):
    body = json.dumps({"ruleSet": subject.rule_set, "context": {"userId": subject.user}}).encode()
    return (b"POST /api/v1/check HTTP/1.1\r\nHost: chaos\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
