# SPDX-License-Identifier: Apache-2.0
"""What is shipped for Prometheus and Grafana: every alert and every panel, against real servers.

Usage: service_monitoring_test.py PROGRAM
"""

import json
import math
import re
import subprocess

import support
from service_metrics_test import CHECK, Prometheus
from support import AGES, eventually, target

ALERTS = support.REPOSITORY / "deploy/prometheus/alerts.yaml"
DASHBOARD = support.REPOSITORY / "deploy/grafana/sluice.json"

RULES = f"""ruleSets:
  - id: api
    rules:
      - {{id: per-user, scope: PER_USER, bands: [{{label: u, algorithm: FIXED_WINDOW, limit: 1, window: {AGES}}}]}}
      - id: open
        scope: PER_USER
        onStoreFailure: FAIL_OPEN
        bands: [{{label: o, algorithm: TOKEN_BUCKET, capacity: 1000000, refill: 1, period: {AGES}}}]
  - id: jobs
    rules: [{{id: slots, scope: PER_USER, bands: [{{label: s, algorithm: CONCURRENCY, limit: 1000000, ttl: 1h}}]}}]
"""

DOMAIN = "domain: edge\ndescriptors: [{key: area, rate_limit: {unit: day, requests_per_unit: 1}}]\n"


def names_in(expression):
    """The metrics that a PromQL expression names."""
    return set(re.findall(r"\b(?:sluice|rate_limiter|process)_[a-z_]+", expression))


def exported_by(service):
    return {name for name, _ in service.metrics()}


class Alerts(support.ServiceTest):
    def test_fire_when_something_is_wrong_and_not_otherwise(self):
        done = subprocess.run(["promtool", "test", "rules", "tests/prometheus/alerts_test.yaml"],
                              cwd=support.REPOSITORY, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_are_about_metrics_that_there_are(self):
        files = self.folder()
        support.make_certificate(files, "served")
        redis = self.redis()
        with_redis = self.start("--store", redis.uri, "--rules-redis", redis.uri,
                                "--resp", "127.0.0.1:0",
                                "--resp-tls-certificate", files / "served.pem",
                                "--resp-tls-key", files / "served.key")
        eventually(lambda: "sluice_redis_server_keys" in exported_by(with_redis), "Redis has said it")
        in_memory = self.start("--rules", self.folder().write("rules.yaml", RULES),
                               "--snapshot", self.folder() / "state")
        exported = exported_by(with_redis) | exported_by(in_memory)
        # Exists only while a stored document is not valid; service_rule_store_test has one.
        exported.add("sluice_rule_set_rejected")
        self.assertGreater(len(names_in(ALERTS.read_text())), 15)
        self.assertEqual(names_in(ALERTS.read_text()) - exported, set())


class Dashboard(support.ServiceTest):
    def test_every_panel_has_data(self):
        folder, files = self.folder(), self.folder()
        support.make_certificate(files, "served")
        redis = self.redis()
        redis.cli("config", "set", "maxmemory", "100mb")
        rules = folder.write("rules.yaml", RULES)
        with_redis = self.start("--store", redis.uri, "--rules", rules,
                                "--rls-config", folder.write("rls/edge.yaml", DOMAIN),
                                "--resp", "127.0.0.1:0",
                                "--resp-tls-certificate", files / "served.pem",
                                "--resp-tls-key", files / "served.key")
        in_memory = self.start("--rules", rules)
        prometheus = Prometheus(self.folder(), with_redis, in_memory)
        self.addCleanup(prometheus.remove)
        prometheus.wait_for_zeros()
        requests = 0

        def load():
            nonlocal requests
            for service in (with_redis, in_memory):
                service.check("api", userId="ann")
                service.check("api", userId=f"user-{requests}")
                service.get(target(CHECK, key=""))  # An error.
                service.request("POST", "/api/v1/holds",
                                {"ruleSet": "jobs", "context": {"userId": "ann"}})
                requests += 1
            with_redis.request("POST", "/json", {
                "domain": "edge", "descriptors": [{"entries": [{"key": "area", "value": "a"}]}]})

        def data(expression):
            load()
            answer = prometheus.api("query", query=expression)
            return answer and any(math.isfinite(float(sample["value"][1]))
                                  for sample in answer["result"])

        dashboard = json.loads(DASHBOARD.read_text())
        panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
        self.assertGreater(len(panels), 30)
        identifiers = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(identifiers), len(set(identifiers)))
        for panel in panels:
            self.assertTrue(panel["targets"], panel["title"])
            self.assertTrue(panel["description"], panel["title"])
            for each in panel["targets"]:
                # As Grafana fills in the choice of all instances, and an interval of some scrapes.
                expression = each["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
                self.assertNotIn("$", expression)
                eventually(lambda e=expression: data(e), f"{panel['title']}: {expression}")

    def test_panels_do_not_overlap(self):
        taken = {}
        for panel in json.loads(DASHBOARD.read_text())["panels"]:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24)
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    self.assertIsNone(taken.get((x, y)), f"{panel['title']} on {taken.get((x, y))}")
                    taken[x, y] = panel["title"]


if __name__ == "__main__":
    support.main()
