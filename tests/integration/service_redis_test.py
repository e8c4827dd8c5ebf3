# SPDX-License-Identifier: Apache-2.0
"""Redis from an operator's point of view: what the log says when it cannot be used, what the
metrics report about it, and what a foreign key does at each door.

Usage: service_redis_test.py PROGRAM, with a Python that has grpcio
"""

import re
import subprocess
import time

import grpc

import support
from service_metrics_test import Prometheus
from support import AGES, eventually, eventually_get, target

CHECK = "/api/v1/rate-limit/check"
DOWN = "Redis cannot be used"
UP_AGAIN = "Redis can be used again"


def by_store(service):
    answer = service.get(target(CHECK, key="k"))
    return answer.status == 200 and "source" not in answer.json


class Log(support.ServiceTest):
    """Nobody sends the service requests in these tests."""

    def test_says_at_once_that_redis_is_not_there_and_that_it_is_back(self):
        port = support.free_port()
        service = self.start("--store", f"redis://127.0.0.1:{port}")
        lines = eventually(lambda: service.log_lines(DOWN), "the log says so")
        self.assertIn("Connection refused", lines[0])
        self.assertIn(" WARN ", lines[0])
        self.redis(port=port)
        eventually(lambda: service.log_lines(UP_AGAIN), "the log says that, too")
        self.assertEqual(len(service.log_lines(DOWN)), 1)
        self.assertEqual(service.stop(), 0)
        self.assertEqual(len(service.log_lines(DOWN)), 1, "it is not Redis that hangs up at the end")

    def test_says_at_once_and_not_every_time_that_the_password_is_wrong(self):
        redis = self.redis(password="right")
        began = time.monotonic()
        service = self.start("--store", redis.uri.replace("right", "wr0ng"))
        lines = eventually(lambda: service.log_lines(DOWN), "the log says so")
        self.assertIn("WRONGPASS", lines[0])
        # It is retried less than once per second, and each attempt is a connection.
        before = self.connections(redis)
        eventually(lambda: self.connections(redis) > before + 10, "it is tried again")
        self.assertLessEqual(len(service.log_lines(DOWN)), 1 + (time.monotonic() - began) // 60)
        self.assertNotIn("wr0ng", service.log())

    @staticmethod
    def connections(redis):
        return int(re.search(r"total_connections_received:(\d+)", redis.cli("info"))[1])

    def test_says_that_a_port_does_not_speak_tls(self):
        redis = self.redis()
        service = self.start("--store", f"rediss://127.0.0.1:{redis.port}?verify=no&timeout=60s"
                                        "&connect_timeout=3s")
        lines = eventually(lambda: service.log_lines(DOWN), "the log says so")
        self.assertIn("TLS", lines[0])
        self.assertIn("use redis://", lines[0])

    def test_says_that_a_port_speaks_tls(self):
        folder = self.folder()
        support.make_certificate(folder, "redis")
        port = support.free_port()
        redis = support.Process(
            ["redis-server", "--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1",
             "--save", "", "--dir", str(folder), "--tls-cert-file", folder / "redis.pem",
             "--tls-key-file", folder / "redis.key", "--tls-ca-cert-file", folder / "redis.pem",
             "--tls-auth-clients", "no"])
        self.addCleanup(redis.remove)
        eventually(lambda: "Ready to accept connections" in redis.output(), "Redis listens")
        service = self.start("--store", f"redis://127.0.0.1:{port}?timeout=60s&connect_timeout=60s")
        lines = eventually(lambda: service.log_lines(DOWN), "the log says so")
        self.assertIn("use rediss://", lines[0])


class Figures(support.ServiceTest):
    NAMES = {f"sluice_redis_server_{name}" for name in (
        "keys", "memory_bytes", "memory_max_bytes", "expired_keys_total", "evicted_keys_total",
        "received_bytes_total", "sent_bytes_total")}

    def figures(self, service):
        """Of each node, by name."""
        nodes = {}
        for (name, labels), value in service.metrics().items():
            if name.startswith("sluice_redis_server_"):
                nodes.setdefault(dict(labels)["node"], {})[name] = value
        return nodes

    def test_are_those_of_redis(self):
        redis = self.redis()
        redis.cli("config", "set", "maxmemory", "64mb")
        for key in range(7):
            redis.cli("set", f"other:{key}", "x")
        redis.cli("set", "brief", "x", "px", "1")
        eventually(lambda: redis.cli("exists", "brief") == "0\n", "it has expired")
        redis.cli("config", "get", "*")  # So that it has sent something, whatever it is asked first.
        began = time.monotonic()
        service = self.start("--store", redis.uri, "--instances", "1")
        nodes = eventually(lambda: self.figures(service), "Redis has said it")
        node = nodes[f"127.0.0.1:{redis.port}"]
        self.assertEqual(node.keys(), self.NAMES)
        self.assertEqual(node["sluice_redis_server_keys"], 7)
        self.assertEqual(node["sluice_redis_server_expired_keys_total"], 1)
        self.assertEqual(node["sluice_redis_server_evicted_keys_total"], 0)
        self.assertEqual(node["sluice_redis_server_memory_max_bytes"], 64 << 20)
        for name in ("memory_bytes", "received_bytes_total", "sent_bytes_total"):
            self.assertGreater(node[f"sluice_redis_server_{name}"], 100)
        # However often it is scraped, Redis is asked once every ten seconds.
        for _ in range(50):
            service.metrics()
        calls = re.search(r"cmdstat_info:calls=(\d+)", redis.cli("info", "commandstats"))
        asked = int(calls[1]) if calls else 0
        self.assertLessEqual(asked, 1 + (time.monotonic() - began) // 10)

    def test_are_those_of_each_node_of_a_cluster(self):
        cluster = support.RedisCluster()
        self.addCleanup(cluster.remove)
        service = self.start("--store", cluster.uri)
        nodes = eventually_get(lambda: self.figures(service), lambda nodes: len(nodes) == 3,
                               "all nodes have said it")
        self.assertEqual(nodes.keys(), {f"127.0.0.1:{node.port}" for node in cluster.nodes})
        for node in nodes.values():
            self.assertEqual(node.keys(), self.NAMES)

    def test_answer_the_queries_of_the_reference(self):
        redis = self.redis()
        redis.cli("config", "set", "maxmemory", "1kb")
        folder = self.folder()
        service = self.start(*redis.patient_store())
        prometheus = Prometheus(folder, service)
        self.addCleanup(prometheus.remove)
        service.get(target(CHECK, key="k"))
        reference = (support.REPOSITORY / "docs/reference/metrics.md").read_text()
        block = re.search(r"```promql\n(.*?)```", reference, re.S)[1]
        queries = [line for line in block.splitlines() if "sluice_redis_server_" in line]
        self.assertEqual(len(queries), 3)
        node = frozenset({("node", f"127.0.0.1:{redis.port}")})
        for query in queries:
            values = eventually(lambda q=query: prometheus.query(q), f"a value of {query}")
            self.assertEqual(values.keys(), {node}, query)
            if "memory_max" in query:
                self.assertGreater(values[node], 1024, "what it uses of 1 KiB")

    def test_are_not_there_without_permission(self):
        redis = self.redis()
        redis.cli("acl", "setuser", "default", "-info")
        service = self.start(*redis.patient_store())
        eventually(lambda: "info" in redis.cli("acl", "log"), "it was asked")
        self.assertTrue(by_store(service))
        self.assertEqual(self.figures(service), {})
        self.assertEqual(service.log_lines(DOWN), [])


class Calls(support.ServiceTest):
    def test_are_those_of_the_script_that_redis_got(self):
        """A refused connection does not count as a fast call."""
        port = support.free_port()
        service = self.start("--store", f"redis://127.0.0.1:{port}", "--breaker-calls-min",
                             "1000000")
        for i in range(20):
            service.get(target(CHECK, key=f"k{i}"))
        self.assertEqual(service.metric("sluice_redis_call_seconds_count"), 0)
        self.assertEqual(service.metric("sluice_redis_calls_total"), 0)
        self.redis(port=port)
        eventually(lambda: by_store(service), "Redis decides")
        calls = eventually(lambda: service.metric("sluice_redis_call_seconds_count"), "it counts")
        self.assertGreaterEqual(service.metric("sluice_redis_calls_total"), calls)


def rls_request(domain, key, value):
    """A RateLimitRequest of one descriptor with one entry, as protobuf writes it."""
    def field(number, content):
        return bytes([number << 3 | 2, len(content)]) + content
    entry = field(1, key.encode()) + field(2, value.encode())
    return field(1, domain.encode()) + field(2, field(1, entry))


class ForeignState(support.ServiceTest):
    """A foreign value under the name of one state: its own error at every door, and no effect on
    others."""

    RULES = f"""
ruleSets:
  - id: api
    rules:
      - id: users
        scope: PER_USER
        onStoreFailure: FAIL_CLOSED
        bands: [{{label: b, algorithm: SLIDING_WINDOW, limit: 5, window: {AGES}}}]
"""
    DOMAIN = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 5}
"""

    def setUp(self):
        folder = self.folder()
        folder.write("rls/edge.yaml", self.DOMAIN)
        self.store = self.redis()
        self.service = self.start(
            *self.store.patient_store(), "--instances", "1", "--resp", "127.0.0.1:0",
            "--grpc", "127.0.0.1:0", "--rules", folder.write("rules.yaml", self.RULES),
            "--rls-config", folder / "rls", "--http-on-store-failure", "FAIL_CLOSED",
            "--grpc-on-store-failure", "FAIL_CLOSED", "--resp-on-store-failure", "FAIL_CLOSED")
        channel = grpc.insecure_channel(f"127.0.0.1:{self.service.grpc_port}",
                                        [("grpc.enable_http_proxy", 0)])
        self.addCleanup(channel.close)
        self.rls = channel.unary_unary(
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            request_serializer=lambda request: request, response_deserializer=lambda reply: reply)

    # What each door answers to a check: nothing if it was decided, or the code of its error.

    def http_key(self, user):
        answer = self.service.get(target(CHECK, key=user))
        return None if answer.status == 200 else self.http_error(answer)

    def http_rule(self, user):
        answer = self.service.check("api", userId=user)
        return None if answer.status == 200 else self.http_error(answer)

    def http_error(self, answer):
        self.assertEqual(answer.status, 503, answer)
        return answer.json["error"]["code"]

    def grpc(self, user):
        try:
            self.rls(rls_request("edge", "user", user), timeout=support.PATIENCE)
        except grpc.RpcError as error:
            self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
            return error.details().split(":")[0]
        return None

    def resp(self, user):
        reply = self.command("CL.THROTTLE", user, "5", "1", "86400")
        return None if reply.startswith("0\n") else reply.split()[0]

    def resp_rule(self, user):
        reply = self.command("SLUICE.CHECK", "RULESET", "api", "USER", user)
        return reply.split()[0] if reply.startswith("FOREIGN") else None

    def command(self, *words):
        return subprocess.run(["redis-cli", "-p", str(self.service.resp_port), *words],
                              capture_output=True, text=True, check=True,
                              timeout=support.PATIENCE).stdout

    def states(self):
        return set(self.store.cli("--scan", "--pattern", "sluice:*").splitlines())

    def test_fails_its_own_request_at_every_door(self):
        failed = 0
        for door in (self.http_key, self.http_rule, self.grpc, self.resp, self.resp_rule):
            for kind in (("rpush",), ("set",)):
                with self.subTest(door=door.__name__, kind=kind):
                    user, other = (f"{door.__name__}-{kind[0]}-{who}" for who in ("a", "b"))
                    before = self.states()
                    self.assertIsNone(door(user))
                    [state] = self.states() - before
                    self.assertIn(user, state)
                    self.store.cli("del", state)
                    self.store.cli(*kind, state, "foreign")
                    for _ in range(3):
                        self.assertEqual(door(user), "FOREIGN_STATE")
                        failed += 1
                    self.assertIsNone(door(other), "nobody else's business")
                    self.assertEqual(self.store.cli("type", state).strip(),
                                     "list" if kind == ("rpush",) else "string")
                    self.store.cli("del", state)
                    self.assertIsNone(door(user), "it is gone")
        counted = self.service.metric("sluice_errors_total", code="FOREIGN_STATE")
        over_grpc = self.service.metric("sluice_errors_total", code="UNAVAILABLE")
        self.assertEqual((counted, over_grpc), (failed - 6, 6))
        self.assertEqual(self.service.metric("sluice_breaker_state"), 0)
        self.assertEqual(self.service.get("/health").json["status"], "UP")


if __name__ == "__main__":
    support.main()
