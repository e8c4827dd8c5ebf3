# SPDX-License-Identifier: Apache-2.0
"""The service with many clients at once, and at its beginning and end: exactness, draining,
restarts, ports that are taken, and a Redis that is not there yet.

Usage: service_concurrency_test.py PROGRAM
"""

import contextlib
import http.client
import json
import os
import pathlib
import resource
import signal
import socket
import struct
import threading
import time

import support
from support import (AGES, Client, RawConnection, eventually, eventually_get, free_port, in_threads,
                     sluice, target, verdicts)

REQUESTS = 1000
THREADS = 50
LIMIT = 137

RULES = f"""ruleSets:
  - id: api
    rules:
      - id: r
        scope: PER_USER
        bands:
          - {{label: token, algorithm: TOKEN_BUCKET, capacity: {LIMIT}, refill: 1, period: {AGES}}}
          - {{label: fixed, algorithm: FIXED_WINDOW, limit: {2 * LIMIT}, window: {AGES}}}
      - id: log
        scope: PER_API_KEY
        bands: [{{label: l, algorithm: SLIDING_WINDOW, limit: {LIMIT}, window: {AGES}}}]
      - id: closed
        scope: PER_USER
        match: {{paths: /closed}}
        onStoreFailure: FAIL_CLOSED
        bands: [{{label: c, algorithm: FIXED_WINDOW, limit: 10, window: {AGES}}}]
      - id: local
        scope: PER_IP
        onStoreFailure: LOCAL
        bands: [{{label: l, algorithm: FIXED_WINDOW, limit: 2, window: {AGES}}}]
"""


class ExactTest(support.ServiceTest):
    def rules(self):
        return self.folder().write("rules.yaml", RULES)

    def ask_all(self, services, context):
        """Asks this many times at once, each on its own connection, and returns the decisions. All
        requests are sent before any answer is read."""
        body = json.dumps({"ruleSet": "api", "context": context}).encode()
        request = (b"POST /api/v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
                   % len(body) + body)
        with contextlib.ExitStack() as stack:
            asked = []
            for number in range(REQUESTS):
                service = services[number % len(services)]
                asked.append((service, stack.enter_context(RawConnection(service.port))))
            for _, connection in asked:
                connection.send(request)
            decisions = []
            for service, connection in asked:
                answer = connection.read_answer()
                service.description.check("POST", "/api/v1/check", answer)
                decisions.append(answer.json)
            return decisions

    def assert_exact(self, services, context, limit):
        decisions = self.ask_all(services, context)
        self.assertEqual(len(decisions), REQUESTS)
        self.assertEqual({decision["source"] for decision in decisions} - {"deny-cache"}, {"store"})
        allowed = [decision for decision in decisions if decision["allowed"]]
        self.assertEqual(len(allowed), limit)
        # Each of them got its own unit.
        self.assertEqual(sorted(decision["remaining"] for decision in allowed), list(range(limit)))


class Memory(ExactTest):
    def test_exactly_as_many_as_the_limit_pass(self):
        service = self.start("--rules", self.rules(), "--threads", "4")
        self.assert_exact([service], {"userId": "ann"}, LIMIT)
        self.assert_exact([service], {"apiKey": "key"}, LIMIT)

    def test_under_the_plain_api(self):
        service = self.start("--threads", "3")
        check = target("/api/v1/rate-limit/check", key="k", algorithm="SLIDING_WINDOW")

        def work(_):
            client = service.client()
            try:
                return [client.request("GET", check).status for _ in range(REQUESTS // THREADS)]
            finally:
                client.close()

        statuses = [status for some in in_threads(THREADS, work) for status in some]
        self.assertEqual((statuses.count(200), statuses.count(429)), (100, REQUESTS - 100))


class Redis(ExactTest):
    def test_two_instances_share_exactly_the_limit(self):
        redis = self.redis()
        rules = self.rules()
        services = [self.start("--rules", rules, *redis.patient_store()) for _ in range(2)]
        self.assert_exact(services, {"userId": "ann"}, LIMIT)
        self.assert_exact(services, {"apiKey": "key"}, LIMIT)
        # What one has seen the other one knows, and it survives both.
        for service in services:
            self.assertEqual(service.check("api", userId="ann").status, 429)
            self.assertEqual(service.stop(), 0)
        again = self.start("--rules", rules, *redis.patient_store())
        self.assertEqual(again.check("api", userId="ann").status, 429)
        self.assertEqual(again.check("api", userId="bob").status, 200)
        # No state lives forever.
        for key in redis.cli("keys", "*").split():
            self.assertNotEqual(redis.cli("pttl", key).strip(), "-1", key)

    def test_reset_is_seen_by_all(self):
        redis = self.redis()
        one, two = (self.start(*redis.patient_store()) for _ in range(2))
        check = target("/api/v1/rate-limit/check", key="k", algorithm="SLIDING_WINDOW", permits=100)
        self.assertEqual(one.get(check).status, 200)
        self.assertEqual(two.get(check).status, 429)
        one.request("DELETE", target("/api/v1/rate-limit/reset", key="k",
                                     algorithm="SLIDING_WINDOW"))
        self.assertEqual(one.get(check).status, 200)


class WithoutRedis(ExactTest):
    def test_it_starts_serves_by_policy_and_takes_redis_when_it_comes(self):
        port = free_port()
        started = time.monotonic()
        service = self.start("--rules", self.rules(), "--store", f"redis://127.0.0.1:{port}",
                             "--instances", "1")
        self.assertLess(time.monotonic() - started, support.PATIENCE / 2)

        answer = service.check("api", userId="ann")
        self.assertEqual((answer.status, answer.json["source"]), (200, "fail-open"))
        self.assertEqual(answer.header("X-Sluice-Source"), "fail-open")
        self.assertEqual((verdicts(answer), answer.json["charged"]), (["undecided"], False))
        plain = service.get(target("/api/v1/rate-limit/check", key="k"))
        self.assertEqual((plain.status, plain.json["source"]), (200, "fail-open"))
        closed = service.check("api", userId="ann", path="/closed")
        self.assertEqual(closed.status, 503)
        self.assertIsNone(closed.header("Retry-After"))  # R12: nobody knows when.
        local = [service.check("api", ip="192.0.2.1") for _ in range(3)]
        self.assertEqual([answer.status for answer in local], [200, 200, 429])
        self.assertEqual({answer.json["source"] for answer in local}, {"local"})
        self.assertEqual([verdicts(answer) for answer in local],
                         [["charged"], ["charged"], ["denied"]])
        both = [service.check("api", userId="ann", ip="192.0.2.2") for _ in range(3)]
        self.assertEqual([(verdicts(answer), answer.json["charged"]) for answer in both],
                         [(["undecided", "charged"], True)] * 2
                         + [(["not-charged", "denied"], False)])
        batch = service.request("POST", "/api/v1/check/batch", {"checks": [
            {"ruleSet": "api", "context": {"userId": "a"}},
            {"ruleSet": "api", "context": {"userId": "a", "path": "/closed"}}]}).json["results"]
        self.assertEqual([result["status"] for result in batch], [200, 503])

        # It is worth an alert, not a restart.
        self.assertEqual(service.get("/health/ready").status, 200)
        self.assertEqual(service.get("/health/live").status, 200)
        health = eventually_get(lambda: service.get("/health").json,
                                lambda health: health["status"] == "DEGRADED",
                                "the health says so")
        self.assertEqual(health["store"]["status"], "DOWN")
        self.assertNotEqual(health["store"]["problem"], "")
        metrics = service.metrics()
        self.assertGreaterEqual(
            metrics["sluice_degraded_decisions_total", frozenset({("source", "fail_open")})], 3)
        self.assertGreaterEqual(
            metrics["sluice_degraded_decisions_total", frozenset({("source", "local")})], 3)
        for policy in ("FAIL_OPEN", "FAIL_CLOSED", "LOCAL"):
            self.assertGreater(
                metrics["sluice_store_failures_total", frozenset({("policy", policy)})], 0)
        self.assertTrue(service.logged("WARN", "decided without the store"))

        redis = self.redis(port=port)
        eventually(lambda: service.check("api", userId="zoe").json["source"] == "store",
                   "Redis decides")
        health = eventually_get(lambda: service.get("/health").json,
                                lambda health: health["status"] == "UP", "the health says so")
        store = health["store"]
        self.assertEqual((store["kind"], store["status"]), ("standalone", "UP"))
        self.assertGreater(store["latencyMicros"], 0)
        self.assertNotEqual(redis.cli("keys", "*").strip(), "")

    def test_it_survives_the_loss_of_redis(self):
        redis = self.redis()
        service = self.start("--rules", self.rules(), "--store", redis.uri)
        eventually(lambda: service.check("api", userId="a").json["source"] == "store", "it is used")
        redis.kill()
        eventually(lambda: service.check("api", userId="a").json["source"] == "fail-open",
                   "the policy decides")
        back = self.redis(port=redis.port)
        eventually(lambda: service.check("api", userId="a").json["source"] == "store",
                   "Redis decides again")
        self.assertNotEqual(back.cli("dbsize").strip(), "0")

    def test_fail_closed_for_checks_without_a_rule(self):
        service = self.start("--store", f"redis://127.0.0.1:{free_port()}",
                             "--http-on-store-failure", "FAIL_CLOSED")
        answer = service.get(target("/api/v1/rate-limit/check", key="k"))
        self.assertEqual(answer.status, 503)
        # Which one depends on whether the refusal or the deadline comes first.
        self.assertIn(answer.json["error"]["code"], ("UNAVAILABLE", "OUTCOME_UNKNOWN"))
        reset = service.request("DELETE", target("/api/v1/rate-limit/reset", key="k"))
        self.assertEqual(reset.status, 503)


class Drain(support.ServiceTest):
    def hammer(self, service, over, results):
        """Requests on one connection after another. A request counts as lost if it was sent on a
        connection that the service had neither refused nor announced to close."""
        while not over.is_set():
            client = Client(service.port)
            try:
                client.connection.connect()
            except OSError:
                return  # It no longer listens.
            with contextlib.closing(client):
                while True:
                    try:
                        answer = client.request("GET", "/api/v1/rate-limit/check?key=k")
                    except (ConnectionError, http.client.HTTPException) as error:
                        results.append(error)
                        break
                    results.append(answer.status)
                    if answer.header("Connection") == "close":
                        return

    def test_no_request_that_was_received_is_lost(self):
        for round_number in range(3):
            with self.subTest(round=round_number):
                service = self.start()
                over = threading.Event()
                results = [[] for _ in range(8)]
                threads = [threading.Thread(target=self.hammer, args=(service, over, some))
                           for some in results]
                for thread in threads:
                    thread.start()
                eventually(lambda r=results: all(len(some) > 20 for some in r), "there is load")
                counted = service.metrics()  # So that there was a scrape, too.
                self.assertTrue(counted)
                self.assertEqual(service.stop(), 0)
                over.set()
                for thread in threads:
                    thread.join()
                statuses = [status for some in results for status in some]
                # A client that writes at the very moment when an idle connection is closed sees it
                # closed before any answer; its request was not received. At most one each.
                for some in results:
                    self.assertEqual([status for status in some[:-1]
                                      if status not in (200, 429)], [])
                self.assertGreater(len(statuses), 160)
                self.assertTrue(service.logged("stopped", "connections_cut=0"))

    def test_what_was_sent_before_the_signal_is_answered(self):
        service = self.start("--threads", "2")
        connections = [RawConnection(service.port) for _ in range(20)]
        for connection in connections:
            self.addCleanup(connection.close)
            connection.send(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertEqual(connection.read_answer().status, 200)
        # The service cannot read these before it hears of its end.
        service.send(signal.SIGSTOP)
        for number, connection in enumerate(connections):
            request = f"GET /api/v1/rate-limit/check?key=d{number} HTTP/1.1\r\nHost: x\r\n\r\n"
            connection.send(request.encode() * 3)
        service.send(signal.SIGTERM)
        service.send(signal.SIGCONT)
        for connection in connections:
            answers = [connection.read_answer() for _ in range(3)]
            self.assertEqual([answer.json["remaining"] for answer in answers], [99, 98, 97])
            self.assertEqual(connection.read_until_closed(), b"")
        self.assertEqual(service.wait(), 0)

    def test_a_request_in_the_middle_is_waited_for(self):
        service = self.start()
        with RawConnection(service.port) as slow:
            slow.send(b"POST /api/v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{")
            # It is known to be read: an answer on another connection of the same loop would not
            # prove that.
            eventually(lambda: self.unread(slow) == 0, "the service has read it")
            service.send(signal.SIGTERM)
            eventually(lambda: self.refuses(service), "no new connections are taken")
            self.assertTrue(service.running())
            slow.send(b'"ruleSet":"x"}')
            self.assertEqual(slow.read_answer().status, 404)
        self.assertEqual(service.wait(), 0)

    def refuses(self, service):
        try:
            RawConnection(service.port).close()
            return False
        except OSError:
            return True

    def unread(self, connection):
        """Bytes that the other side has not read, according to the system."""
        local = "%02X%02X%02X%02X:%04X" % (1, 0, 0, 127, connection.socket.getsockname()[1])
        with open("/proc/net/tcp", encoding="ascii") as table:
            for line in table:
                fields = line.split()
                if fields[2] == local:
                    return int(fields[4].split(":")[1], 16)
        return None

    def test_the_drain_has_an_end(self):
        service = self.start("--drain-timeout", "200ms")
        with RawConnection(service.port) as stuck:
            stuck.send(b"POST /api/v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{")
            eventually(lambda: self.unread(stuck) == 0, "the service has read it")
            self.assertEqual(service.stop(), 0)
        self.assertTrue(service.logged("connections_cut=1"))

    def test_a_second_signal_does_not_wait(self):
        service = self.start()
        with RawConnection(service.port) as stuck:
            stuck.send(b"POST /api/v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{")
            eventually(lambda: self.unread(stuck) == 0, "the service has read it")
            service.send(signal.SIGTERM)
            eventually(lambda: service.log_lines("draining"), "it drains")
            service.send(signal.SIGINT)
            self.assertEqual(service.wait(), 2)

    def test_readiness_ends_with_the_signal(self):
        service = self.start()
        with RawConnection(service.port) as slow:
            # Two requests at once; the second is complete only after the signal.
            slow.send(b"GET /health/ready HTTP/1.1\r\nHost: x\r\n\r\nGET /health/rea")
            self.assertEqual(slow.read_answer().status, 200)
            eventually(lambda: self.unread(slow) == 0, "the service has read it")
            service.send(signal.SIGTERM)
            eventually(lambda: service.log_lines("draining"), "it drains")
            slow.send(b"dy HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = slow.read_answer()
            self.assertEqual(answer.status, 503)
            self.assertEqual(answer.json["status"], "OUT_OF_SERVICE")
        self.assertEqual(service.wait(), 0)

    def test_signals_count_from_the_first_line_on(self):
        for signal_number, status in ((signal.SIGTERM, 0), (signal.SIGINT, 0)):
            service = support.Service(wait=False)
            self.addCleanup(service.remove)
            eventually(lambda s=service: "listening" in s.output(), "the first line", 60)
            service.send(signal_number)
            self.assertEqual(service.wait(), status)


YEAR = 365 * 24 * 3600

# No test run sees its end, but it is short compared to years.
THREE_A_DAY = """ruleSets:
  - id: three
    rules:
      - {id: r, scope: PER_IP, bands: [{label: l, algorithm: SLIDING_WINDOW, limit: 3, window: 1d}]}
"""


class Clocks(support.ServiceTest):
    """With a wall clock that is set while the service runs; see tests/support/clock_shift.cc."""

    def setUp(self):
        super().setUp()
        folder = self.folder()
        self.path = folder / "shift"
        self.shift(0)
        self.rules = folder.write("rules.yaml", THREE_A_DAY)
        library = pathlib.Path(support.PROGRAM).parent / "tests" / "libsluice_clock_shift.so"
        self.clock = {"LD_PRELOAD": str(library), "CLOCK_SHIFT_FILE": self.path,
                      "ASAN_OPTIONS": "verify_asan_link_order=0"}

    def shift(self, seconds):
        """Sets the clock this far ahead of the real one."""
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT)
        try:
            os.pwrite(file, struct.pack("q", seconds), 0)  # In one piece: the reader maps it.
        finally:
            os.close(file)

    def start_with_clock(self, *arguments):
        return self.start("--rules", self.rules, *arguments, env=self.clock)

    def check(self, service, address="192.0.2.1"):
        answer = service.check("three", ip=address)
        self.assertIn(answer.status, (200, 429), answer)
        return answer.status == 200

    def test_what_a_clock_ahead_has_written_locks_nobody_out(self):
        file = self.folder() / "state"
        service = self.start_with_clock("--snapshot", file)
        self.shift(10 * YEAR)
        eventually(lambda: service.log_lines("WARN", "clock was set forward"), "it is followed")
        self.assertEqual([self.check(service) for _ in range(4)], [True, True, True, False])
        self.shift(0)
        self.assertEqual(service.stop(), 0)

        again = self.start_with_clock("--snapshot", file)
        self.assertTrue(again.logged("WARN", "states were not restored", "keys=1"))
        self.assertEqual(again.metric("sluice_snapshot_states_dropped_total"), 1)
        self.assertEqual([self.check(again) for _ in range(4)], [True, True, True, False])

    def test_a_time_beyond_all_arithmetic_is_not_followed(self):
        service = self.start_with_clock()
        self.assertEqual([self.check(service) for _ in range(2)], [True, True])
        for years in (100, -100):
            self.shift(years * YEAR)
            health = eventually_get(lambda: service.get("/health").json,
                                    lambda answer: answer["status"] == "DEGRADED", "it is told")
            self.assertIn("clock", health)
            self.assertTrue(service.logged("ERROR", "clock cannot be right"))
            self.assertEqual(service.get("/health/ready").status, 200)
            self.assertTrue(self.check(service, f"198.51.100.{100 + years}"))
        self.assertEqual([self.check(service) for _ in range(2)], [True, False])
        self.shift(0)
        health = eventually_get(lambda: service.get("/health").json,
                                lambda answer: answer["status"] == "UP", "it is right again")
        self.assertNotIn("clock", health)
        self.assertFalse(self.check(service), "nothing was forgotten")

    def test_decides_when_it_starts_with_such_a_clock(self):
        self.shift(100 * YEAR)
        service = self.start_with_clock()
        self.assertEqual(service.get("/health").json["status"], "DEGRADED")
        self.assertTrue(service.logged("ERROR", "clock cannot be right"))
        self.assertEqual([self.check(service) for _ in range(4)], [True, True, True, False])
        self.shift(0)
        eventually(lambda: service.get("/health").json["status"] == "UP", "it is right again")
        self.assertTrue(self.check(service), "more than a window has passed")


class Snapshots(support.ServiceTest):
    CHECK = target("/api/v1/rate-limit/check", key="k", algorithm="SLIDING_WINDOW", permits=30)

    def left(self, service):
        return service.get(target("/api/v1/rate-limit/remaining", key="k",
                                  algorithm="SLIDING_WINDOW")).json["remaining"]

    # The same with RULES, in a window that does not end.
    @staticmethod
    def take(service):
        service.check("api", apiKey="k")

    @staticmethod
    def taken(service):
        return LIMIT - service.check("api", permits=0, apiKey="k").json["remaining"]

    def test_state_survives_a_restart(self):
        file = self.folder() / "state"
        service = self.start("--snapshot", file)
        service.get(self.CHECK)
        self.assertEqual(service.stop(), 0)
        again = self.start("--snapshot", file)
        self.assertTrue(again.logged("state restored", "keys=1"))
        self.assertEqual(self.left(again), 70)

    def test_state_survives_a_kill(self):
        file = self.folder() / "state"
        service = self.start("--snapshot", file, "--snapshot-interval", "20ms")
        service.get(self.CHECK)
        # Written at least once after the check: two more of them begin.
        for _ in range(2):
            seen = os.stat(file).st_ino if os.path.exists(file) else None
            eventually(lambda s=seen: os.path.exists(file) and os.stat(file).st_ino != s,
                       "another snapshot")
        service.kill()
        self.assertEqual(self.left(self.start("--snapshot", file)), 70)

    def test_a_snapshot_belongs_to_one_instance(self):
        folder = self.folder()
        file = folder / "state"
        service = self.start("--snapshot", file)
        service.get(self.CHECK)
        being_written = folder.write("state.tmp", "another's work")
        second = sluice("serve", "--snapshot", file, "--http", "127.0.0.1:0", "--admin", "")
        self.assertEqual((second.returncode, second.stdout), (2, ""))
        self.assertRegex(second.stderr, r"^store: .*state.* is in use by another process.*"
                                        r"state\.lock.*; expected .*\n$")
        self.assertTrue(os.path.exists(being_written))
        # However the first ends, the next one can have it, and its state.
        service.kill()
        again = self.start("--snapshot", file)
        again.get(self.CHECK)
        self.assertEqual(again.stop(), 0)
        self.assertEqual(self.left(self.start("--snapshot", file)), 70)

    def test_a_snapshot_belongs_to_one_instance_whatever_it_is_called(self):
        folder = self.folder()
        rules = folder.write("rules.yaml", RULES)
        os.makedirs(folder / "real")
        os.symlink("real", folder / "folder")
        os.symlink("folder/state", folder / "link")  # Leads nowhere until a snapshot is written.
        os.symlink("link", folder / "link2")
        service = self.start("--rules", rules, "--snapshot", folder / "real/state",
                             "--snapshot-interval", "20ms")
        self.take(service)
        relative = os.path.relpath(folder / "real/state")

        def refused(*names):
            for name in names:
                second = sluice("serve", "--snapshot", name, "--http", "127.0.0.1:0", "--admin", "")
                self.assertEqual((second.returncode, second.stdout), (2, ""), name)
                self.assertIn("is in use by another process", second.stderr)

        refused(folder / "link", folder / "link2", folder / "folder/state", relative,
                folder / "real/../real/state")
        eventually(lambda: os.path.exists(folder / "real/state"), "a snapshot")
        refused(folder / "link", folder / "link2", folder / "folder/state")
        self.assertEqual(service.stop(), 0)

        # By its other name it is the same file, and keeps both.
        again = self.start("--rules", rules, "--snapshot", folder / "link2")
        self.assertEqual(self.taken(again), 1)
        os.link(folder / "real/state", folder / "other")
        refused(folder / "real/state", folder / "other")
        self.take(again)
        self.assertEqual(again.stop(), 0)
        self.assertTrue(os.path.islink(folder / "link2"))
        last = self.start("--rules", rules, "--snapshot", folder / "real/state")
        self.assertEqual(self.taken(last), 2)

    def test_a_snapshot_that_may_not_grow_is_an_error_and_not_the_end(self):
        folder = self.folder()
        rules = folder.write("rules.yaml", RULES)
        file = folder / "state"
        service = self.start("--rules", rules, "--snapshot", file, "--snapshot-interval", "200ms")
        self.take(service)
        for _ in range(2):
            seen = os.stat(file).st_ino if os.path.exists(file) else None
            eventually(lambda s=seen: os.path.exists(file) and os.stat(file).st_ino != s,
                       "another snapshot")
        hard = resource.prlimit(service.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (8_000, hard))
        eventually(lambda: service.metric("sluice_snapshots_failed_total") >= 2, "it fails")
        self.assertIn("File too large", service.get("/health").json["store"]["snapshot"]["problem"])
        self.assertEqual(self.taken(service), 1)
        self.assertTrue(os.path.getsize(file) > 8_000, "the old one stays")
        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (hard, hard))
        eventually(lambda: "problem" not in service.get("/health").json["store"]["snapshot"],
                   "it is written again")
        service.kill()
        self.assertEqual(self.taken(self.start("--rules", rules, "--snapshot", file)), 1)

    def test_a_damaged_snapshot_is_set_aside(self):
        folder = self.folder()
        file = folder / "state"
        service = self.start("--snapshot", file)
        service.get(self.CHECK)
        service.stop()
        with open(file, "r+b") as state:
            state.seek(-1, os.SEEK_END)
            last = state.read(1)
            state.seek(-1, os.SEEK_END)
            state.write(bytes([last[0] ^ 0xFF]))
        again = self.start("--snapshot", file)
        self.assertTrue(again.logged("ERROR", "damaged", "starting empty"))
        self.assertEqual(self.left(again), 100)
        self.assertTrue([name for name in os.listdir(str(folder)) if "damaged" in name])

    def test_garbage_is_no_snapshot(self):
        folder = self.folder()
        for content in ("", "hello", "x" * 100_000):
            service = self.start("--snapshot", folder.write("state", content))
            self.assertEqual(self.left(service), 100)
            self.assertTrue(service.logged("ERROR", "damaged"))
            service.kill()

    def test_when_the_last_snapshot_was_written(self):
        self.assertNotIn("snapshot", self.start().get("/health").json["store"])
        before = int(time.time())
        service = self.start("--snapshot", self.folder() / "state", "--snapshot-interval", "20ms")
        eventually(lambda: service.metric("sluice_snapshot_saved_seconds") >= before,
                   "one is written")
        snapshot = service.get("/health").json["store"]["snapshot"]
        self.assertEqual(snapshot["failures"], 0)
        self.assertGreaterEqual(snapshot["savedAtSeconds"], before)
        self.assertEqual(service.metric("sluice_snapshots_failed_total"), 0)

    def test_a_place_that_can_no_longer_be_written_is_told(self):
        folder = self.folder()
        service = self.start("--snapshot", folder / "state", "--snapshot-interval", "50ms")
        folder.remove()
        eventually(lambda: service.log_lines("ERROR", "snapshot was not written"), "it is logged")
        eventually(lambda: service.metric("sluice_snapshots_failed_total") > 0, "it is counted")
        snapshot = service.get("/health").json["store"]["snapshot"]
        self.assertGreater(snapshot["failures"], 0)
        self.assertIn("state", snapshot["problem"])
        self.assertEqual(service.get(self.CHECK).status, 200)


class Ports(support.ServiceTest):
    def assert_one_line(self, done, pattern):
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertRegex(done.stderr, pattern)

    def test_a_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            for flag, other in (("--http", "--admin"), ("--admin", "--http")):
                done = sluice("serve", flag, address, other, "127.0.0.1:0")
                self.assert_one_line(done, f"^{flag[2:]}: .*{address}.*in use")

    def test_a_second_instance(self):
        service = self.start()
        done = sluice("serve", "--http", f"127.0.0.1:{service.port}", "--admin", "127.0.0.1:0")
        self.assert_one_line(done, "in use")
        self.assertEqual(service.get("/health").status, 200)

    def test_addresses_that_are_none(self):
        for address in ("nonsense", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x", ":", "[::1"):
            done = sluice("serve", "--http", address, "--admin", "127.0.0.1:0")
            self.assert_one_line(done, "http.listen")
        done = sluice("serve", "--http", "192.0.2.1:0", "--admin", "127.0.0.1:0")
        self.assert_one_line(done, r"^http: .*192\.0\.2\.1")

    def test_one_port_can_have_many_instances_after_another(self):
        port = free_port()
        for _ in range(3):
            service = self.start("--http", f"127.0.0.1:{port}")
            self.assertEqual(service.port, port)
            self.assertEqual(service.get("/health").status, 200)
            self.assertEqual(service.stop(), 0)


if __name__ == "__main__":
    support.main()
