# SPDX-License-Identifier: Apache-2.0
"""What no proper client sends, against the running service: smuggling, slow clients, too much of
everything, garbage. Good clients are served meanwhile.

Usage: service_http_test.py PROGRAM
"""

import contextlib
import json
import random
import socket
import threading
import time

import support
from support import Client, RawConnection, eventually

CHECK = b"/api/v1/rate-limit/check?key=k"


def get(path=b"/health/live", *lines):
    return b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n" + b"".join(
        line + b"\r\n" for line in lines) + b"\r\n"


class GoodClient:
    """Asks continuously, on its own connection, and records failures."""

    def __init__(self, service):
        self.service = service
        self.over = threading.Event()
        self.answered = 0
        self.failure = None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        client = Client(self.service.port, self.service.description)
        try:
            while not self.over.is_set():
                answer = client.request("GET", "/api/v1/rate-limit/remaining?key=good")
                if answer.status != 200:
                    raise AssertionError(f"a good client got {answer}")
                self.answered += 1
        except BaseException as error:  # pylint: disable=broad-except
            self.failure = error
        finally:
            client.close()

    def stop(self):
        self.over.set()
        self.thread.join()


class HttpTest(support.SharedServiceTest):
    ARGUMENTS = ("--threads", "2")

    def setUp(self):
        self.good = GoodClient(self.service)

    def tearDown(self):
        before = self.good.answered
        try:
            eventually(lambda: self.good.failure or self.good.answered > before,
                       "a good client is served")
        finally:
            self.good.stop()
        if self.good.failure:
            raise self.good.failure
        self.assertTrue(self.service.running())

    def talk(self, data, half_close=True):
        """Sends everything, and reads until the service closes the connection."""
        with RawConnection(self.service.port) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.send(data)
                if half_close:
                    connection.socket.shutdown(socket.SHUT_WR)
            return connection.read_until_closed()

    def answers(self, data):
        """All answers to what is sent, in order."""
        with RawConnection(self.service.port) as connection:
            connection.send(data)
            connection.socket.shutdown(socket.SHUT_WR)
            found = []
            with contextlib.suppress(ConnectionError):
                while True:
                    found.append(connection.read_answer())
            return found

    def assert_refused(self, data, status=400):
        """One answer with that status, after which the service closes the connection by itself:
        whatever follows is never taken for a request."""
        smuggled = get(b"/api/v1/rate-limit/check?key=smuggled&algorithm=SLIDING_WINDOW")
        before = self.left("smuggled")
        with RawConnection(self.service.port) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.send(data + smuggled)
            answer = connection.read_answer()
            self.assertEqual(answer.status, status, (data[:200], answer))
            self.assertEqual(answer.header("Connection"), "close")
            self.assertNotEqual(answer.json["error"]["code"], "")
            self.assertEqual(connection.read_until_closed(), b"")
        self.assertEqual(self.left("smuggled"), before)
        return answer

    def left(self, key):
        return self.service.get("/api/v1/rate-limit/remaining?algorithm=SLIDING_WINDOW&key="
                                + key).json["remaining"]


class Smuggling(HttpTest):
    BODY = b"POST /api/v1/check HTTP/1.1\r\nHost: x\r\n"

    def test_ambiguous_lengths(self):
        for headers in (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                        b"Content-Length: 5\r\nContent-Length: 6\r\n",
                        b"Content-Length: 5\r\nContent-Length: 5\r\n",
                        b"Content-Length: 5, 5\r\n", b"Content-Length: +5\r\n",
                        b"Content-Length: -1\r\n", b"Content-Length: 0x5\r\n",
                        b"Content-Length: 5 5\r\n", b"Content-Length:\r\n",
                        b"Content-Length: five\r\n",
                        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                        b"Content-Length : 5\r\n", b"Transfer-Encoding : chunked\r\n",
                        b" Content-Length: 5\r\n", b"Content-Length: 5\r\n x: y\r\n",
                        b"X: a\r\n\tb\r\n", b"Content-Length\r\n", b": 5\r\n",
                        b"X: a\x00b\r\n", b"X: a\rb\r\n", b"X\x00: a\r\n", b"X: a\nY: b\r\n"):
            with self.subTest(headers):
                self.assert_refused(self.BODY + headers + b"\r\n0\r\n\r\n")

    def test_codings_that_are_not_chunked(self):
        for value in (b"identity", b"gzip", b"gzip, chunked", b"chunked, identity", b"xchunked",
                      b"chunked;x=y", b'"chunked"', b"\x0bchunked"):
            with self.subTest(value):
                with RawConnection(self.service.port) as connection:
                    connection.send(self.BODY + b"Transfer-Encoding: " + value
                                    + b"\r\n\r\n0\r\n\r\n" + get())
                    answer = connection.read_answer()
                    self.assertIn(answer.status, (400, 501))
                    self.assertEqual(connection.read_until_closed(), b"")

    def test_bad_chunks(self):
        head = self.BODY + b"Transfer-Encoding: chunked\r\n\r\n"
        for body in (b"x\r\n", b"-1\r\n", b"+1\r\na\r\n", b"0x1\r\na\r\n", b"1 \r\na\r\n", b"\r\n",
                     b"1\na\r\n", b"1\r\nab\r\n0\r\n\r\n", b"2\r\nab0\r\n\r\n",
                     b"1\r\na\n0\r\n\r\n",
                     b"ffffffffffffffff1\r\n", b"1;a=\x00\r\na\r\n", b"0\r\nbad trailer\r\n\r\n",
                     b"0\r\nX: a\nY: b\r\n\r\n"):
            with self.subTest(body):
                self.assert_refused(head + body)

    def test_good_chunks(self):
        document = b'{"ruleSet":"none"}'
        body = b"".join(b"%x;ext=1\r\n%c\r\n" % (1, byte) for byte in document)
        request = (self.BODY + b"Transfer-Encoding: chunked\r\n\r\n" + body
                   + b"0\r\nTrailer: ignored\r\n\r\n")
        answers = self.answers(request + get())
        self.assertEqual([answer.status for answer in answers], [404, 200])

    def test_request_lines(self):
        for line, status in ((b"GET / HTTP/1.1\n", 400), (b"GET  / HTTP/1.1\r\n", 400),
                             (b"GET / HTTP/1.1 \r\n", 400), (b"GET /\r\n", 400),
                             (b"GET / HTTP/2.0\r\n", 505), (b"GET / HTTP/1.x\r\n", 400),
                             (b"GET / http/1.1\r\n", 400), (b" GET / HTTP/1.1\r\n", 400),
                             (b"G\x00T / HTTP/1.1\r\n", 400), (b"GET /\x00 HTTP/1.1\r\n", 400),
                             (b"GET /\x7f HTTP/1.1\r\n", 400), (b"GET x HTTP/1.1\r\n", 400),
                             (b"GET * HTTP/1.1\r\n", 400), (b"(GET) / HTTP/1.1\r\n", 400),
                             (b"CONNECT x:1 HTTP/1.1\r\n", 501),
                             (b"GET ftp://x/ HTTP/1.1\r\n", 400),
                             (b"\r\n\r\n\r\nGET / HTTP/1.1\r\n", 400)):
            with self.subTest(line):
                self.assert_refused(line + b"Host: x\r\n\r\n", status)

    def test_hosts(self):
        self.assert_refused(b"GET / HTTP/1.1\r\n\r\n")
        self.assert_refused(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
        self.assert_refused(b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n")
        self.assert_refused(b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n")

    def test_expectations(self):
        self.assert_refused(self.BODY + b"Expect: miracles\r\nContent-Length: 0\r\n\r\n", 417)
        with RawConnection(self.service.port) as connection:
            connection.send(self.BODY + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            self.assertEqual(connection.reader.readline(), b"HTTP/1.1 100 Continue\r\n")
            self.assertEqual(connection.reader.readline(), b"\r\n")
            connection.send(b"{}")
            self.assertEqual(connection.read_answer().status, 400)


class Bounds(HttpTest):
    def test_oversized_heads(self):
        self.assert_refused(get(b"/", b"X: " + b"a" * 20_000), 431)
        self.assert_refused(get(b"/", *[b"X: y"] * 200), 431)
        self.assert_refused(get(b"/" + b"a" * 9_000), 414)
        self.assert_refused(b"A" * 5_000 + b" / HTTP/1.1\r\nHost: x\r\n\r\n")

    def test_oversized_bodies(self):
        head = b"POST /api/v1/check HTTP/1.1\r\nHost: x\r\n"
        large = self.assert_refused(head + b"Content-Length: 1048577\r\n\r\n", 413)
        self.assertIn("at most 1048576 bytes; see http.bodyBytesMax",
                      large.json["error"]["message"])
        self.assert_refused(head + b"Content-Length: 99999999999999999999999\r\n\r\n", 413)
        self.assert_refused(head + b"Transfer-Encoding: chunked\r\n\r\n100001\r\n", 413)
        # The largest body allowed is read, and then judged.
        answer, = self.answers(head + b"Content-Length: 1048576\r\n\r\n" + b"[" * 1_048_576)
        self.assertEqual(answer.status, 400)
        self.assertEqual(answer.json["error"]["code"], "INVALID_INPUT")

    def test_bounds_can_be_set(self):
        service = self.start("--http-header-bytes-max", "1024", "--http-body-bytes-max", "1024")
        self.assertEqual(service.get("/health", X_Long="a" * 500).status, 200)
        for data, status in ((get(b"/", b"X: " + b"a" * 2000), 431),
                             (b"POST /api/v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 1025\r\n"
                              b"\r\n", 413)):
            with RawConnection(service.port) as connection:
                connection.send(data)
                self.assertEqual(connection.read_answer().status, status)

    def test_connections_are_bounded(self):
        service = self.start("--http-connections-max", "10", "--http-idle-timeout", "60s")
        held = []
        for _ in range(10):
            connection = RawConnection(service.port)
            self.addCleanup(connection.close)
            connection.send(get())
            self.assertEqual(connection.read_answer().status, 200)
            held.append(connection)
        with RawConnection(service.port) as refused:
            with contextlib.suppress(ConnectionError):
                refused.send(get())
            self.assertEqual(refused.read_until_closed(), b"")
        # Existing ones are still served, and a free place is taken.
        held[0].send(get())
        self.assertEqual(held[0].read_answer().status, 200)
        held[1].close()

        def served():
            with RawConnection(service.port) as another:
                try:
                    another.send(get())
                    return another.read_answer().status == 200
                except ConnectionError:
                    return False

        eventually(served, "there is room again")


class Pipelining(HttpTest):
    def test_answers_in_order(self):
        count = 500
        request = b"".join(get(b"/api/v1/rate-limit/check?algorithm=SLIDING_WINDOW&key=p%d"
                               % (number % 7)) for number in range(count))
        answers = self.answers(request)
        self.assertEqual([answer.json["key"] for answer in answers],
                         [f"p{number % 7}" for number in range(count)])

    def test_mixed_methods_and_bodies(self):
        body = b'{"ruleSet":"none"}'
        post = (b"POST /api/v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
                + body)
        answers = self.answers(get() + post + get(b"/nope") + post + get(b"/openapi.json") + get())
        self.assertEqual([answer.status for answer in answers], [200, 404, 404, 404, 200, 200])

    def test_byte_by_byte(self):
        data = get(b"/health/live") + get(b"/health/ready")
        with RawConnection(self.service.port) as connection:
            connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in data:
                connection.send(bytes([byte]))
            self.assertEqual(connection.read_answer().status, 200)
            self.assertEqual(connection.read_answer().status, 200)

    def test_close_and_http_1_0(self):
        answers = self.answers(get(b"/health/live", b"Connection: close") + get())
        self.assertEqual(len(answers), 1)
        self.assertEqual(answers[0].header("Connection"), "close")
        self.assertEqual(len(self.answers(b"GET / HTTP/1.0\r\n\r\n" + get())), 1)
        kept = self.answers(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + get())
        self.assertEqual(len(kept), 2)

    def test_a_client_that_does_not_read_is_not_served_without_end(self):
        with RawConnection(self.service.port) as connection:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.socket.settimeout(0.2)
            request = get(b"/openapi.json") * 200
            sent = 0
            with contextlib.suppress(TimeoutError, BlockingIOError):
                while sent < 50_000_000:
                    sent += connection.socket.send(request)
            # It is no longer read from: its answers have nowhere to go.
            self.assertLess(sent, 50_000_000)
            memory = self.service.metric("process_resident_memory_bytes")
            self.assertLess(memory, 500_000_000)


class SlowClients(HttpTest):
    # Long enough that a good client does not look slow on a busy machine.
    ARGUMENTS = ("--threads", "2", "--http-header-timeout", "3s", "--http-idle-timeout", "4s")

    def test_slow_heads_end(self):
        with RawConnection(self.service.port) as connection:
            connection.send(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
            answer = connection.read_answer()
            self.assertEqual(answer.status, 408)
            self.assertEqual(connection.read_until_closed(), b"")

    def test_a_drop_now_and_then_does_not_help(self):
        with RawConnection(self.service.port) as connection:
            connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
            deadline = time.monotonic() + support.PATIENCE
            ended = False
            while not ended and time.monotonic() < deadline:
                try:
                    connection.send(b"X: y\r\n")
                except OSError:
                    ended = True
                connection.socket.settimeout(0.05)
                try:
                    ended = ended or connection.socket.recv(1000)[:12] == b"HTTP/1.1 408"
                except TimeoutError:
                    pass
                except OSError:
                    ended = True
            self.assertTrue(ended)

    def test_silent_connections_end(self):
        with RawConnection(self.service.port) as connection:
            self.assertEqual(connection.read_until_closed(), b"")
        with RawConnection(self.service.port) as connection:
            connection.send(get())
            self.assertEqual(connection.read_answer().status, 200)
            self.assertEqual(connection.read_until_closed(), b"")

    def test_many_of_them_keep_nobody_out(self):
        held = []
        for _ in range(300):
            connection = RawConnection(self.service.port)
            self.addCleanup(connection.close)
            connection.send(b"GET / HTT")
            held.append(connection)
        self.assertEqual(self.service.get("/health").status, 200)
        for connection in held[:20]:
            self.assertEqual(connection.read_answer().status, 408)


class Garbage(HttpTest):
    def test_random_bytes(self):
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {seed}")
        source = random.Random(seed)
        for _ in range(100):
            self.talk(source.randbytes(source.randrange(1, 5000)))

    def test_other_protocols(self):
        for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,  # TLS
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"*1\r\n$4\r\nPING\r\n\r\n",
                     b"SSH-2.0-OpenSSH\r\n\r\n", b"\x00" * 1000, b"\n" * 1000, b"\r\n" * 1000,
                     b"<policy-file-request/>\x00"):
            with self.subTest(data[:20]):
                # It gets the answer without having closed its end of the connection.
                answer = self.talk(data, half_close=False)
                self.assertRegex(answer, rb"^HTTP/1\.1 (400|505) ")

    def test_mutated_requests(self):
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {seed}")
        source = random.Random(seed)
        body = json.dumps({"ruleSet": "x", "context": {"ip": "1.2.3.4"}}).encode()
        good = (b"POST /api/v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
                + body)
        for _ in range(150):
            data = bytearray(good)
            for _ in range(source.randrange(1, 4)):
                data[source.randrange(len(data))] = source.randrange(256)
            answer = self.talk(bytes(data))
            if answer:
                self.assertTrue(answer.startswith(b"HTTP/1.1 "), (bytes(data), answer[:100]))

    def test_connections_that_vanish(self):
        for _ in range(50):
            with RawConnection(self.service.port) as connection:
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                             b"\x01\x00\x00\x00\x00\x00\x00\x00")
                connection.send(get(CHECK) * 20)
        self.assertEqual(self.service.get("/health").status, 200)


if __name__ == "__main__":
    support.main()
