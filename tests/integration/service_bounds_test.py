# SPDX-License-Identifier: Apache-2.0
"""What many clients together can make the service hold: memory, and file descriptors.

Usage: service_bounds_test.py PROGRAM
"""

import contextlib
import os
import pathlib
import resource
import socket
import struct
import unittest.mock

import support
from support import AGES, RawConnection, eventually

MIB = 1 << 20

DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE = 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

RULES = f"""
ruleSets:
  - id: api
    rules:
      - {{id: r, scope: GLOBAL, bands: [{{limit: 1000000, window: {AGES}}}]}}
"""


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header(name, value):
    """A literal field, neither indexed nor compressed."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call(stream, path):
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"sluice"),
              (b":path", path), (b"content-type", b"application/grpc"), (b"te", b"trailers")]
    return frame(HEADERS, END_HEADERS, stream, b"".join(header(*field) for field in fields))


def message(content):
    return b"\0" + struct.pack(">I", len(content)) + content


REFLECT = b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
HEALTH = b"/grpc.health.v1.Health/Check"
RLS = b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

# A question of about 50 bytes with the longest answer there is: all files of the service.
SYMBOL = b"envoy.service.ratelimit.v3.RateLimitService"
REFLECTION = message(bytes([4 << 3 | 2, len(SYMBOL)]) + SYMBOL)


def opening(window=65_535):
    """The first frames of a client that takes this many bytes of each answer before it sends
    more."""
    return PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, window))


def resident_bytes(service):
    pages = pathlib.Path(f"/proc/{service.pid}/statm").read_text("ascii").split()[1]
    return int(pages) * resource.getpagesize()


def is_sanitized(service):
    """Whether the build keeps freed memory, to detect its use, and needs files of its own."""
    maps = pathlib.Path(f"/proc/{service.pid}/maps").read_text("utf-8", "replace")
    return any(name in maps for name in ("libasan", "libtsan", "libubsan"))


class Clients:
    """Connections that do not mind being cut off, which may be what they ask for."""

    def __init__(self, port, count):
        self.sockets = [self.connected(port) for _ in range(count)]

    @staticmethod
    def connected(port):
        connection = socket.socket()
        connection.settimeout(support.PATIENCE)
        # What it does not read stays in the service, not in the system.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", port))
        return connection

    def send(self, data):
        for each in self.sockets:
            with contextlib.suppress(OSError):
                each.sendall(data)

    def close(self):
        for each in self.sockets:
            each.close()


class BoundsTest(support.ServiceTest):
    def clients(self, port, count):
        clients = Clients(port, count)
        self.addCleanup(clients.close)
        return clients

    def serve(self, *arguments):
        return self.serve_rules(RULES, "--resp", "127.0.0.1:0", "--grpc", "127.0.0.1:0", *arguments)

    def assert_serves(self, service):
        """Good clients are answered at every door, including those whose request comes in parts."""
        self.assertEqual(service.check("api").status, 200)
        self.assertEqual(service.admin("GET", "/admin/v1/status").status, 200)
        with RawConnection(service.resp_port) as resp:
            resp.send(b"*2\r\n$4\r\nPI")
            resp.send(b"NG\r\n$2\r\nhi\r\n")
            self.assertEqual(resp.reader.read(8), b"$2\r\nhi\r\n")
        with RawConnection(service.grpc_port) as grpc:
            grpc.send(opening() + call(1, HEALTH) + frame(DATA, 0, 1, message(b"")[:3]))
            grpc.send(frame(DATA, END_STREAM, 1, message(b"")[3:]))
            reply = message(b"\x08\x01")  # SERVING
            received = b""
            while reply not in received:
                part = grpc.reader.read1(4096)
                self.assertTrue(part, "the connection was closed")
                received += part


class MemoryTest(BoundsTest):
    # Connections may hold some more: 16 KiB each beyond what is counted, and what they need to be
    # connections.
    BUFFERED_MAX = 16 * MIB
    CONNECTIONS = 300
    EACH_CONNECTION = 128 << 10

    def setUp(self):
        self.service = self.serve("--buffered-bytes-max", str(self.BUFFERED_MAX))

    def buffered(self):
        return self.service.metric("sluice_buffered_bytes")

    def attack(self, port, first, more, rounds):
        """All clients send the first part, then one after another more of it, again and again."""
        before = resident_bytes(self.service)
        clients = self.clients(port, self.CONNECTIONS)
        clients.send(first)
        most = 0
        for _ in range(rounds):
            clients.send(more)
            most = max(most, self.buffered())
            self.assert_serves(self.service)
        eventually(lambda: self.service.metric("sluice_buffered_bytes_refused_total") > 0,
                   "somebody is refused")
        self.assertLessEqual(most, self.BUFFERED_MAX)
        if not is_sanitized(self.service):
            # A growing string has room for twice its content.
            self.assertLess(resident_bytes(self.service) - before,
                            3 * self.BUFFERED_MAX + self.CONNECTIONS * self.EACH_CONNECTION)
        self.assert_serves(self.service)
        clients.close()
        eventually(lambda: self.buffered() == 0, "all of it is given back")

    def test_grpc_replies_that_nobody_takes(self):
        self.attack(self.service.grpc_port, opening(window=0) + call(1, REFLECT),
                    frame(DATA, 0, 1, REFLECTION) * 20, rounds=5)

    def test_grpc_messages_in_part(self):
        streams = (1, 3, 5)
        begin = b"".join(call(stream, REFLECT) + frame(DATA, 0, stream, message(bytes(MIB))[:5])
                         for stream in streams)
        self.attack(self.service.grpc_port, opening() + begin,
                    b"".join(frame(DATA, 0, stream, bytes(10_000)) for stream in streams), rounds=6)

    def test_grpc_calls_that_never_begin(self):
        calls = b"".join(call(1 + 2 * number, RLS) for number in range(1_000))
        self.attack(self.service.grpc_port, opening() + calls, b"", rounds=1)

    def test_http_bodies_in_part(self):
        self.attack(self.service.port,
                    b"POST /api/v1/check HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n",
                    bytes(50_000), rounds=6)

    def test_http_answers_that_nobody_takes(self):
        self.attack(self.service.port, b"",
                    b"GET /openapi.json HTTP/1.1\r\nHost: h\r\n\r\n" * 100, rounds=2)

    def test_resp_replies_that_nobody_takes(self):
        self.attack(self.service.resp_port, b"", b"COMMAND DOCS\r\n" * 1_000, rounds=2)

    def test_resp_commands_in_part(self):
        self.attack(self.service.resp_port, b"*4\r\n", b"$50000\r\n" + b"x" * 50_000 + b"\r\n",
                    rounds=3)


class FreedMemoryTest(BoundsTest):
    def test_is_given_back_whatever_has_freed_it(self):
        service = self.serve("--buffered-bytes-max", str(256 * MIB))
        if is_sanitized(service):
            self.skipTest("the sanitizer keeps what is freed")
        before = resident_bytes(service)
        connections = 50
        clients = self.clients(service.grpc_port, connections)
        clients.send(opening() + b"".join(call(1 + 2 * number, RLS) + frame(DATA, 0, 1 + 2 * number,
                                                                            message(bytes(100))[:50])
                                          for number in range(1_000)))
        eventually(lambda: service.metric("sluice_buffered_bytes") > connections * 900 * 1024,
                   "all calls have come")
        grown = resident_bytes(service) - before
        self.assertGreater(grown, 24 * MIB)
        clients.close()
        eventually(lambda: resident_bytes(service) - before < grown / 3, "it is given back")


class DescriptorsTest(BoundsTest):
    FILES_MAX = 500

    def serve_with_few_files(self, *arguments):
        program = self.folder().write(
            "sluice", f'#!/bin/sh\nulimit -n {self.FILES_MAX}\nexec "{support.PROGRAM}" "$@"\n')
        os.chmod(program, 0o700)
        with unittest.mock.patch.object(support, "PROGRAM", program):
            return self.start("--threads", "2", "--resp", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
                              *arguments)

    def test_a_flood_of_connections_leaves_files_for_all_else(self):
        folder = self.folder()
        rules = folder.write("rules.yaml", RULES)
        snapshot = pathlib.Path(folder / "state.snapshot")
        service = self.serve_with_few_files("--rules", rules, "--rules-poll-interval", "1d",
                                            "--snapshot", str(snapshot),
                                            "--snapshot-interval", "50ms")
        if is_sanitized(service):
            self.skipTest("the sanitizer itself needs files")
        # Each door gets its share of what the program itself leaves.
        self.assertTrue(service.logged("WARN", f"files_max={self.FILES_MAX}"))
        for door, connections in (("http", 48), ("resp", 48), ("grpc", 48), ("admin", 20)):
            self.assertTrue(service.logged("WARN", f"door={door}",
                                           f"connections_max={connections}"))
        for port in (service.port, service.resp_port, service.grpc_port):
            self.clients(port, self.FILES_MAX)

        snapshot.unlink(missing_ok=True)
        eventually(snapshot.exists, "a snapshot is written")
        folder.replace("rules.yaml", RULES + "  - {id: later, rules: []}\n")
        self.assertEqual(service.admin("POST", "/admin/v1/reload").status, 200)
        self.assertEqual(service.admin("GET", "/admin/v1/rule-sets/later").status, 200)
        self.assertEqual(service.log_lines("cannot be accepted"), [])


if __name__ == "__main__":
    support.main()
