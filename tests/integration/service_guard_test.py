# SPDX-License-Identifier: Apache-2.0
"""What the guard provides: denials that instances remember, and end together; a start without
Redis.

Usage: service_guard_test.py PROGRAM
"""

import signal
import socket
import time

import support
from support import AGES, RawConnection, eventually, target

CHECK = "/api/v1/rate-limit/check"
RESET = "/api/v1/rate-limit/reset"

# Nothing that a test waits for comes from asking Redis again.
TRUST = ("--deny-cache-trust", "1d")


def rules(limit):
    return f"""
ruleSets:
  - id: shared
    rules:
      - id: r
        scope: PER_IP
        bands: [{{label: b, algorithm: FIXED_WINDOW, limit: {limit}, window: {AGES}}}]
"""


class Denials(support.ServiceTest):
    """Two instances that deny a client from memory, until one of them learns otherwise."""

    def pair(self, redis):
        self.rules = self.folder()
        path = self.rules.write("rules.yaml", rules(2))
        config = self.rules.write("sluice.yaml", f"""
defaults:
  FIXED_WINDOW: {{limit: 2, window: {AGES}}}
""")
        services = [self.start("--config", config, *redis.patient_store(), "--rules", path, *TRUST)
                    for _ in range(2)]
        for service in services:
            eventually(lambda s=service: s.metric("sluice_redis_listening") == 1, "it listens")
        return services

    def deny_everywhere(self, services, ask):
        """Until each instance denies without asking Redis."""
        for service in services:
            eventually(lambda s=service: ask(s).status == 429 and self.remembered(s, ask),
                       "a denial from memory")

    @staticmethod
    def remembered(service, ask):
        hits = service.metric("sluice_deny_cache_hits_total")
        return ask(service).status == 429 and \
            service.metric("sluice_deny_cache_hits_total") > hits

    def expect_resets_end_denials(self, redis):
        one, two = services = self.pair(redis)

        def by_rule(service):
            return service.check("shared", ip="192.0.2.1")

        def by_key(service):
            return service.get(target(CHECK, algorithm="FIXED_WINDOW", key="k"))

        self.deny_everywhere(services, by_rule)
        self.deny_everywhere(services, by_key)
        answer = one.admin("DELETE", "/admin/v1/rule-sets/shared/keys?key=ip:192.0.2.1")
        self.assertEqual(answer.json["reset"], 1)
        eventually(lambda: by_rule(two).status == 200, "the reset by the admin, elsewhere")
        self.assertTrue(self.remembered(two, by_key), "nothing else was forgotten")

        reset = one.request("DELETE", target(RESET, algorithm="FIXED_WINDOW", key="k"))
        self.assertEqual(reset.status, 200)
        eventually(lambda: by_key(two).status == 200, "the reset over the API, elsewhere")

        self.deny_everywhere(services, by_rule)
        purged = support.sluice("purge", "--store", redis.patient_uri, "--match", "ip:*")
        self.assertEqual(purged.returncode, 0, purged.stderr)
        eventually(lambda: by_rule(two).status == 200, "the purge")
        return services, by_rule

    def test_end_when_another_instance_resets(self):
        redis = self.redis()
        services, ask = self.expect_resets_end_denials(redis)
        # A change that nobody announced must be announced by hand.
        self.deny_everywhere(services, ask)
        redis.cli("flushall")
        self.assertEqual(ask(services[1]).status, 429)
        redis.cli("publish", "sluice:reset", "*")
        for service in services:
            eventually(lambda s=service: ask(s).status == 200, "the announcement by hand")

    def test_end_when_another_instance_resets_in_a_cluster(self):
        cluster = support.RedisCluster()
        self.addCleanup(cluster.remove)
        self.expect_resets_end_denials(cluster)

    def test_end_when_the_limit_is_raised(self):
        services = self.pair(self.redis())

        def ask(service):
            return service.check("shared", ip="192.0.2.1")

        self.deny_everywhere(services, ask)
        self.rules.replace("rules.yaml", rules(100))
        for service in services:
            eventually(lambda s=service: ask(s).status == 200, "the new limit")

    def test_are_not_believed_for_ever(self):
        redis = self.redis()
        service = self.start(*redis.patient_store(), "--rules",
                             self.folder().write("rules.yaml", rules(1)),
                             "--deny-cache-trust", "50ms")
        eventually(lambda: service.check("shared", ip="192.0.2.1").status == 429, "a denial")
        redis.cli("flushall")
        eventually(lambda: service.check("shared", ip="192.0.2.1").status == 200, "it asks again")


class Start(support.ServiceTest):
    def test_does_not_wait_for_a_redis_that_says_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            began = time.monotonic()
            service = self.start(
                "--store", f"redis://127.0.0.1:{silent.getsockname()[1]}?timeout=50s"
                           "&connect_timeout=50s", "--http-on-store-failure", "LOCAL")
            answer = service.get(target(CHECK, key="k"))
            self.assertLess(time.monotonic() - began, 25)
            # By then, it is unknown whether it is only slow.
            self.assertEqual((answer.status, answer.json["source"]), (200, "overload"))
            service.kill()


class Overload(support.ServiceTest):
    """A Redis that answers, but more slowly than it is asked."""

    RULES = f"""
ruleSets:
  - id: open
    rules: [{{id: r, scope: PER_USER, bands: [{{label: b, algorithm: FIXED_WINDOW, limit: 2, window: {AGES}}}]}}]
  - id: pass
    rules: [{{id: r, scope: PER_USER, onOverload: FAIL_OPEN,
              bands: [{{label: b, algorithm: FIXED_WINDOW, limit: 2, window: {AGES}}}]}}]
  - id: closed
    rules: [{{id: r, scope: PER_USER, onStoreFailure: FAIL_CLOSED,
              bands: [{{label: b, algorithm: FIXED_WINDOW, limit: 2, window: {AGES}}}]}}]
"""

    def test_is_no_outage(self):
        redis = self.redis()
        service = self.start(*redis.patient_store(), "--rules",
                             self.folder().write("rules.yaml", self.RULES), "--in-flight-max", "1",
                             "--instances", "1", "--resp", "127.0.0.1:0", *TRUST)
        eventually(lambda: service.metric("sluice_redis_listening") == 1, "it listens")
        for status in (200, 200, 429):
            self.assertEqual(service.check("open", userId="denied").status, status)
        redis.cli("client", "pause", "600000", "write")
        waits = RawConnection(service.port)
        self.addCleanup(waits.close)
        waits.send(f"GET {target(CHECK, key='k')} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        eventually(lambda: service.metric("sluice_guard_in_flight") == 1, "it has the only place")

        answers = [service.check("open", userId="ann") for _ in range(10)]
        self.assertEqual([answer.status for answer in answers], [200] * 2 + [429] * 8)
        self.assertEqual({answer.json["source"] for answer in answers}, {"overload"})
        self.assertEqual(answers[0].header("X-Sluice-Source"), "overload")
        denied = service.check("open", userId="denied")
        self.assertEqual((denied.status, denied.json["source"]), (429, "deny-cache"))
        passed = service.check("pass", userId="ann")
        self.assertEqual((passed.status, passed.json["source"]), (200, "fail-open"))
        self.assertEqual(service.check("closed", userId="ann").status, 503)
        with RawConnection(service.resp_port) as resp:
            resp.send(b"SLUICE.CHECK LIMIT algorithm=fixed_window,limit=9,window=1d k\r\nQUIT\r\n")
            self.assertIn(b"$6\r\nsource\r\n$8\r\noverload\r\n", resp.read_until_closed())

        self.assertEqual(service.metric("sluice_overloaded"), 1)
        self.assertEqual(service.metric("sluice_overloads_total"), 1)
        self.assertEqual(service.metric("sluice_overload_decisions_total", reason="in_flight"), 13)
        self.assertEqual(service.metric("sluice_degraded_decisions_total", source="overload"), 11)
        self.assertEqual(service.metric("sluice_degraded_decisions_total", source="fail_open"), 1)
        self.assertTrue(service.logged("WARN", "the store answers but cannot keep up"))
        self.assertTrue(service.logged("WARN", "decided without the store", "overload"))
        health = service.get("/health").json
        self.assertEqual((health["status"], health["store"]["overloaded"]), ("DEGRADED", True))
        status = service.admin("GET", "/admin/v1/status").json["guard"]
        self.assertEqual((status["overloaded"], status["overloadAllowed"]), (True, 3))

        redis.cli("client", "unpause")
        self.assertEqual(waits.read_answer().status, 200)
        eventually(lambda: local_units(service, "reported") == 3, "what was granted is reported")
        eventually(lambda: service.log_lines("INFO", "the store keeps up again"), "it is over")
        self.assertEqual(service.metric("sluice_overloaded"), 0)
        self.assertNotIn("overloaded", service.get("/health").json["store"])
        self.assertEqual(service.check("open", userId="ann").status, 429, "it was charged")


def local_units(service, state):
    return service.metric("sluice_local_units_total", state=state)


class Stop(support.ServiceTest):
    def test_decides_what_still_waits_for_a_redis_that_hangs(self):
        redis = self.redis()
        service = self.start("--store", f"{redis.uri}?timeout=600s", "--deadline", "10m",
                             "--drain-timeout", "100ms")
        self.assertNotIn("source", service.get(target(CHECK, key="k")).json, "Redis decides")
        redis.send(signal.SIGSTOP)
        self.addCleanup(redis.send, signal.SIGCONT)
        clients = [RawConnection(service.port) for _ in range(4)]
        for client in clients:
            client.send(f"GET {target(CHECK, key='k')} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        eventually(lambda: service.metric("sluice_guard_in_flight") == 4, "all wait")
        for client in clients[:2]:
            client.close()  # Nobody waits for these any more, but they are still decided.
        self.assertEqual(service.stop(), 0, service.log())

    def test_ends_while_commands_of_one_pipeline_wait_for_each_other(self):
        redis = self.redis()
        service = self.start("--store", f"{redis.uri}?timeout=600s", "--deadline", "10m",
                             "--drain-timeout", "100ms", "--resp", "127.0.0.1:0")
        self.assertNotIn("source", service.get(target(CHECK, key="k")).json, "Redis decides")
        redis.send(signal.SIGSTOP)
        self.addCleanup(redis.send, signal.SIGCONT)
        # Both commands are sent at once, and decided in order.
        take, give = b"CL.THROTTLE k 1 1 60\r\n", b"DEL k\r\n"
        clients = [RawConnection(service.resp_port) for _ in range(4)]
        for client, commands in zip(clients, [give + take] * 2 + [take + give] * 2):
            client.send(commands)
        eventually(lambda: service.metric("sluice_guard_in_flight") == 8, "all of them wait")
        self.assertEqual(service.stop(), 0, service.log())


class Memory(support.ServiceTest):
    def test_that_is_full_turns_no_limit_off(self):
        log = "{label: b, algorithm: SLIDING_WINDOW, limit: 5, window: 1h}"
        service = self.serve_rules(f"""
ruleSets:
  - id: open
    rules: [{{id: r, scope: PER_IP, onStoreFailure: FAIL_OPEN, bands: [{log}]}}]
""", "--memory-log-entries-max", "20")

        def admitted(address):
            return [service.check("open", ip=address).status for _ in range(6)].count(200)

        self.assertEqual(admitted("198.51.100.1"), 5)
        for number in range(250):
            self.assertEqual(service.check("open", ip=f"192.0.2.{number}").status, 200)
        self.assertEqual(service.check("open", ip="198.51.100.1").status, 429, "known")
        self.assertEqual(admitted("192.0.2.7"), 4, "of the flood")
        self.assertEqual(admitted("203.0.113.9"), 5, "new")
        self.assertEqual(service.metric("sluice_degraded_decisions_total", source="fail_open"), 0)
        self.assertGreater(service.metric("sluice_overflow_decisions_total"), 200)


if __name__ == "__main__":
    support.main()
