# SPDX-License-Identifier: Apache-2.0
"""No line of the cache moves from loop to loop with every request: all loops would wait for it,
however many cores there are.

Usage: lines_test.py SLUICE_LINES, which is the program with runtime.cc in it: it counts how often a
thread misses a line since another one has written it. Requests are sent one after the other, each
on another connection, so every line that two loops share is missed.
"""

import collections
import itertools
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

# pylint: disable=wrong-import-position
import support
from support import eventually

LOOPS = 4
CONNECTIONS = 48
KEYS = 1000
REQUESTS = 3000  # During a count.

# Of one line, for each request. What loops share are the shards of the memory store, of which there
# are 256; memory of a few of them may lie beside what one loop uses all the time.
MISSES_MAX = 1 / 8

RULES = """ruleSets:
  - id: api
    rules:
      - id: users
        scope: PER_USER
        match: {paths: "/v1/**"}
        bands:
          - {label: s, limit: 100000, window: 1s}
          - {label: d, algorithm: TOKEN_BUCKET, capacity: 100000, refill: 1, period: 1s}
"""

RLS = """domain: lines
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 100000}
"""


def field(number, payload):
    """A field of a message of protobuf, with bytes."""
    return bytes([number << 3 | 2, len(payload)]) + payload


def http2_frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(
        ">I", stream) + payload


def http2_header(name, value):
    """A literal field, not to be remembered."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


class LinesTest(support.ServiceTest):
    def serve(self, *arguments):
        folder = self.folder()
        self.counts = pathlib.Path(folder / "lines")
        return self.start("--threads", str(LOOPS), "--rules", folder.write("rules.yaml", RULES),
                          "--rls-config", os.path.dirname(folder.write("rls/rls.yaml", RLS)),
                          *arguments, env={"SLUICE_LINES": str(self.counts)})

    def count(self, service, port, ask, keys):
        """The misses of each line meanwhile, and where. `ask(sock, key)` asks one request, and
        returns with its answer."""
        sockets = []
        for _ in range(CONNECTIONS):
            sock = socket.create_connection(("127.0.0.1", port), timeout=support.PATIENCE)
            self.addCleanup(sock.close)
            sockets.append(sock)
        turns = zip(itertools.cycle(sockets), keys)
        # All connections and keys are known then.
        for sock, key in itertools.islice(turns, KEYS):
            ask(sock, key)
        service.send(signal.SIGUSR1)
        eventually(pathlib.Path(f"{self.counts}.begun").exists, "counting begins")
        for sock, key in itertools.islice(turns, REQUESTS):
            ask(sock, key)
        service.send(signal.SIGUSR2)
        eventually(self.counts.exists, "the count is written")
        misses = collections.defaultdict(dict)
        for line in self.counts.read_text("ascii").splitlines():
            first, *rest = line.split()
            if first == "base":
                self.base = int(rest[0], 16)
            elif first == "thread":
                thread = " ".join(rest)
            else:
                misses[first][thread] = (int(rest[0]), int(rest[1], 16))
        self.counts.unlink()
        return misses

    def place(self, address):
        found = subprocess.run(
            ["addr2line", "-Cfpie", support.PROGRAM, hex(address - self.base - 1)],
            capture_output=True, text=True, check=False).stdout
        return found.strip().replace("\n", " ") or hex(address)

    def check(self, service, port, ask, keys=None):
        misses = self.count(service, port, ask, keys or itertools.cycle(range(KEYS)))
        by_line = {line: sum(count for count, _ in threads.values())
                   for line, threads in misses.items()}
        print(f"{self.id()}: {sum(by_line.values()) / REQUESTS:.1f} lines missed by a request, the "
              f"most missed {max(by_line.values()) / REQUESTS:.3f} times", file=sys.stderr)
        # So that it is known to see what loops share.
        self.assertGreater(len(by_line), 256, "the shards of the memory store were not seen")
        wrong = [f"{line}: {total / REQUESTS:.2f} a request; "
                 + "; ".join(f"{thread}: {count} in {self.place(where)}"
                             for thread, (count, where) in misses[line].items())
                 for line, total in by_line.items() if total > MISSES_MAX * REQUESTS]
        self.assertEqual(wrong, [])

    def test_http(self):
        service = self.serve()
        self.check(service, service.port, self.ask_http)

    def test_keys_that_are_new(self):
        service = self.serve()
        self.check(service, service.port, self.ask_http, itertools.count())

    def ask_http(self, sock, key):
        sock.sendall(b"GET /api/v1/rate-limit/check?key=%d&algorithm=TOKEN_BUCKET HTTP/1.1\r\n"
                     b"Host: x\r\n\r\n" % key)
        self.answer(sock)

    def test_rules(self):
        def ask(sock, key):
            body = b'{"ruleSet":"api","context":{"userId":"%d","path":"/v1/x"}}' % key
            sock.sendall(b"POST /api/v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
                         % len(body) + body)
            self.answer(sock)

        service = self.serve()
        self.check(service, service.port, ask)

    def answer(self, sock):
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.receive(sock)
        head, body = data.split(b"\r\n\r\n", 1)
        self.assertIn(b"HTTP/1.1 200 ", head)
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
        while len(body) < length:
            body += self.receive(sock)

    def receive(self, sock):
        data = sock.recv(65536)
        self.assertTrue(data, "the service closed a connection")
        return data

    def test_resp(self):
        def ask(sock, key):
            sock.sendall(b"*5\r\n$11\r\nCL.THROTTLE\r\n$13\r\nuser:%08d\r\n$3\r\n100\r\n$4\r\n1000"
                         b"\r\n$2\r\n60\r\n" % key)
            data = b""
            while data.count(b"\r\n") < 6:
                data += self.receive(sock)
            self.assertTrue(data.startswith(b"*5\r\n:0\r\n"), data)

        service = self.serve("--resp", "127.0.0.1:0")
        self.check(service, service.resp_port, ask)

    def test_grpc(self):
        streams = {}

        def ask(sock, key):
            if sock not in streams:
                streams[sock] = itertools.count(1, 2)
                sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2_frame(4, 0, 0, b""))
            stream = next(streams[sock])
            entry = field(1, b"user") + field(2, b"user:%08d" % key)
            message = field(1, b"lines") + field(2, field(1, entry))
            headers = b"".join(http2_header(name, value) for name, value in (
                (b":method", b"POST"), (b":scheme", b"http"),
                (b":path", b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"),
                (b":authority", b"x"), (b"content-type", b"application/grpc"),
                (b"te", b"trailers")))
            sock.sendall(http2_frame(1, 4, stream, headers)
                         + http2_frame(0, 1, stream,
                                       b"\0" + struct.pack(">I", len(message)) + message))
            self.call_ends(sock, stream)

        service = self.serve("--grpc", "127.0.0.1:0")
        self.check(service, service.grpc_port, ask)

    def call_ends(self, sock, stream):
        """Reads frames until one ends the stream."""
        data = b""
        while True:
            while len(data) < 9 or len(data) < 9 + int.from_bytes(data[:3], "big"):
                data += self.receive(sock)
            size, kind, flags = int.from_bytes(data[:3], "big"), data[3], data[4]
            of = int.from_bytes(data[5:9], "big")
            data = data[9 + size:]
            self.assertIn(kind, (0, 1, 4, 8), "data, headers, settings or a window")
            if of == stream and kind in (0, 1) and flags & 1:
                self.assertEqual(data, b"")
                return


if __name__ == "__main__":
    support.main()
