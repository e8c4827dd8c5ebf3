# SPDX-License-Identifier: Apache-2.0
"""Good clients of every door. Each asks about its own keys, one request at a time, and so knows
what every answer must be."""

import asyncio
import itertools
import json
import struct
import time
import typing

from harness import Quota, rule_set
from worker import Worker

# Of every key, at every door; none of it comes back while a scenario runs.
BUDGET = 20

RULE_SETS = [rule_set("quota", Quota(BUDGET))]
RLS_CONFIG = f"""
domain: edge
descriptors:
  - key: user
    rate_limit: {{unit: year, requests_per_unit: {BUDGET}}}
"""

# An answer that takes longer than this is considered lost.
HANGS_S = 20.0


class Asked(typing.NamedTuple):
    door: str
    sent: float
    took: float
    problem: str  # Empty if the answer was right.


class GoodClients:
    """Runs this many clients at each door, each at this rate. They reconnect every so many
    requests; 0: never."""

    def __init__(self, ports, clients, per_second, requests_per_connection=50):
        self.worker = Worker(lambda: _Crowd(ports, clients, per_second, requests_per_connection))

    def asked(self):
        return self.worker.call("count")

    def stop(self):
        """Everything that was asked, in the order of the answers."""
        return self.worker.call("stop")

    def lags(self):
        """How late requests were sent, in order, in seconds: the noise of the machine."""
        return self.worker.call("sorted_lags")

    def remove(self):
        self.worker.remove()


class _Crowd:
    def __init__(self, ports, clients, per_second, requests_per_connection):
        self.pause_s = 1 / per_second
        self.requests_per_connection = requests_per_connection
        self.records = []
        self.lags = []
        self.tasks = [asyncio.ensure_future(self.live(DOORS[door], door, port, f"{door}-{number}"))
                      for door, port in ports.items() for number in range(clients)]

    async def live(self, connect, door, port, name):
        connection = None
        for number in itertools.count():
            if self.requests_per_connection and number % self.requests_per_connection == 0:
                connection = await self.close(connection)
            sent = time.monotonic()
            try:
                async with asyncio.timeout(HANGS_S):
                    connection = connection or await connect(port)
                    problem = await self.ask(connection, name, number)
            except (OSError, EOFError, ValueError, TimeoutError) as error:
                problem = f"{type(error).__name__}: {error}"
                connection = await self.close(connection)
            self.records.append(Asked(door, sent, time.monotonic() - sent, problem))
            due = time.monotonic() + self.pause_s
            await asyncio.sleep(self.pause_s)
            self.lags.append(time.monotonic() - due)

    @staticmethod
    async def ask(connection, name, number):
        """Asks for each key twice as often as it has units."""
        before = number % (2 * BUDGET)
        answer = await connection.ask(f"{name}-{number // (2 * BUDGET)}")
        right = (before < BUDGET, max(0, BUDGET - before - 1))
        return "" if answer == right else f"answered {answer} instead of {right}"

    @staticmethod
    async def close(connection):
        if connection:
            connection.writer.close()

    def count(self):
        return len(self.records)

    def sorted_lags(self):
        return sorted(self.lags)

    def stop(self):
        for task in self.tasks:
            task.cancel()
        return self.records


class _Connection:
    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port):
        return cls(*await asyncio.open_connection("127.0.0.1", port))


# --- HTTP ----------------------------------------------------------------------------------------


def http_request(key):
    body = json.dumps({"ruleSet": "quota", "context": {"userId": key}}).encode()
    return (b"POST /api/v1/check HTTP/1.1\r\nHost: chaos\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body))


class HttpConnection(_Connection):
    async def ask(self, key):
        self.writer.write(http_request(key))
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        answer = json.loads(await self.reader.readexactly(length))
        return answer["allowed"], answer["remaining"]


# --- RESP ----------------------------------------------------------------------------------------


def resp_request(key):
    words = ["CL.THROTTLE", key, BUDGET - 1, 1, 30 * 86_400]
    parts = [f"${len(str(word))}\r\n{word}\r\n" for word in words]
    return f"*{len(parts)}\r\n{''.join(parts)}".encode()


class RespConnection(_Connection):
    async def ask(self, key):
        self.writer.write(resp_request(key))
        line = await self.reader.readline()
        if line != b"*5\r\n":
            raise ValueError(line)
        numbers = [int((await self.reader.readline())[1:]) for _ in range(5)]
        return numbers[0] == 0, numbers[2]


# --- gRPC: as little of HTTP/2, HPACK and protobuf as it takes -----------------------------------

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM = ACK = 1
END_HEADERS = 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header(name, value):
    """A literal field, neither indexed nor compressed."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


CALL_HEADERS = b"".join(itertools.starmap(header, [
    (b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"chaos"),
    (b":path", b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"),
    (b"content-type", b"application/grpc"), (b"te", b"trailers")]))

OPENING = PREFACE + frame(SETTINGS, 0, 0)


def field(number, content):
    return bytes([number << 3 | 2, len(content)]) + content


def rls_message(key):
    entry = field(1, b"user") + field(2, key.encode())
    message = field(1, b"edge") + field(2, field(1, entry))
    return b"\0" + struct.pack(">I", len(message)) + message


def grpc_call(stream, key):
    return (frame(HEADERS, END_HEADERS, stream, CALL_HEADERS)
            + frame(DATA, END_STREAM, stream, rls_message(key)))


def fields_of(message):
    """The last value of each field of a protobuf message."""
    fields, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = varint()
        value = varint()
        if tag & 7 == 2:
            value, at = message[at:at + value], at + value
        fields[tag >> 3] = value
    return fields


class GrpcConnection(_Connection):
    @classmethod
    async def open(cls, port):
        connection = await super().open(port)
        connection.stream = -1
        connection.writer.write(OPENING)
        return connection

    async def ask(self, key):
        self.stream += 2
        self.writer.write(grpc_call(self.stream, key))
        body = b""
        while True:
            kind, flags, stream, payload = await read_frame(self.reader)
            if kind in (SETTINGS, PING) and not flags & ACK:
                self.writer.write(frame(kind, ACK, 0, payload if kind == PING else b""))
            elif kind in (RST_STREAM, GOAWAY):
                raise ValueError(f"frame {kind}: {payload!r}")
            elif stream == self.stream and kind == DATA:
                body += payload
            if stream == self.stream and flags & END_STREAM:
                break
        answer = fields_of(body[5:])
        return answer[1] == 1, fields_of(answer[2]).get(3, 0)


async def read_frame(reader):
    head = await reader.readexactly(9)
    length = int.from_bytes(head[:3], "big")
    kind, flags, stream = struct.unpack(">BBI", head[3:])
    return kind, flags, stream, await reader.readexactly(length)


DOORS = {"http": HttpConnection.open, "resp": RespConnection.open, "grpc": GrpcConnection.open}
