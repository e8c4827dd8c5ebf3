# SPDX-License-Identifier: Apache-2.0
"""Clients that misbehave at every door, each over and over again in its own way."""

import asyncio
import collections
import contextlib
import random
import socket
import struct

import doors
from doors import (CALL_HEADERS, CONTINUATION, DATA, END_HEADERS, HEADERS, OPENING, PING,
                   RST_STREAM, SETTINGS, frame)
from worker import Worker

# How long a slow or unresponsive client holds one connection.
HOLD_S = 5.0

# Between two connections of one client, so that the load stays bounded.
PAUSE_S = 0.02

GARBAGE_BYTES = 256 << 10
FLOOD_FRAMES = 2_000


class HostileClients:
    """Runs this many clients at each of these doors, with the kinds of misbehaviour spread over
    them."""

    def __init__(self, ports, clients, seed, only=None):
        self.worker = Worker(lambda: _Crowd(ports, clients, random.Random(seed), only))

    def connections(self):
        """How many connections each kind of misbehaviour has made so far."""
        return self.worker.call("connections")

    def remove(self):
        self.worker.remove()


class Storm:
    """Connects nearly all at once, and then stays silent."""

    def __init__(self):
        self.worker = Worker(_Storm)

    def connect(self, port, count, seconds):
        """Returns how long it really took."""
        return self.worker.call("connect", port, count, seconds)

    def held(self):
        """How many the service has not closed."""
        return self.worker.call("held")

    def close(self):
        self.worker.call("close")

    def remove(self):
        self.worker.remove()


class _Storm:
    def __init__(self):
        self.transports = []

    async def connect(self, port, count, seconds):
        loop = asyncio.get_running_loop()
        begun = loop.time()

        async def connect_at(due):
            await asyncio.sleep(begun + due - loop.time())
            with contextlib.suppress(OSError):
                transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
                self.transports.append(transport)

        await asyncio.gather(*(connect_at(number * seconds / count) for number in range(count)))
        return loop.time() - begun

    def held(self):
        return sum(not transport.is_closing() for transport in self.transports)

    def close(self):
        for transport in self.transports:
            transport.abort()
        self.transports.clear()


class _Crowd:
    def __init__(self, ports, clients, chance, only):
        self.counts = collections.Counter()
        self.tasks = []
        for door, port in ports.items():
            ways = {name: way for name, way in WAYS[door].items() if not only or name in only}
            for number in range(clients):
                name = list(ways)[number % len(ways)]
                client = Hostile(door, port, random.Random(chance.getrandbits(32)))
                self.tasks.append(asyncio.ensure_future(self.live(client, f"{door} {name}",
                                                                  ways[name])))

    async def live(self, client, name, misbehave):
        while True:
            # Being cut off is what it asks for.
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                async with asyncio.timeout(HOLD_S), client.connected():
                    self.counts[name] += 1
                    await misbehave(client)
            await asyncio.sleep(PAUSE_S)

    def connections(self):
        return self.counts


class Hostile:
    """One client, with one connection at a time."""

    def __init__(self, door, port, chance):
        self.door = door
        self.port = port
        self.random = chance
        self.reader = self.writer = None

    @contextlib.asynccontextmanager
    async def connected(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield
        finally:
            self.writer.transport.abort()

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def read_to_end(self):
        while await self.reader.read(65536):
            pass

    def requests(self, count):
        """What a good client would send, all at once."""
        key = f"hostile-{self.random.getrandbits(32)}"
        if self.door == "http":
            return doors.http_request(key) * count
        if self.door == "resp":
            return doors.resp_request(key) * count
        return OPENING + b"".join(doors.grpc_call(1 + 2 * number, key) for number in range(count))

    def part_of_request(self):
        request = self.requests(1)
        return request[:self.random.randrange(1, len(request))]


async def half_a_request(client):
    await client.send(client.part_of_request())
    await client.read_to_end()


async def a_byte_at_a_time(client):
    for byte in client.requests(1):
        await client.send(bytes([byte]))
        await asyncio.sleep(0.1)


async def garbage(client):
    await client.send(client.random.randbytes(GARBAGE_BYTES))
    await client.read_to_end()


async def garbage_after_a_request(client):
    await client.send(client.requests(1) + client.random.randbytes(GARBAGE_BYTES))
    await client.read_to_end()


async def never_reads(client):
    client.writer.transport.pause_reading()
    for _ in range(1000):
        await client.send(client.requests(100))
    await asyncio.sleep(HOLD_S)


async def reset_within_a_request(client):
    await client.send(client.part_of_request())
    no_lingering = struct.pack("ii", 1, 0)
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                                      no_lingering)


async def reset_with_answers_on_their_way(client):
    await client.send(client.requests(50))


async def flood(client):
    reading = asyncio.ensure_future(client.read_to_end())
    for _ in range(20):
        await client.send(client.requests(50))
    client.writer.write_eof()
    await reading


def says(*speeches):
    """Sends one of these, whatever comes back."""
    async def say(client):
        reading = asyncio.ensure_future(client.read_to_end())
        await client.send(client.random.choice(speeches))
        await reading
    return say


STREAMS = range(1, 2 * FLOOD_FRAMES, 2)
RAPID_RESET = b"".join(frame(HEADERS, END_HEADERS, stream, CALL_HEADERS)
                       + frame(RST_STREAM, 0, stream, struct.pack(">I", 8)) for stream in STREAMS)
OPEN_STREAMS = b"".join(frame(HEADERS, END_HEADERS, stream, CALL_HEADERS) for stream in STREAMS)
ENDLESS_HEADERS = (frame(HEADERS, 0, 1, CALL_HEADERS)
                   + frame(CONTINUATION, 0, 1, doors.header(b"x", b"y" * 100) * 100) * 200)
NO_WINDOW = frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
HUGE_MESSAGE = (OPENING + frame(HEADERS, END_HEADERS, 1, CALL_HEADERS)
                + frame(DATA, 0, 1, b"\0\xff\xff\xff\xff" + b"x" * 8000))

ANYWHERE = {way.__name__.replace("_", " "): way for way in (
    half_a_request, a_byte_at_a_time, garbage, garbage_after_a_request, never_reads,
    reset_within_a_request, reset_with_answers_on_their_way, flood)}

WAYS = {
    "http": ANYWHERE | {
        "huge lengths": says(
            b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 999999999999999999\r\n\r\n{",
            b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n{",
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n",
            b"GET /" + b"x" * (1 << 20)),
        "endless head": says(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * (1 << 16)),
    },
    "resp": ANYWHERE | {
        "huge lengths": says(b"*1000000000\r\n", b"*2\r\n$999999999999\r\n",
                             b"*-9223372036854775808\r\n", b"*1024\r\n" + b"$1\r\nx\r\n" * 1023,
                             b"*5\r\n$65536\r\n" + b"x" * 65_000, b"x" * (1 << 20)),
    },
    "grpc": ANYWHERE | {
        "huge lengths": says(HUGE_MESSAGE, OPENING + b"\xff\xff\xff\0\0\0\0\0\1",
                             doors.PREFACE + b"\xff\xff\xff\4\0\0\0\0\0"),
        "no window": says(doors.PREFACE + NO_WINDOW
                          + b"".join(doors.grpc_call(stream, "k") for stream in range(1, 200, 2))),
        "rapid reset": says(OPENING + RAPID_RESET),
        "open streams": says(OPENING + OPEN_STREAMS),
        "pings": says(OPENING + frame(PING, 0, 0, b"12345678") * FLOOD_FRAMES),
        "settings": says(OPENING + frame(SETTINGS, 0, 0) * FLOOD_FRAMES),
        "continuation": says(OPENING + ENDLESS_HEADERS),
    },
}
