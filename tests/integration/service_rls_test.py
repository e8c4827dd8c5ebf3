# SPDX-License-Identifier: Apache-2.0
"""What an operator sees of the Rate Limit Service: its metrics, its limits, a descriptor's budget.

Usage: service_rls_test.py PROGRAM
"""

import json
import pathlib
import re
import urllib.parse

import support
from support import sluice

ROOT = pathlib.Path(__file__).resolve().parents[2]
DECISIONS = "sluice_rls_decisions_total"

# Windows of a year, so that none ends during a test.
EDGE = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 5}
    descriptors:
      - key: area
        value: login
        rate_limit: {unit: year, requests_per_unit: 1}
  - key: api_key
    value: s3cret
    rate_limit: {unit: year, requests_per_unit: 2, name: secret}
  - key: trial
    shadow_mode: true
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: free
    rate_limit: {unlimited: true}
  - key: closed
    rate_limit: {unit: second, requests_per_unit: 0}
  - key: slow
    rate_limit: {unit: day, unit_multiplier: 365, requests_per_unit: 3, algorithm: GCRA}
"""


def ask(service, *entries, domain="edge", **more):
    descriptor = {"entries": [{"key": key, "value": value} for key, value in entries], **more}
    return service.request("POST", "/json", {"domain": domain, "descriptors": [descriptor]})


def remaining(answer):
    return answer.json["statuses"][0]["limitRemaining"]


def descriptor_path(*entries, domain="edge"):
    return f"/admin/v1/domains/{domain}/descriptor?{urllib.parse.urlencode(entries)}"


class RlsTest(support.ServiceTest):
    def serve(self, *arguments, **files):
        folder = self.folder()
        for name, text in files.items():
            folder.write(f"rls/{name}.yaml", text)
        return self.start("--rls-config", folder / "rls", *arguments)

    def counts(self, service, descriptor, domain="edge"):
        return {dict(labels)["outcome"]: count for (name, labels), count in
                service.metrics().items()
                if name == DECISIONS and {"domain": domain, "descriptor": descriptor}.items() <=
                dict(labels).items()}


class Descriptors(RlsTest):
    def test_are_counted_by_what_became_of_them(self):
        service = self.serve(edge=EDGE)
        none = {"ok": 0, "near": 0, "over": 0, "shadow_over": 0, "error": 0}
        self.assertEqual(self.counts(service, "user"), none, "series exist from the start")
        self.assertEqual(self.counts(service, "user.area_login"), none)
        for _ in range(7):
            ask(service, ("user", "ann"))
        # Of five: three below four fifths, two at and above it, and two too many.
        self.assertEqual(self.counts(service, "user"), {**none, "ok": 3, "near": 2, "over": 2})
        for _ in range(3):
            self.assertEqual(ask(service, ("trial", "x")).status, 200)
        self.assertEqual(self.counts(service, "trial"), {**none, "near": 1, "shadow_over": 2})
        ask(service, ("free", "x"))
        ask(service, ("closed", "x"))
        ask(service, ("user", "ann"), ("area", "login"))
        ask(service, ("user", "bob"), hitsAddend="0")
        ask(service, ("user", "bob"), limit={"requestsPerUnit": 10, "unit": "YEAR"})
        self.assertEqual(self.counts(service, "free"), {**none, "ok": 1})
        self.assertEqual(self.counts(service, "closed"), {**none, "over": 1})
        self.assertEqual(self.counts(service, "user.area_login"), {**none, "near": 1})
        self.assertEqual(self.counts(service, "(override)"), {**none, "ok": 1})
        self.assertEqual(self.counts(service, "user")["ok"], 3, "looks are not requests")
        labels = [value for name, labels in service.metrics() for _, value in labels]
        self.assertFalse([value for value in labels if "ann" in value or "s3cret" in value])

    def test_that_the_store_cannot_decide_are_errors(self):
        service = self.serve("--store", f"redis://127.0.0.1:{support.free_port()}",
                             "--grpc-on-store-failure", "FAIL_CLOSED", edge=EDGE)
        self.assertEqual(ask(service, ("user", "ann")).status, 503)
        self.assertEqual(self.counts(service, "user")["error"], 1)

    def test_are_counted_up_to_a_maximum(self):
        many = "domain: many\ndescriptors:\n" + "".join(
            f"  - {{key: k{i}, rate_limit: {{unit: year, requests_per_unit: 1}}}}\n"
            for i in range(1_100))
        service = self.serve(many=many)
        series = [labels for name, labels in service.metrics() if name == DECISIONS]
        # Each with five outcomes, and the overflow together.
        self.assertEqual(len(series), 5 * (1_000 + 1))
        for i in range(1_100):
            ask(service, (f"k{i}", "x"), domain="many")
        self.assertEqual(sum(count for (name, _), count in service.metrics().items()
                             if name == DECISIONS), 1_100)
        self.assertEqual(self.counts(service, "other", domain="other")["near"], 101)

    def test_can_be_looked_at_and_reset(self):
        service = self.serve(edge=EDGE)
        path = descriptor_path(("user", "ann"))
        for used in range(6):
            shown = service.admin("GET", path)
            self.assertEqual(shown.status, 200)
            self.assertEqual((shown.json["limit"], shown.json["remaining"]), (5, 5 - used))
            # What a request of 1 would get.
            self.assertEqual((shown.json["allowed"], shown.json["charged"],
                              shown.json["untouched"]), (used < 5, False, used == 0))
            if used < 5:
                self.assertEqual(shown.json["retryAfterMicros"], 0)
                self.assertEqual(ask(service, ("user", "ann")).status, 200)
        self.assertEqual(shown.json["retryAfterMicros"], shown.json["resetAfterMicros"])
        everywhere = service.admin("GET", "/admin/v1/keys?key=edge%7Cuser%3Dann").json["limits"]
        self.assertEqual([(limit["allowed"], limit["spec"]) for limit in everywhere],
                         [(False, shown.json["spec"])])
        self.assertEqual(ask(service, ("user", "ann")).status, 429)
        self.assertEqual({name: shown.json[name] for name in ("domain", "descriptor", "key", "spec",
                                                              "shadow", "source")},
                         {"domain": "edge", "descriptor": "edge.user", "key": "edge|user=ann",
                          "spec": "algorithm=fixed_window,limit=5,window=365d", "shadow": False,
                          "source": "store"})
        self.assertGreater(shown.json["resetAfterSeconds"], 0)
        reset = service.admin("DELETE", path)
        self.assertEqual((reset.status, reset.json["reset"]), (200, True))
        self.assertEqual(service.admin("GET", path).json["remaining"], 5)
        self.assertEqual(ask(service, ("user", "ann")).status, 200)
        other = service.admin("DELETE", descriptor_path(("user", "bob")))
        self.assertEqual((other.status, other.json["reset"]), (200, False))

    def test_that_are_negative_are_given_back(self):
        redis = self.redis()
        for store in ((), redis.patient_store()):
            service = self.serve(*store, edge=EDGE)
            for key, limit in (("user", 5), ("slow", 3)):
                ask(service, (key, "ann"), hitsAddend=str(limit))
                self.assertEqual(ask(service, (key, "ann")).status, 429)
                given = ask(service, (key, "ann"), hitsAddend="2", isNegativeHits=True)
                self.assertEqual((given.status, remaining(given)), (200, 2))
                self.assertEqual(remaining(ask(service, (key, "ann"))), 1)
                given = ask(service, (key, "ann"), hitsAddend="1000", isNegativeHits=True)
                self.assertEqual((given.status, remaining(given)), (200, limit))
            counted = self.counts(service, "user")
            self.assertEqual(sum(counted.values()), 3, "what is given back is nobody's request")

    def test_are_found_as_requests_find_them(self):
        service = self.serve(edge=EDGE)
        ask(service, ("user", "a b&c=d%"), ("area", "login"))
        shown = service.admin("GET", descriptor_path(("user", "a b&c=d%"), ("area", "login")))
        self.assertEqual((shown.json["descriptor"], shown.json["remaining"]),
                         ("edge.user.area_login", 0))
        ask(service, ("api_key", "s3cret"))
        shown = service.admin("GET", descriptor_path(("api_key", "s3cret")))
        self.assertEqual(shown.json["remaining"], 1)
        self.assertNotIn("s3cret", shown.body.decode())
        self.assertIs(service.admin("GET", descriptor_path(("free", "x"))).json["unlimited"], True)
        self.assertEqual(service.admin("GET", descriptor_path(("closed", "x"))).json["limit"], 0)
        for path, status, code in (
                (descriptor_path(("user", "x"), domain="none"), 404, "NOT_FOUND"),
                (descriptor_path(("nobody", "x")), 404, "NOT_FOUND"),
                (descriptor_path(("area", "login"), ("user", "x")), 404, "NOT_FOUND"),
                (descriptor_path(), 400, "INVALID_QUERY"),
                (descriptor_path() + "user=%zz", 400, "INVALID_QUERY"),
                (descriptor_path(*[("user", "x")] * 33), 400, "INVALID_QUERY")):
            for method in ("GET", "DELETE"):
                self.assert_error(service.admin(method, path), status, code)


class Configuration(RlsTest):
    def test_is_shown_as_it_is_in_force(self):
        service = self.serve(edge=EDGE)
        shown = service.admin("GET", "/rlconfig")
        self.assertEqual(shown.status, 200)
        self.assertTrue(shown.header("Content-Type").startswith("text/plain"))
        lines = shown.body.decode().splitlines()
        self.assertEqual(lines[:2], [
            "edge.user: unit=YEAR requests_per_unit=5, shadow_mode: false",
            "edge.user.area_login: unit=YEAR requests_per_unit=1, shadow_mode: false"])
        self.assertRegex(lines[2], r"^edge\.api_key_#[0-9a-f]{12}: unit=YEAR requests_per_unit=2,")
        self.assertEqual(lines[3:], [
            "edge.trial: unit=YEAR requests_per_unit=1, shadow_mode: true",
            "edge.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, unlimited: true",
            "edge.closed: unit=SECOND requests_per_unit=0, shadow_mode: false",
            "edge.slow: unit=YEAR requests_per_unit=3, shadow_mode: false, "
            "algorithm=gcra,burst=2,count=3,period=365d"])

    def test_merges_domains_where_told_to(self):
        second = EDGE.replace("key: user", "key: visitor").split("  - key: api_key")[0]
        folder = self.folder()
        folder.write("rls/a.yaml", EDGE)
        folder.write("rls/b.yaml", second)
        refused = sluice("validate", str(folder / "rls"))
        self.assertEqual(refused.returncode, 2)
        self.assertIn('domain "edge" is already in', refused.stderr)
        service = self.serve("--rls-merge-domains=true", a=EDGE, b=second)
        for key in ("user", "visitor"):
            self.assertEqual(ask(service, (key, "ann")).json["statuses"][0]["limitRemaining"], 4)
        # `sluice validate` checks in the same way.
        config = folder.write("sluice.yaml", f"rules:\n  rlsPath: {folder / 'rls'}\n")
        for arguments, status in (((str(folder / "rls"),), 2), ((config,), 2),
                                  (("--rls-merge-domains", str(folder / "rls")), 0)):
            self.assertEqual(sluice("validate", *arguments).returncode, status, arguments)
        merging = folder.write("merging.yaml", f"rules:\n  rlsPath: {folder / 'rls'}\n"
                                               "  rlsMergeDomains: true\n")
        self.assertEqual(sluice("validate", merging).returncode, 0)


class Documentation(support.ServiceTest):
    def test_examples_of_json_are_of_the_limits_that_are_deployed(self):
        service = self.start("--rls-config", ROOT / "deploy/envoy/limits")
        text = (ROOT / "docs/reference/grpc.md").read_text()
        bodies = re.findall(r"curl -d '(\{.*?\})'", text)
        openapi = service.get("/openapi.json").json
        bodies.append(json.dumps(openapi["paths"]["/json"]["post"]["requestBody"]["content"]
                                 ["application/json"]["example"]))
        self.assertEqual(len(bodies), 2)
        for body in bodies:
            answer = service.request("POST", "/json", body)
            self.assertEqual(answer.status, 200, body)
            limit = answer.json["statuses"][0].get("currentLimit")
            self.assertEqual((limit or {}).get("requestsPerUnit"), 600, body)


if __name__ == "__main__":
    support.main()
