# SPDX-License-Identifier: Apache-2.0
"""What operators see: metrics, also through a real Prometheus, health, and logs.

Usage: service_metrics_test.py PROGRAM
"""

import json
import math
import os
import pathlib
import re
import resource
import subprocess

import support
from support import AGES, Client, RawConnection, eventually, eventually_get, free_port, target

CHECK = "/api/v1/rate-limit/check"

RULES = f"""ruleSets:
  - id: api
    rules:
      - id: per-user
        scope: PER_USER
        bands: [{{label: u, algorithm: FIXED_WINDOW, limit: 3, window: {AGES}}}]
"""

# Document 001, section 7.3, verbatim.
DOCUMENT_QUERIES = {
    "denied": 'sum(rate(rate_limiter_requests_total{allowed="false"}[1m])) by (algorithm)',
    "p99": "histogram_quantile(0.99, rate(rate_limiter_check_seconds_bucket[5m]))",
    "share": "sum(rate(rate_limiter_requests_total[5m])) by (algorithm)",
}


# The pages whose queries operators copy.
PAGES = ("docs/reference/metrics.md", "docs/guide/failure.md")

# Requests under several rules, a shadow rule, one that blocks, and none at all.
MANY_RULES = f"""ruleSets:
  - id: many
    rules:
      - {{id: all, scope: GLOBAL, bands: [{{label: g, algorithm: TOKEN_BUCKET, capacity: 1000, refill: 1, period: {AGES}}}]}}
      - id: per-user
        scope: PER_USER
        bands: [{{label: u, algorithm: FIXED_WINDOW, limit: 3, window: {AGES}}},
                {{label: w, algorithm: SLIDING_WINDOW, limit: 100, window: {AGES}}}]
        overrides: [{{key: mallory, blocked: true}}]
      - {{id: trial, scope: PER_USER, shadow: true, bands: [{{label: t, algorithm: FIXED_WINDOW, limit: 1, window: {AGES}}}]}}
  - {{id: none}}
  - id: closed
    rules: [{{id: r, scope: PER_USER, onStoreFailure: FAIL_CLOSED, bands: [{{label: b, limit: 9, window: {AGES}}}]}}]
"""


def documented_queries():
    """The contents of the fenced blocks of the pages, without comments."""
    queries = []
    for page in PAGES:
        for block in re.findall(r"```promql\n(.*?)```", (support.REPOSITORY / page).read_text(), re.S):
            queries += [line for line in block.splitlines() if line and not line.startswith("#")]
    return queries


def quantile(q, buckets):
    """What histogram_quantile computes from cumulative counts by their upper bounds."""
    bounds = sorted(buckets)
    rank = q * buckets[bounds[-1]]
    index = next(i for i, bound in enumerate(bounds) if buckets[bound] >= rank)
    if math.isinf(bounds[index]):
        return bounds[-2]
    low, below = (bounds[index - 1], buckets[bounds[index - 1]]) if index else (0, 0)
    return low + (bounds[index] - low) * (rank - below) / (buckets[bounds[index]] - below)


class Prometheus(support.Process):
    def __init__(self, folder, *services):
        self.port = free_port()
        self.services = services
        targets = ", ".join(f"'127.0.0.1:{service.port}'" for service in services)
        config = folder.write("prometheus.yml", f"""
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs:
  - job_name: sluice
    static_configs: [{{targets: [{targets}]}}]
  - job_name: actuator
    metrics_path: /actuator/prometheus
    static_configs: [{{targets: [{targets}]}}]
""")
        subprocess.run(["promtool", "check", "config", config], check=True, capture_output=True)
        super().__init__(["prometheus", f"--config.file={config}",
                          f"--storage.tsdb.path={folder / 'data'}",
                          f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"])

    def api(self, path, **parameters):
        client = Client(self.port)
        try:
            answer = client.request("GET", target(f"/api/v1/{path}", **parameters))
            return answer.json["data"] if answer.status == 200 else None  # 503 while it starts.
        except OSError:
            return None
        finally:
            client.close()

    def query(self, expression):
        """The values by their labels."""
        data = self.api("query", query=expression)
        return {frozenset(sample["metric"].items()): float(sample["value"][1])
                for sample in data["result"]} if data else {}

    def wait_for(self, expression, accept, what):
        return eventually_get(lambda: self.query(expression), accept, what)

    def wait_for_zeros(self):
        """Every series exists before its first event, so that the first event counts. A target is
        up a moment before its samples can be queried, and they are stale after a scrape that took
        too long: hence the waiting."""
        self.wait_for("rate_limiter_requests_total",
                      lambda zeros: len(zeros) == 2 * 18 * len(self.services)
                      and not any(zeros.values()), "every series is there, at 0")

    def wait_for_counts(self):
        """Waits until the newest samples of both paths are what the services have counted."""
        for service in self.services:
            total = sum(value for (name, _), value in service.metrics().items()
                        if name == "rate_limiter_requests_total")
            selector = f'{{instance="127.0.0.1:{service.port}"}}'
            self.wait_for(f"sum(rate_limiter_requests_total{selector}) by (job)",
                          lambda sums, total=total: sorted(sums.values()) == [total, total],
                          "all requests are seen")


class WithPrometheus(support.ServiceTest):
    """Every query of document 001 and of our own pages, against traffic with a known outcome."""

    def watch(self, *services):
        prometheus = Prometheus(self.folder(), *services)
        self.addCleanup(prometheus.remove)
        prometheus.wait_for_zeros()
        return prometheus

    def shares(self, prometheus, query, expected):
        """Asserts each algorithm's share of the sum; rates are scaled by the time between scrapes,
        which cancels out."""
        def shares_of(values):
            whole = sum(values.values())
            return {dict(labels)["algorithm"]: round(value / whole, 6)
                    for labels, value in values.items() if value} if whole else {}

        prometheus.wait_for(query, lambda values: shares_of(values) == expected,
                            f"{query}: {expected}")

    def test_requests_are_what_clients_saw(self):
        service = self.start("--rules", self.folder().write("rules.yaml", MANY_RULES))
        prometheus = self.watch(service)
        statuses = [service.check("many", userId="ann").status for _ in range(8)]
        self.assertEqual(statuses.count(429), 5)
        self.assertEqual(service.check("many", userId="mallory").status, 429)
        self.assertEqual(service.check("none", userId="ann").status, 200)
        for permits in (10, 10, 0):
            service.get(target(CHECK, key="k", algorithm="SLIDING_WINDOW_COUNTER", permits=permits))
        # 12 requests, of which 7 were denied: 5 by a window, 1 by a block, 1 by a counter.
        counted = {tuple(dict(labels).values()): value for (name, labels), value
                   in service.metrics().items()
                   if name == "rate_limiter_requests_total" and value}
        self.assertEqual(sorted((*sorted(labels), value) for labels, value in counted.items()),
                         sorted((*sorted(labels), value) for *labels, value in (
                             ("FIXED_WINDOW", "true", 3), ("FIXED_WINDOW", "false", 5),
                             ("NONE", "true", 1), ("NONE", "false", 1),
                             ("SLIDING_WINDOW_COUNTER", "true", 1),
                             ("SLIDING_WINDOW_COUNTER", "false", 1))))
        self.assertEqual(service.metric("sluice_limit_checks_total", algorithm="TOKEN_BUCKET",
                                        allowed="true"), 8)
        self.assertEqual(service.metric("sluice_shadow_limit_checks_total",
                                        algorithm="FIXED_WINDOW", allowed="false"), 7)
        prometheus.wait_for_counts()
        queries = documented_queries()
        for query in DOCUMENT_QUERIES.values():
            self.assertIn(query, queries, "the document's own are on our page")
        self.shares(prometheus, DOCUMENT_QUERIES["denied"],
                    {"FIXED_WINDOW": round(5 / 7, 6), "NONE": round(1 / 7, 6),
                     "SLIDING_WINDOW_COUNTER": round(1 / 7, 6)})
        self.shares(prometheus, DOCUMENT_QUERIES["share"],
                    {"FIXED_WINDOW": round(8 / 12, 6), "NONE": round(2 / 12, 6),
                     "SLIDING_WINDOW_COUNTER": round(2 / 12, 6)})
        (share,) = [query for query in queries if 'allowed="false"}[5m])) /' in query]
        prometheus.wait_for(share, lambda values: [round(value, 9) for value in values.values()]
                            == [round(7 / 12, 9)], "the share that clients saw")
        self.check_quantiles(prometheus, service, queries)
        # Nothing is wrong, and no alert fires.
        for query in queries:
            if " > 0" in query or " == 0" in query:
                self.assertEqual(prometheus.api("query", query=query)["result"], [], query)

    def check_quantiles(self, prometheus, service, queries):
        buckets = {}
        for (name, labels), value in service.metrics().items():
            if name == "rate_limiter_check_seconds_bucket":
                own = dict(labels)
                bound = float(own.pop("le"))
                buckets.setdefault(frozenset(own.items()), {})[bound] = value
        expected = {labels: quantile(0.99, own) for labels, own in buckets.items()
                    if own[math.inf]}
        self.assertEqual(len(expected), 4)

        def seen(query, drop):
            return {frozenset((k, v) for k, v in labels if k not in drop): value for labels, value
                    in prometheus.query(query).items() if not math.isnan(value)}

        def close(values, wanted):
            return values.keys() == wanted.keys() and all(
                math.isclose(values[labels], wanted[labels], rel_tol=1e-6) for labels in wanted)

        eventually(lambda: close(seen(DOCUMENT_QUERIES["p99"], ("job", "instance")), expected),
                   "the percentile of each algorithm and outcome")
        bounds = next(iter(buckets.values()))
        together = {bound: sum(own[bound] for own in buckets.values()) for bound in bounds}
        (over_all,) = [query for query in queries
                       if query.startswith("histogram_quantile")
                       and "rate_limiter_check" in query and "by (le)" in query]
        eventually(lambda: close(seen(over_all, ()), {frozenset(): quantile(0.99, together)}),
                   "the percentile over all")

    def test_alerts_tell_of_what_is_wrong(self):
        gone = f"redis://127.0.0.1:{free_port()}"
        folder = self.folder()
        rules = folder.write("rules.yaml", MANY_RULES)
        without_redis = self.start("--rules", rules, "--store", gone, "--rules-redis", gone)
        lost = self.folder()
        without_disk = self.start("--snapshot", lost / "state", "--snapshot-interval", "50ms")
        redis = self.redis()
        overloaded = self.start(*redis.patient_store(), "--in-flight-max", "1",
                                "--instances", "1")
        eventually(lambda: overloaded.metric("sluice_redis_listening") == 1, "it listens")
        prometheus = self.watch(without_redis, without_disk, overloaded)
        lost.remove()
        redis.cli("client", "pause", "600000", "write")
        waits = RawConnection(overloaded.port)
        self.addCleanup(waits.close)
        waits.send(f"GET {target(CHECK, key='k')} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        eventually(lambda: overloaded.metric("sluice_guard_in_flight") == 1,
                   "it has the only place")
        redis.cli("config", "set", "maxmemory", "1")  # Whatever it holds is more.

        def trouble():
            self.assertEqual(without_redis.check("many", userId="ann").status, 200)
            self.assertEqual(without_redis.check("closed", userId="ann").status, 503)
            overloaded.get(target(CHECK, key="other"))

        def fires(query):
            trouble()
            return prometheus.query(query)

        alerts = [query for query in documented_queries() if " > 0" in query or " == 0" in query]
        self.assertGreaterEqual(len(alerts), 6)
        for query in alerts:
            eventually(lambda query=query: fires(query), f"it fires: {query}")

    def test_the_rest_of_the_queries_work(self):
        """Metrics that the tests above do not name: of Redis, of descriptors."""
        redis = self.redis()
        service = self.start("--store", redis.uri)
        prometheus = self.watch(service)
        named = [*DOCUMENT_QUERIES.values()]
        others = [query for query in documented_queries() if query not in named
                  and " > 0" not in query and " == 0" not in query]

        def answered(query):
            service.get(target(CHECK, key="k"))
            return prometheus.query(query)

        for query in others:
            eventually(lambda query=query: answered(query), f"it has an answer: {query}")


class Text(support.SharedServiceTest):
    RULES = RULES

    def text(self, path="/metrics"):
        return self.service.get(path).body.decode()

    def test_promtool_finds_nothing_wrong(self):
        for path in ("/metrics", "/actuator/prometheus"):
            answer = self.service.get(path)
            self.assertEqual(answer.header("Content-Type"),
                             "text/plain; version=0.0.4; charset=utf-8")
            done = subprocess.run(["promtool", "check", "metrics"], input=answer.body,
                                  capture_output=True, check=False)
            self.assertEqual((done.returncode, done.stderr.decode()), (0, ""))

    def test_checks_are_counted_exactly(self):
        before = self.service.metrics()
        for _ in range(15):
            self.service.get(target(CHECK, key="count", algorithm="FIXED_WINDOW", permits=2))
        after = self.service.metrics()
        grown = {name: value - before.get(name, 0) for name, value in after.items()}
        allowed = grown["rate_limiter_requests_total",
                        frozenset({("algorithm", "FIXED_WINDOW"), ("allowed", "true")})]
        denied = grown["rate_limiter_requests_total",
                       frozenset({("algorithm", "FIXED_WINDOW"), ("allowed", "false")})]
        self.assertEqual(allowed + denied, 15)
        self.assertGreaterEqual(allowed, 5)
        self.assertEqual(grown["rate_limiter_check_seconds_count",
                               frozenset({("algorithm", "FIXED_WINDOW"), ("allowed", "true")})],
                         allowed)

    def test_histograms_are_whole(self):
        self.service.get(target(CHECK, key="h"))
        samples = self.service.metrics()
        labels = {("algorithm", "TOKEN_BUCKET"), ("allowed", "true")}
        buckets = {}
        for (name, its_labels), value in samples.items():
            if name == "rate_limiter_check_seconds_bucket" and labels < its_labels:
                buckets[float(dict(its_labels)["le"])] = value
        bounds = sorted(buckets)
        self.assertEqual((bounds[0], bounds[-2], bounds[-1]), (1e-6, 1.0, math.inf))
        counts = [buckets[bound] for bound in bounds]
        self.assertEqual(counts, sorted(counts))
        self.assertEqual(counts[-1], samples["rate_limiter_check_seconds_count", frozenset(labels)])
        self.assertGreater(samples["rate_limiter_check_seconds_sum", frozenset(labels)], 0)

    def test_rules_are_counted(self):
        def counts():
            return [self.service.metric("sluice_rule_decisions_total", rule_set="api",
                                        rule="per-user", outcome=outcome)
                    for outcome in ("allowed", "denied", "shadow_denied", "error")]

        before = counts()
        for _ in range(5):
            self.service.check("api", userId="ruled")
        self.assertEqual([now - then for now, then in zip(counts(), before)], [3, 2, 0, 0])

    def test_clients_are_never_labels(self):
        secret = "unmistakable-client-text"
        self.service.get(target(CHECK, key=secret))
        self.service.get(target(CHECK, key="a", algorithm=secret))
        self.service.get(f"/{secret}")
        self.service.check("api", userId=secret, path=f"/{secret}", attributes={secret: secret})
        self.service.check(secret)
        self.service.request(secret.upper().replace("-", ""), "/health")
        self.service.get("/health", X_Request_Id=secret)
        for path in ("/metrics", "/actuator/prometheus", "/health", "/info"):
            self.assertNotIn(secret, self.text(path).lower(), path)

    def test_connections_are_counted(self):
        before = self.service.metrics()
        door = frozenset({("door", "http")})
        held = [RawConnection(self.service.port) for _ in range(5)]
        for connection in held:
            self.addCleanup(connection.close)
            connection.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            connection.read_answer()
        after = self.service.metrics()
        self.assertGreaterEqual(after["sluice_connections", door], 5)
        self.assertGreaterEqual(after["sluice_connections_accepted_total", door],
                                before["sluice_connections_accepted_total", door] + 5)
        for connection in held:
            connection.close()
        eventually(lambda: self.service.metric("sluice_connections", door="http") < 5,
                   "they are gone")
        for other in ("admin", "resp", "grpc"):
            self.assertEqual(self.service.metric("sluice_connections", door=other), 0)

    def test_errors_and_answers_are_counted(self):
        before = self.service.metrics()
        self.service.get(target(CHECK, key="a", permits=1_000))
        for parameters in ({"permits": "x"}, {"algorithm": "x"}, {"key": ""}):
            self.service.get(target(CHECK, **parameters))
        self.service.get(CHECK + "?key=a&key=b")
        self.service.get("/nope")
        self.service.request("POST", "/api/v1/check", "{")
        self.service.check("unknown-rule-set")
        self.service.request("POST", "/api/v1/check/batch", '{"checks": [{"ruleSet": "no"}, {}]}')
        self.service.request("POST", "/json", "{")
        with RawConnection(self.service.port) as connection:
            connection.send(b"nonsense\r\n\r\n")
            connection.read_answer()
        after = self.service.metrics()

        def grown(name, **labels):
            key = (name, frozenset(labels.items()))
            return after[key] - before[key]

        counted = {dict(labels)["code"]: value - before[name, labels]
                   for (name, labels), value in after.items() if name == "sluice_errors_total"}
        self.assertEqual({code: count for code, count in counted.items() if count},
                         {"COST_EXCEEDS_LIMIT": 1, "INVALID_PERMITS": 1, "INVALID_ALGORITHM": 1,
                          "INVALID_KEY": 1, "INVALID_QUERY": 1, "NOT_FOUND": 3,
                          "INVALID_INPUT": 2, "INVALID_ARGUMENT": 1, "BAD_REQUEST": 1})
        self.assertNotIn("SNAPSHOT_DAMAGED", counted)
        self.assertEqual(grown("sluice_http_responses_total", **{"class": "4xx"}), 10)

    def test_what_is_no_request_is_an_answer_all_the_same(self):
        refused = (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
                   b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
                   b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 200 + b"\r\n",
                   b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n",
                   b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
                   b"GET / HTTP/2.5\r\nHost: x\r\n\r\n")
        before = self.service.metrics()
        classes = {"4xx": 0, "5xx": 0}
        statuses = set()
        for number, data in enumerate(refused):
            # The admin listener's requests count, too.
            port = self.service.admin_port if number == 0 else self.service.port
            with RawConnection(port) as connection:
                connection.send(data)
                status = connection.read_answer().status
            statuses.add(status)
            classes[f"{status // 100}xx"] += 1
        self.assertLessEqual({400, 413, 414, 431, 501, 505}, statuses)
        after = self.service.metrics()
        for name, count in classes.items():
            key = ("sluice_http_responses_total", frozenset({("class", name)}))
            self.assertEqual(after[key] - before[key], count, name)

    def test_a_request_that_does_not_come_is_counted(self):
        # Long enough that requests for the count get through on a busy machine, too.
        service = self.start("--http-header-timeout", "3s", "--http-body-timeout", "3s")
        with RawConnection(service.port) as head, RawConnection(service.port) as body:
            head.send(b"GET / HT")
            body.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
            for connection in (head, body):
                self.assertEqual(connection.read_answer().status, 408)
        self.assertEqual(service.metric("sluice_http_responses_total", **{"class": "4xx"}), 2)

    def test_connections_that_cannot_be_accepted_are_told(self):
        service = self.start()
        if "libubsan" in pathlib.Path(f"/proc/{service.pid}/maps").read_text():
            self.skipTest("the sanitizer itself needs files, and ends the service without them")
        client = service.client()
        self.addCleanup(client.close)
        client.request("GET", "/health")  # On a connection that stays.

        def metric(name, **labels):
            text = client.request("GET", "/metrics").body.decode()
            return support.parse_metrics(text)[name, frozenset(labels.items())]

        most = len(os.listdir(f"/proc/{service.pid}/fd")) + 2
        hard = resource.prlimit(service.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (most, hard))
        for _ in range(5):
            connection = RawConnection(service.port)
            self.addCleanup(connection.close)
        eventually(lambda: metric("sluice_accept_errors_total", door="http") > 0,
                   "it is counted")
        eventually(lambda: service.log_lines("ERROR", "connections cannot be accepted",
                                             f"files_max={most}"), "it is logged")
        self.assertEqual(metric("sluice_log_lines_lost_total"), 0)

    def test_looks_are_not_requests(self):
        def counted():
            return {key: value for key, value in self.service.metrics().items()
                    if key[0] in ("rate_limiter_requests_total", "rate_limiter_check_seconds_count",
                                  "sluice_rule_decisions_total")}

        self.service.get(target(CHECK, key="looked-at"))
        self.service.check("api", userId="looked-at")
        before = counted()
        self.service.get(target("/api/v1/rate-limit/remaining", key="looked-at"))
        self.service.get(target(CHECK, key="looked-at", permits=0))
        self.service.check("api", permits=0, userId="looked-at")
        self.service.admin("GET", "/admin/v1/rule-sets/api/keys?key=user:looked-at")
        self.assertEqual(counted(), before)

    def test_the_reference_names_them_all(self):
        reference = (support.REPOSITORY / "docs/reference/metrics.md").read_text()
        documented = set(re.findall(r"^\| `([a-z_]+)` \|", reference, re.M))
        redis = self.redis()
        on_redis = self.start("--store", redis.uri)
        text = self.text() + on_redis.get("/metrics").body.decode()
        exposed = set(re.findall(r"^# TYPE (\S+) ", text, re.M))
        self.assertEqual(exposed, documented)

    def test_the_process_is_shown(self):
        samples = self.service.metrics()
        with open(f"/proc/{self.service.pid}/stat", encoding="ascii") as stat:
            self.assertTrue(stat.read())
        self.assertGreater(samples["process_resident_memory_bytes", frozenset()], 1_000_000)
        self.assertGreater(samples["process_open_fds", frozenset()], 5)
        self.assertGreater(samples["sluice_keys", frozenset()], -1)


class Health(support.ServiceTest):
    def test_without_redis_at_all(self):
        service = self.start()
        for path in ("/health", "/actuator/health"):
            self.assertEqual(service.get(path).json,
                             {"status": "UP", "store": {"kind": "memory", "status": "UP"}})
        for path in ("/health/live", "/actuator/health/liveness", "/health/ready",
                     "/actuator/health/readiness"):
            answer = service.get(path)
            self.assertEqual((answer.status, answer.json), (200, {"status": "UP"}))

    def test_with_redis(self):
        redis = self.redis()
        service = self.start("--store", redis.uri)
        store = eventually_get(lambda: service.get("/health").json["store"],
                               lambda store: store["status"] == "UP" and "masters" in store,
                               "Redis is up")
        self.assertEqual((store["kind"], store["breaker"]), ("standalone", "closed"))
        self.assertIn(str(redis.port), store["address"])
        self.assertEqual(store["masters"], [{"address": f"127.0.0.1:{redis.port}",
                                             "status": "UP"}])
        self.assertGreater(store["latencyMicros"], 0)
        service.get(target(CHECK, key="k"))
        eventually(lambda: service.metric("sluice_redis_call_seconds_count") >= 1,
                   "Redis answers, be it after the deadline")
        samples = service.metrics()
        self.assertGreaterEqual(samples["sluice_redis_calls_total", frozenset()], 1)
        self.assertEqual(samples["sluice_breaker_state", frozenset()], 0)

    def test_with_a_cluster(self):
        cluster = support.RedisCluster(node_timeout_ms=1000)
        self.addCleanup(cluster.remove)
        service = self.start("--store", cluster.uri)
        # While the machine stalls, nodes suspect each other.
        well = {"state": "ok", "slotsOk": 16384, "slotsSuspected": 0, "slotsFailed": 0, "nodes": 3,
                "masters": 3}
        store = eventually_get(
            lambda: service.get("/health").json["store"],
            lambda store: store["status"] == "UP" and len(store.get("masters", ())) == 3
            and store.get("cluster") == well, "the Cluster is up")
        self.assertEqual(store["kind"], "cluster")
        self.assertEqual({master["address"] for master in store["masters"]},
                         {f"127.0.0.1:{node.port}" for node in cluster.nodes})
        self.assertEqual({master["status"] for master in store["masters"]}, {"UP"})
        eventually_get(lambda: service.admin("GET", "/admin/v1/status").json["store"]["cluster"],
                       lambda shown: shown == well, "the same for operators")

        gone = cluster.nodes[1]
        gone.kill()

        def a_third_has_failed(health):
            failed = health["store"].get("cluster", {})
            down = [master["address"] for master in health["store"].get("masters", ())
                    if master["status"] == "DOWN"]
            return (failed.get("state") == "fail" and failed["slotsFailed"] in (5461, 5462)
                    and down == [f"127.0.0.1:{gone.port}"])

        health = eventually_get(lambda: service.get("/health").json, a_third_has_failed,
                                "a third of the slots has failed")
        self.assertEqual((health["status"], health["store"]["status"]), ("DEGRADED", "DOWN"))
        self.assertEqual(service.get("/health/ready").status, 200)

    def test_with_a_sentinel(self):
        redis = self.redis()
        sentinel = support.Sentinel(redis)
        self.addCleanup(sentinel.remove)
        service = self.start("--store", sentinel.uri)
        store = eventually_get(lambda: service.get("/health").json["store"],
                               lambda store: store["status"] == "UP" and "masters" in store,
                               "the master is found")
        self.assertEqual(store["kind"], "sentinel")
        self.assertEqual(store["masters"],
                         [{"address": f"127.0.0.1:{redis.port}", "status": "UP"}])
        self.assertNotIn("cluster", store)

    def test_the_breaker_is_shown(self):
        redis = self.redis()
        service = self.start("--store", redis.uri, "--breaker-calls-min", "1")
        eventually(lambda: service.get("/health").json["status"] == "UP", "Redis is up")
        redis.kill()

        def opened():
            service.get(target(CHECK, key="k"))
            return service.metric("sluice_breaker_transitions_total", to="open") > 2

        eventually(opened, "the breaker opened, and again after each probe")
        self.assertTrue(service.logged("WARN", "circuit breaker", "from=closed", "to=open"))
        self.assertFalse(service.log_lines("circuit breaker", "half_open"), "only with debug")
        guard = service.admin("GET", "/admin/v1/status").json["guard"]
        self.assertIn(guard["breaker"], ("open", "half_open"))
        reason = guard["lastTransition"]["reason"]
        self.assertIn(reason, ("failures", "probe_failed", "open_time_over"))
        self.assertTrue(guard["lastFailure"])
        self.assertIn(service.get("/health").json["store"]["breakerReason"],
                      ("failures", "probe_failed", "open_time_over"))
        self.assertEqual(service.metric("sluice_breaker_opened_total", reason="failures"), 1)
        self.assertIn(service.metric("sluice_breaker_state"), (1, 2))


class Logs(support.ServiceTest):
    def test_json_lines(self):
        service = self.start("--log-format", "json", "--log-level", "debug")
        for key in ('quote"', "back\\slash", "\u2028", "\U0001f600", "x" * 1024):
            service.get(target(CHECK, key=key))
        service.get(CHECK + "?key=%ff%fe")
        self.assertEqual(service.stop(), 0)
        lines = [json.loads(line) for line in service.log().strip().split("\n")]
        for line in lines:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
            self.assertIn(line["level"], ("debug", "info", "warn", "error"))
        debug = [line for line in lines if line["message"] == "request allowed"]
        self.assertEqual(len(debug), 6)
        self.assertEqual(debug[0]["key"], 'quote"')
        self.assertLess(len(debug[4]["key"]), 1024)

    def test_text_lines_cannot_be_forged(self):
        service = self.start("--log-level", "debug")
        for key in ('a" INFO forged', "a\u2028b", "\x85"):
            service.get(target(CHECK, key=key))
        service.get(CHECK + "?key=%ff")
        self.assertEqual(service.stop(), 0)
        raw = service.log()
        self.assertTrue(raw.isascii())
        for line in raw.splitlines():
            self.assertRegex(line, r"^\d{4}-\d\d-\d\dT[\d:.]+Z (DEBUG|INFO|WARN|ERROR) ")

    def test_answers_carry_the_ids_of_their_requests(self):
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        service = self.start("--log-format", "json", "--log-level", "debug")
        service.get(target(CHECK, key="k"), X_Request_Id="mine", traceparent=trace)
        made = service.get("/nope").header("X-Request-Id")
        service.stop()
        answered = {line["request"]: line for line in map(json.loads, service.log().splitlines())
                    if line["message"] == "answered"}
        line = answered[f"GET {CHECK}"]
        self.assertEqual((line["level"], line["status"], line["request_id"], line["traceparent"]),
                         ("debug", 200, "mine", trace))
        self.assertEqual(answered["GET /nope"]["request_id"], made)

    def test_denials_name_rule_band_and_request(self):
        rules = self.folder().write("rules.yaml", f"""ruleSets:
  - id: api
    rules:
      - id: per-user
        scope: PER_USER
        bands: [{{label: wide, limit: 9, window: {AGES}}}, {{label: narrow, limit: 1, window: {AGES}}}]
        overrides: [{{key: mallory, blocked: true}}]
      - {{id: trial, scope: GLOBAL, shadow: true, bands: [{{limit: 1, window: {AGES}}}]}}
""")
        service = self.start("--rules", rules, "--log-format", "json", "--log-level", "debug",
                             "--resp", "127.0.0.1:0")
        for user, request in (("alice", "a-1"), ("alice", "a-2"), ("mallory", "m-1")):
            service.check("api", headers={"X-Request-Id": request}, userId=user)
        body = {"checks": [{"ruleSet": "api", "context": {"userId": "alice"}}]}
        service.request("POST", "/api/v1/check/batch", body, {"X-Request-Id": "b-1"})
        with support.RawConnection(service.resp_port) as resp:
            resp.send(b"CLIENT ID\r\nSLUICE.CHECK RULESET api USER alice\r\n"
                      + b"SLUICE.CHECK LIMIT limit=1,window=1d k\r\n" * 2 + b"QUIT\r\n")
            connection = int(resp.read_until_closed().split(b"\r\n")[0][1:])
        service.stop()
        lines = [json.loads(line) for line in service.log().splitlines()]
        self.assertEqual(
            [(line["level"], line["rule_set"], line["rule"], line["band"], line["key"],
              line.get("request_id") or line["connection"]) for line in lines
             if line["message"] == "denied by a rule"],
            [("debug", "api", "per-user", "narrow", "user:alice", "a-2"),
             ("debug", "api", "per-user", "blocked", "user:mallory", "m-1"),
             ("debug", "api", "per-user", "narrow", "user:alice", "b-1"),
             ("debug", "api", "per-user", "narrow", "user:alice", connection)])
        self.assertEqual([(line["level"], line["limit"], line["key"], line["connection"])
                          for line in lines if line["message"] == "denied by a limit"],
                         [("debug", "limit=1,window=1d", "k", connection)])

    def test_levels(self):
        service = self.start("--log-level", "error")
        service.get(target(CHECK, key="k"))
        service.stop()
        self.assertEqual(service.log(), "")


if __name__ == "__main__":
    support.main()
