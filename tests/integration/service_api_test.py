# SPDX-License-Identifier: Apache-2.0
"""The REST API of the running service: every endpoint, header and error.

Usage: service_api_test.py PROGRAM
"""

import http.client
import json
import pathlib
import re
import signal
import ssl
import subprocess
import time
import unittest
import urllib.parse

import support
from support import AGES, RawConnection, eventually, parse_field, target, verdicts

CHECK = "/api/v1/rate-limit/check"
REMAINING = "/api/v1/rate-limit/remaining"
RESET = "/api/v1/rate-limit/reset"

# Algorithm, limit, seconds until a used-up budget is full again. R14.
DEFAULTS = (
    ("TOKEN_BUCKET", 100, 10),
    ("SLIDING_WINDOW", 100, 60),
    ("LEAKY_BUCKET", 10, 10),
    ("FIXED_WINDOW", 10, 60),
    ("SLIDING_WINDOW_COUNTER", 10, 120),
    ("GCRA", 100, 10),
)

RULES = f"""
ruleSets:
  - id: shop
    rules:
      - id: per-ip
        scope: PER_IP
        bands:
          - {{label: burst, algorithm: TOKEN_BUCKET, capacity: 3, refill: 1, period: {AGES}}}
          - {{label: long, algorithm: FIXED_WINDOW, limit: 100, window: {AGES}}}
      - id: per-user
        scope: PER_USER
        bands:
          - {{label: small, algorithm: SLIDING_WINDOW, limit: 2, window: {AGES}}}

  - id: two-clocks
    rules:
      - id: r
        scope: PER_USER
        bands:
          - {{label: ages, algorithm: FIXED_WINDOW, limit: 100, window: {AGES}}}
          - {{label: slow, algorithm: TOKEN_BUCKET, capacity: 2, refill: 1, period: 1000s}}
          - {{label: quick, algorithm: TOKEN_BUCKET, capacity: 2, refill: 1, period: 500s}}

  - id: leaky
    rules:
      - {{id: r, scope: CUSTOM, attribute: x-tenant, bands: [
          {{label: l, algorithm: LEAKY_BUCKET, capacity: 3, leak: 1, period: 1000s}}]}}

  - id: glacier
    rules:
      - id: r
        scope: PER_USER
        bands: ["algorithm=token_bucket,capacity=1000000000,refill=1,period=1d"]

  - id: shadowed
    rules:
      - id: trial
        scope: PER_USER
        shadow: true
        bands: [{{label: one, algorithm: FIXED_WINDOW, limit: 1, window: {AGES}}}]
      - id: real
        scope: PER_USER
        bands: [{{label: three, algorithm: FIXED_WINDOW, limit: 3, window: {AGES}}}]

  - id: overridden
    rules:
      - id: per-user
        scope: PER_USER
        bands: [{{label: b, algorithm: FIXED_WINDOW, limit: 1, window: {AGES}}}]
        overrides:
          - {{key: vip, bands: [{{label: b, algorithm: FIXED_WINDOW, limit: 3, window: {AGES}}}]}}
          - {{key: root, unlimited: true}}
          - {{key: mallory, blocked: true}}
          - {{pattern: "bot-*", blocked: true}}
      - {{id: per-ip, scope: PER_IP, bands: [{{label: i, algorithm: FIXED_WINDOW, limit: 9, window: {AGES}}}]}}

  - id: switched-off
    enabled: false
    rules:
      - {{id: r, scope: GLOBAL, bands: [{{algorithm: FIXED_WINDOW, limit: 1, window: {AGES}}}]}}

  - id: partly-off
    rules:
      - {{id: off, enabled: false, scope: GLOBAL, bands: ["limit=1,window=1h"]}}
      - {{id: without-bands, scope: GLOBAL}}

  - id: without-rules
    rules: []

  - id: missing
    rules:
      - id: skips
        scope: PER_USER
        match: {{paths: /skip}}
        onMissingKey: SKIP
        bands: [{{algorithm: FIXED_WINDOW, limit: 1, window: {AGES}}}]
      - id: denies
        scope: PER_API_KEY
        match: {{paths: /deny}}
        onMissingKey: DENY
        bands: [{{algorithm: FIXED_WINDOW, limit: 1, window: {AGES}}}]
      - id: uses-ip
        scope: CUSTOM
        attribute: tenant
        match: {{paths: /ip}}
        onMissingKey: USE_IP
        bands: [{{algorithm: FIXED_WINDOW, limit: 1, window: {AGES}}}]

  - id: costly
    rules:
      - id: tokens
        scope: PER_API_KEY
        cost: {{attribute: tokens, default: 2, max: 50}}
        bands: [{{label: t, algorithm: FIXED_WINDOW, limit: 60, window: {AGES}}}]

  - id: matching
    rules:
      - id: write
        scope: GLOBAL
        match: {{methods: [POST, PUT], paths: ["/v1/items/{{item}}", "/v1/all/**"]}}
        bands: [{{algorithm: FIXED_WINDOW, limit: 1000, window: {AGES}}}]
      - id: per-item
        scope: CUSTOM
        attribute: path.item
        match: {{paths: "/v1/items/{{item}}"}}
        bands: [{{algorithm: FIXED_WINDOW, limit: 1000, window: {AGES}}}]
      - id: trial-plan
        scope: GLOBAL
        match: {{attributes: {{plan: [free, "trial-*"], partner: {{present: false}}}}}}
        bands: [{{algorithm: FIXED_WINDOW, limit: 1000, window: {AGES}}}]

  - id: quick
    rules:
      - id: q
        scope: PER_IP
        bands: [{{label: second, algorithm: SLIDING_WINDOW, limit: 1, window: 1500ms}}]

  - id: unlabelled
    rules:
      - id: two
        scope: GLOBAL
        bands:
          - {{algorithm: FIXED_WINDOW, limit: 5, window: {AGES}}}
          - {{algorithm: FIXED_WINDOW, limit: 7, window: {AGES}}}

  - id: edge
    rules:
      - id: e
        scope: PER_IP
        match: {{methods: [POST], paths: [/orders]}}
        bands: [{{algorithm: FIXED_WINDOW, limit: 2, window: {AGES}}}]
"""


class ApiTest(support.SharedServiceTest):
    RULES = RULES

    def check_key(self, key, **parameters):
        return self.service.get(target(CHECK, key=key, **parameters))


class RateLimit(ApiTest):
    def within_a_minute(self, work):
        """Runs `work` again if a minute began meanwhile: the default windows end with it."""
        for _ in range(5):
            minute = int(time.time()) // 60
            try:
                result = work()
            except AssertionError:
                if int(time.time()) // 60 == minute:
                    raise
                continue
            if int(time.time()) // 60 == minute:
                return result
        self.fail("never done within a minute")

    def test_allows_as_the_document_says(self):
        for algorithm, limit, _ in DEFAULTS:
            with self.subTest(algorithm):
                answer = self.check_key("first:" + algorithm, algorithm=algorithm)
                self.assertEqual(answer.status, 200)
                document = answer.json
                self.assertEqual(list(document)[:6], ["allowed", "key", "algorithm", "remaining",
                                                      "resetAfterSeconds", "retryAfterSeconds"])
                self.assertIs(document["allowed"], True)
                self.assertEqual(document["key"], "first:" + algorithm)
                self.assertEqual(document["algorithm"], algorithm)
                self.assertEqual(document["remaining"], limit - 1)
                self.assertEqual(document["retryAfterSeconds"], 0)
                self.assertEqual(document["message"], "Request allowed")
                self.assertEqual(answer.header("X-RateLimit-Limit"), str(limit))
                self.assertEqual(answer.header("X-RateLimit-Remaining"), str(limit - 1))
                self.assertIsNone(answer.header("Retry-After"))

    def test_denies_as_the_document_says(self):
        for algorithm, limit, whole in DEFAULTS:
            with self.subTest(algorithm):
                self.within_a_minute(lambda a=algorithm, l=limit, w=whole: self.deny(a, l, w))

    def deny(self, algorithm, limit, whole):
        key = f"{algorithm}:{time.monotonic_ns()}"
        first = self.check_key(key, algorithm=algorithm, permits=limit)
        self.assertEqual((first.status, first.json["remaining"]), (200, 0))
        # All of it cannot be had again for a long time, however slow this machine is.
        answer = self.check_key(key, algorithm=algorithm, permits=limit)
        self.assertEqual(answer.status, 429)
        document = answer.json
        self.assertIs(document["allowed"], False)
        self.assertLess(document["remaining"], limit)
        self.assertEqual(document["message"], "Rate limit exceeded")
        self.assertGreaterEqual(document["retryAfterSeconds"], 1)
        self.assertLessEqual(document["retryAfterSeconds"], whole)
        self.assertLessEqual(document["resetAfterSeconds"], whole)
        self.assertEqual(answer.header("Retry-After"), str(document["retryAfterSeconds"]))
        self.assertEqual(answer.header("X-RateLimit-Remaining"), str(document["remaining"]))
        reset_at = int(answer.header("X-RateLimit-Reset"))
        self.assertLessEqual(abs(reset_at - time.time() - document["resetAfterSeconds"]), 5)

    def test_token_bucket_is_the_default(self):
        self.assertEqual(self.check_key("plain").json["algorithm"], "TOKEN_BUCKET")

    def test_algorithms_have_states_of_their_own(self):
        self.check_key("own", algorithm="TOKEN_BUCKET", permits=50)
        self.assertEqual(self.check_key("own", algorithm="GCRA").json["remaining"], 99)

    def test_algorithm_names_in_any_case_and_by_alias(self):
        for name in ("sliding_window", "Sliding_Window_Log", "SLIDING_WINDOW_LOG"):
            answer = self.check_key("alias" + name, algorithm=name)
            self.assertEqual(answer.json["algorithm"], "SLIDING_WINDOW")

    def test_leaky_bucket_says_how_long_to_wait(self):
        key = f"leak{time.monotonic_ns()}"
        first = self.check_key(key, algorithm="LEAKY_BUCKET").json
        self.assertNotIn("delayMicros", first)
        second = self.check_key(key, algorithm="LEAKY_BUCKET").json
        self.assertGreater(second.get("delayMicros", 1), 0)
        self.assertLessEqual(second.get("delayMicros", 1), 1_000_000)

    def test_permits(self):
        taken = self.check_key("p", algorithm="SLIDING_WINDOW", permits=7)
        self.assertEqual(taken.json["remaining"], 93)
        peek = self.check_key("p", algorithm="SLIDING_WINDOW", permits=0)
        self.assertEqual((peek.status, peek.json["remaining"]), (200, 93))
        self.assertEqual(peek.json["message"], "Nothing was charged; a request of 1 would be allowed")
        denied = self.check_key("p", algorithm="SLIDING_WINDOW", permits=94)
        self.assertEqual((denied.status, denied.json["remaining"]), (429, 93))

    def test_remaining_takes_nothing(self):
        self.check_key("look", algorithm="SLIDING_WINDOW", permits=3)
        for _ in range(3):
            answer = self.service.get(target(REMAINING, algorithm="SLIDING_WINDOW", key="look"))
            self.assertEqual(answer.status, 200)
            self.assertEqual((answer.json["remaining"], answer.json["limit"]), (97, 100))
            self.assertEqual(answer.header("X-RateLimit-Remaining"), "97")
        # Of an exhausted budget, too.
        self.check_key("look", algorithm="SLIDING_WINDOW", permits=97)
        look = self.check_key("look", algorithm="SLIDING_WINDOW", permits=0)
        self.assertEqual((look.status, look.json["allowed"], look.json["remaining"]),
                         (200, False, 0))
        self.assertGreater(look.json["retryAfterSeconds"], 0)
        self.assertEqual(look.json["message"], "Nothing was charged; a request of 1 would be denied")
        self.assertIsNone(look.header("Retry-After"))
        empty = self.service.get(target(REMAINING, algorithm="SLIDING_WINDOW", key="look"))
        self.assertEqual((empty.status, empty.json["remaining"]), (200, 0))

    def test_reset_makes_whole(self):
        for algorithm, limit, _ in DEFAULTS:
            with self.subTest(algorithm):
                self.check_key("again", algorithm=algorithm, permits=limit)
                answer = self.service.request(
                    "DELETE", target(RESET, algorithm=algorithm, key="again"))
                self.assertEqual(answer.status, 200)
                self.assertEqual(answer.json, {"key": "again", "algorithm": algorithm,
                                               "message": "Rate limit reset"})
                after = self.service.get(target(REMAINING, algorithm=algorithm, key="again"))
                self.assertEqual(after.json["remaining"], limit)
        # Resetting an unused key is not an error.
        self.assertEqual(self.service.request("DELETE", target(RESET, key="never")).status, 200)

    def test_errors_have_codes(self):
        for path in (CHECK, REMAINING):
            for query, code in (("algorithm=nope", "INVALID_ALGORITHM"),
                                ("algorithm=", "INVALID_ALGORITHM"),
                                ("key=", "INVALID_KEY"),
                                ("key=a%00b", "INVALID_KEY"),
                                ("key=a%0Ab", "INVALID_KEY"),
                                ("key=a%7F", "INVALID_KEY"),
                                ("key=" + "k" * 1025, "INVALID_KEY"),
                                ("key=a&permits=-1", "INVALID_PERMITS"),
                                ("key=a&permits=x", "INVALID_PERMITS"),
                                ("key=a&permits=", "INVALID_PERMITS"),
                                ("key=a&permits=1.5", "INVALID_PERMITS"),
                                ("key=a&permits=99999999999999999999", "INVALID_PERMITS"),
                                ("key=a&key=b", "INVALID_QUERY"),
                                ("key=%zz", "INVALID_QUERY"),
                                ("key=%a", "INVALID_QUERY")):
                with self.subTest(f"{path}?{query[:40]}"):
                    self.assert_error(self.service.get(f"{path}?{query}"), 400, code)
        known = self.service.get(CHECK + "?algorithm=nope").json["error"]["message"].upper()
        for algorithm, _, _ in DEFAULTS:
            self.assertIn(algorithm, known)
        self.assert_error(self.service.request("DELETE", RESET + "?key="), 400, "INVALID_KEY")

    def test_a_cost_that_never_fits_is_no_denial(self):
        for algorithm, limit, _ in DEFAULTS:
            answer = self.check_key("big", algorithm=algorithm, permits=limit + 1)
            self.assert_error(answer, 400, "COST_EXCEEDS_LIMIT")
            self.assertIsNone(answer.header("Retry-After"))

    def test_a_key_of_the_greatest_length(self):
        key = "k" * 1024
        self.assertEqual(self.check_key(key).json["key"], key)

    def test_hostile_keys_make_valid_json(self):
        for raw in (b'"', b"\\", b'","allowed":true,"x":"', b"</script>", b"\xff\xfe", b"\xc3",
                    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", "\u2028\U0001f600".encode(),
                    b"a b+c&d=e", b"{key}:*", b"%2541"):
            with self.subTest(raw):
                answer = self.service.get(f"{CHECK}?key={urllib.parse.quote_from_bytes(raw)}")
                self.assertEqual(answer.status, 200)
                shown = answer.json["key"]  # Strictly decoded.
                if raw.isascii():
                    self.assertEqual(shown, raw.decode())
                self.assertEqual(answer.json["remaining"], 99)

    def test_keys_that_look_alike_are_apart(self):
        self.check_key("x", permits=50)
        shown = set()
        # The last two are texts that imitate the first.
        keys = ("%ff", "%fe", "%ef%bf%bdFF", "%ef%bf%bd")
        for key in keys:
            answer = self.service.get(f"{CHECK}?key=alike{key}").json
            self.assertEqual(answer["remaining"], 99)
            shown.add(answer["key"])
        self.assertEqual(len(shown), len(keys), shown)
        self.assertIn("alike\N{REPLACEMENT CHARACTER}FF", shown)

    def test_without_a_key_the_peer_is_counted(self):
        answer = self.service.get(CHECK + "?algorithm=SLIDING_WINDOW")
        self.assertEqual(answer.json["key"], "127.0.0.1")

    def test_rate_limit_fields(self):
        answer = self.check_key("fields", algorithm="SLIDING_WINDOW", permits=40)
        self.assertEqual(parse_field(answer.header("RateLimit-Policy")),
                         {"SLIDING_WINDOW": {"q": 100, "w": 60}})
        self.assertEqual(parse_field(answer.header("RateLimit")),
                         {"SLIDING_WINDOW": {"r": 60, "t": 60}})
        denied = self.check_key("fields", algorithm="SLIDING_WINDOW", permits=90)
        self.assertEqual(denied.status, 429)
        field = parse_field(denied.header("RateLimit"))["SLIDING_WINDOW"]
        self.assertEqual(field["r"], 60)
        # Retry-After is not earlier than the field promises.
        self.assertGreaterEqual(int(denied.header("Retry-After")), field["t"])

    def test_reset_is_the_second_in_which_the_window_ends(self):
        def ends():
            answer = self.check_key("aligned", algorithm="FIXED_WINDOW", permits=0)
            return int(answer.header("X-RateLimit-Reset")), (int(time.time()) // 60 + 1) * 60

        told, true = self.within_a_minute(ends)
        self.assertEqual(told, true)

    def test_problem_documents_for_those_who_ask(self):
        key = f"problem{time.monotonic_ns()}"
        self.check_key(key, algorithm="SLIDING_WINDOW", permits=100)
        for accept in ("application/problem+json", "text/html, Application/Problem+JSON;q=0.9"):
            answer = self.service.get(target(CHECK, key=key, algorithm="SLIDING_WINDOW"),
                                      Accept=accept)
            self.assertEqual(answer.status, 429)
            self.assertEqual(answer.header("Content-Type"), "application/problem+json")
            document = answer.json
            self.assertEqual(document["type"],
                             "https://iana.org/assignments/http-problem-types#quota-exceeded")
            self.assertEqual(document["status"], 429)
            self.assertEqual(document["violated-policies"], ["SLIDING_WINDOW"])
            self.assertIsNotNone(answer.header("Retry-After"))
        plain = self.service.get(target(CHECK, key=key, algorithm="SLIDING_WINDOW"),
                                 Accept="application/json, */*")
        self.assertEqual(plain.header("Content-Type"), "application/json")
        error = self.service.get(CHECK + "?permits=x", Accept="application/problem+json")
        self.assertEqual(error.header("Content-Type"), "application/problem+json")
        self.assertEqual((error.json["status"], error.json["code"]), (400, "INVALID_PERMITS"))


class Http(ApiTest):
    def test_unknown_paths(self):
        for path in ("/nope", "/api/v1", "/api/v1/rate-limit", "/api/v1/rate-limit/check/",
                     "/API/v1/rate-limit/check", "/api/v1/authorize/", "/api/v1/authorize/a/b",
                     "/%", "//", "/..%2f"):
            with self.subTest(path):
                self.assert_error(self.service.get(path), 404, "NOT_FOUND")

    def test_wrong_methods(self):
        for method, path, allowed in (("POST", CHECK, "GET, HEAD"),
                                      ("DELETE", CHECK, "GET, HEAD"),
                                      ("GET", RESET, "DELETE"),
                                      ("HEAD", RESET, "DELETE"),
                                      ("GET", "/api/v1/check", "POST"),
                                      ("PUT", "/api/v1/check/batch", "POST"),
                                      ("POST", "/metrics", "GET, HEAD"),
                                      ("BREW", "/health", "GET, HEAD"),
                                      ("OPTIONS", "/health", "GET, HEAD")):
            with self.subTest(f"{method} {path}"):
                answer = self.service.request(method, path)
                self.assertEqual(answer.status, 405)
                self.assertEqual(answer.header("Allow"), allowed)
                if method != "HEAD":
                    self.assert_error(answer, 405, "METHOD_NOT_ALLOWED")

    def test_head_is_get_without_a_body(self):
        for path in ("/health", "/metrics", "/openapi.json", "/docs"):
            answer = self.service.request("HEAD", path)
            self.assertEqual((answer.status, answer.body), (200, b""))
            self.assertGreater(int(answer.header("Content-Length")), 0)
        # HEAD checks, so it takes.
        self.service.request("HEAD", target(CHECK, key="head", algorithm="SLIDING_WINDOW"))
        left = self.service.get(target(REMAINING, key="head", algorithm="SLIDING_WINDOW"))
        self.assertEqual(left.json["remaining"], 99)

    def test_request_ids(self):
        given = self.service.get("/health", X_Request_Id="abc-123.DEF")
        self.assertEqual(given.header("X-Request-Id"), "abc-123.DEF")
        made = {self.service.get("/health").header("X-Request-Id") for _ in range(3)}
        self.assertEqual(len(made), 3)
        for bad in ("with blank", 'quo"te', "x" * 1000, "<script>"):
            answer = self.service.get("/health", X_Request_Id=bad)
            self.assertRegex(answer.header("X-Request-Id"), r"^[0-9a-f]{32}$")

    def test_traceparent(self):
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        for path in ("/health", "/nope", target(CHECK, key="t")):
            self.assertEqual(self.service.get(path, traceparent=parent).header("traceparent"),
                             parent)
        for bad in ("00-00000000000000000000000000000000-b7ad6b7169203331-01", "nonsense",
                    parent.upper(), parent + "-x", "ff" + parent[2:]):
            self.assertIsNone(self.service.get("/health", traceparent=bad).header("traceparent"))

    def test_percent_encoded_parameters_in_paths(self):
        answer = self.service.get("/api/v1/authorize/%73hop", X_Forwarded_For="1.1.1.1")
        self.assertEqual(answer.status, 200)

    def test_dates_are_told(self):
        self.assertRegex(self.service.get("/health").header("Date"),
                         r"^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$")


class Rules(ApiTest):
    def test_the_answer_names_every_rule_and_band(self):
        answer = self.service.check("shop", ip="10.0.0.1", userId="ann", method="GET", path="/")
        self.assertEqual(answer.status, 200)
        document = answer.json
        self.assertEqual((document["limit"], document["remaining"]), (2, 1))
        self.assertEqual(document["ruleSet"], "shop")
        self.assertEqual(document["generation"], 1)
        self.assertEqual(document["source"], "store")
        self.assertIs(document["ruleApplied"], True)
        self.assertIs(document["limited"], True)
        self.assertEqual(document["message"], "Request allowed")
        self.assertNotIn("deniedBy", document)
        self.assertEqual([(rule["rule"], rule["scope"], rule["key"], rule["verdict"],
                           [(band["label"], band["algorithm"], band["limit"], band["remaining"])
                            for band in rule["bands"]]) for rule in document["rules"]],
                         [("per-ip", "PER_IP", "ip:10.0.0.1", "charged",
                           [("burst", "TOKEN_BUCKET", 3, 2), ("long", "FIXED_WINDOW", 100, 99)]),
                          ("per-user", "PER_USER", "user:ann", "charged",
                           [("small", "SLIDING_WINDOW", 2, 1)])])
        self.assertEqual(list(parse_field(answer.header("RateLimit-Policy"))),
                         ["shop/per-ip/burst", "shop/per-ip/long", "shop/per-user/small"])
        self.assertEqual(parse_field(answer.header("RateLimit"))["shop/per-ip/burst"]["r"], 2)

    def x_fields(self, answer):
        return [int(answer.header(f"X-RateLimit-{name}")) for name in
                ("Limit", "Remaining", "Reset")]

    def test_the_x_fields_speak_of_one_limit(self):
        asked = int(time.time())
        allowed = self.service.check("two-clocks", userId="one")
        limit, remaining, reset = self.x_fields(allowed)
        self.assertEqual((limit, remaining), (2, 1))
        # Not when the AGES window ends.
        self.assertTrue(asked + 1000 <= reset <= time.time() + 1001, reset)
        self.service.check("two-clocks", userId="one")
        denied = self.service.check("two-clocks", userId="one")
        self.assertEqual(denied.status, 429)
        limit, remaining, reset = self.x_fields(denied)
        self.assertEqual((limit, remaining), (2, 0))
        # Of the two that deny, it is the one that denies for longer.
        self.assertTrue(asked + 1900 <= reset <= time.time() + 2001, reset)
        retry_after = int(denied.header("Retry-After"))
        self.assertTrue(500 < retry_after <= 1000, retry_after)
        fields = parse_field(denied.header("RateLimit"))
        times = {name: field["t"] for name, field in fields.items()}
        self.assertEqual(times["two-clocks/r/slow"], retry_after)
        self.assertLess(times["two-clocks/r/quick"], retry_after)
        self.assertEqual(times["two-clocks/r/ages"], retry_after)

    def test_a_reset_that_no_clock_reaches_is_not_negative(self):
        answer = self.service.check("glacier", permits=1000000000, userId="one")
        self.assertEqual(self.x_fields(answer), [1000000000, 0, 9223372036855])
        self.assertEqual(answer.json["resetAfterSeconds"], 9223372036855)

    def remaining(self, rule_set, **context):
        """What each band has left, without taking any."""
        document = self.service.check(rule_set, permits=0, **context).json
        return {f"{rule['rule']}/{band['label']}": band["remaining"]
                for rule in document["rules"] for band in rule["bands"]}

    def test_a_look_says_what_a_request_of_one_would_get(self):
        who = {"ip": "10.0.0.77", "userId": "looker"}
        whole = self.service.check("shop", permits=0, **who)
        self.assertEqual((whole.status, whole.json["allowed"], whole.json["charged"]),
                         (200, True, False))
        self.assertEqual(whole.json["message"], "Nothing was charged; a request of 1 would be allowed")
        taken = [self.service.check("shop", **who).json for _ in range(2)]
        self.assertEqual([document["charged"] for document in taken], [True, True])
        denied = self.service.check("shop", **who)
        self.assertIs(denied.json["charged"], False)
        look = self.service.check("shop", permits=0, **who)
        self.assertEqual(look.status, 200, "a look is not turned away")
        self.assertIsNone(look.header("Retry-After"))
        document = look.json
        self.assertEqual((document["allowed"], document["remaining"], document["charged"]),
                         (False, 0, False))
        self.assertEqual(document["deniedBy"], {"rule": "per-user", "band": "small"})
        self.assertEqual(document["message"], "Nothing was charged; a request of 1 would be denied")
        self.assertEqual({rule["verdict"] for rule in document["rules"]}, {"looked"})
        self.assertGreater(document["retryAfterMicros"], 0)
        self.assertLessEqual(document["retryAfterMicros"], denied.json["retryAfterMicros"])

    def test_a_denied_request_charges_nothing(self):
        who = {"ip": "10.0.0.2", "userId": "bob"}
        for _ in range(2):
            self.assertEqual(self.service.check("shop", **who).status, 200)
        before = self.remaining("shop", **who)
        self.assertEqual(before, {"per-ip/burst": 1, "per-ip/long": 98, "per-user/small": 0})
        for _ in range(5):
            answer = self.service.check("shop", **who)
            self.assertEqual(answer.status, 429)
            document = answer.json
            self.assertEqual(document["deniedBy"], {"rule": "per-user", "band": "small"})
            self.assertEqual(document["message"], "Rate limit exceeded")
            self.assertEqual([rule["denied"] for rule in document["rules"]], [False, True])
            self.assertEqual(verdicts(answer), ["not-charged", "denied"])
            self.assertEqual(document["remaining"], 0)
        self.assertEqual(self.remaining("shop", **who), before)
        # The early rule still has its one.
        self.assertEqual(self.service.check("shop", ip="10.0.0.2", userId="carol").status, 200)

    def test_a_refused_request_charges_nothing(self):
        who = {"userId": "mallory", "ip": "10.0.0.9"}
        for permits in (None, 0):
            answer = self.service.check("overridden", permits, **who)
            self.assertEqual((answer.status, answer.json["charged"]), (429, False))
            self.assertEqual(verdicts(answer), ["blocked", "not-charged"])
        self.assertEqual(self.remaining("overridden", **who | {"userId": "x"})["per-ip/i"], 9)

    def test_the_longest_wait_counts(self):
        self.service.check("shop", permits=2, ip="10.0.0.3", userId="dora")
        self.service.check("shop", ip="10.0.0.3")
        document = self.service.check("shop", ip="10.0.0.3", userId="dora").json
        waits = [band["retryAfterMicros"] for rule in document["rules"]
                 for band in rule["bands"] if not band["allowed"]]
        self.assertEqual(len(waits), 2)
        self.assertEqual(document["retryAfterMicros"], max(waits))
        self.assertEqual(document["deniedBy"], {"rule": "per-ip", "band": "burst"})

    def test_shadows_never_deny(self):
        for number in range(3):
            document = self.service.check("shadowed", userId="eve").json
            self.assertIs(document["allowed"], True)
            trial, real = document["rules"]
            self.assertEqual((trial["shadow"], trial["denied"]), (True, number > 0))
            self.assertEqual((trial["verdict"], real["verdict"]),
                             ("denied" if number else "charged", "charged"))
            self.assertEqual(real["bands"][0]["remaining"], 2 - number)
        answer = self.service.check("shadowed", userId="eve")
        self.assertEqual(answer.json["deniedBy"], {"rule": "real", "band": "three"})
        self.assertEqual(verdicts(answer), ["denied", "denied"])
        self.assertEqual(list(parse_field(answer.header("RateLimit"))), ["shadowed/real/three"])
        self.assertEqual(self.service.metric("sluice_rule_decisions_total", rule_set="shadowed",
                                             rule="trial", outcome="shadow_denied"), 3)

    def test_overrides(self):
        allowed = [self.service.check("overridden", userId="vip").status for _ in range(4)]
        self.assertEqual(allowed, [200, 200, 200, 429])
        for _ in range(5):
            answer = self.service.check("overridden", userId="root")
            self.assertEqual(answer.status, 200)
            self.assertEqual(answer.json["rules"][0]["verdict"], "unlimited")
            self.assertIs(answer.json["limited"], False)
            self.assertIsNone(answer.header("X-RateLimit-Limit"))
        for user in ("mallory", "bot-7"):
            answer = self.service.check("overridden", userId=user)
            self.assertEqual(answer.status, 429)
            self.assertEqual(answer.json["rules"][0]["verdict"], "blocked")
            self.assertEqual(answer.json["deniedBy"], {"rule": "per-user"})
            self.assertEqual(answer.json["message"], "Refused by a rule")
            self.assertIsNone(answer.header("Retry-After"))
        ordinary = [self.service.check("overridden", userId="fay").status for _ in range(2)]
        self.assertEqual(ordinary, [200, 429])

    def test_what_does_not_apply_says_so(self):
        for rule_set in ("switched-off", "partly-off", "without-rules"):
            for _ in range(3):
                answer = self.service.check(rule_set, ip="10.0.0.4")
                self.assertEqual(answer.status, 200)
                self.assertIs(answer.json["ruleApplied"], False)
                self.assertEqual(answer.json["message"], "No rule applied")
                self.assertEqual(answer.json["rules"], [])
                self.assertIsNone(answer.header("RateLimit"))

    def test_forgotten_keys_are_named(self):
        answer = self.service.check("shop", userId="oblivious").json
        self.assertEqual(answer["skipped"],
                         [{"rule": "per-ip", "scope": "PER_IP", "missing": "context.ip"}])
        self.assertNotIn("skipped", self.service.check("shop", permits=0, ip="10.0.0.77",
                                                       userId="mindful").json)
        self.assertEqual(self.service.check("leaky").json["skipped"][0]["missing"],
                         "context.attributes.x-tenant")
        batch = self.service.request("POST", "/api/v1/check/batch",
                                     {"checks": [{"ruleSet": "quick"}]}).json["results"]
        self.assertEqual(batch[0]["skipped"][0]["missing"], "context.ip")
        # Rules for other paths are not affected.
        self.assertNotIn("skipped", self.service.check("missing", path="/elsewhere").json)

    def test_a_leaky_bucket_is_a_queue(self):
        who = {"attributes": {"x-tenant": "queue"}}
        first = self.service.check("leaky", **who)
        self.assertEqual(first.json["rules"][0]["bands"][0]["queued"], 1)
        self.assertIsNone(first.header("X-Sluice-Delay-Micros"))
        second = self.service.check("leaky", **who)
        self.assertEqual(second.json["rules"][0]["bands"][0]["queued"], 2)
        delay = int(second.header("X-Sluice-Delay-Micros"))
        self.assertEqual(delay, second.json["delayMicros"])
        self.assertTrue(0 < delay <= 1000_000_000, delay)
        key = f"queue{time.monotonic_ns()}"
        one = self.service.get(target(CHECK, key=key, algorithm="LEAKY_BUCKET", permits=7)).json
        self.assertEqual(one["queued"], 7)
        look = self.service.get(target(REMAINING, key=key, algorithm="LEAKY_BUCKET")).json
        self.assertEqual(look["queued"], 10 - look["remaining"])
        self.assertNotIn("queued", self.service.check("glacier", userId="q").json
                         ["rules"][0]["bands"][0])

    def test_missing_keys(self):
        for _ in range(2):
            self.assertIs(self.service.check("missing", path="/skip").json["ruleApplied"], False)
            denied = self.service.check("missing", path="/deny", ip="10.0.0.5")
            self.assertEqual(denied.status, 429)
            self.assertEqual(denied.json["rules"][0]["verdict"], "missing-key")
        by_ip = [self.service.check("missing", path="/ip", ip=ip) for ip in
                 ("10.0.0.6", "10.0.0.6", "10.0.0.7")]
        self.assertEqual([answer.status for answer in by_ip], [200, 429, 200])
        self.assertEqual(by_ip[0].json["rules"][0]["key"], "ip:10.0.0.6")
        self.assertEqual(self.service.check("missing", path="/ip").status, 429)
        # An empty one counts as missing.
        self.assertIs(self.service.check("missing", path="/skip", userId="").json["ruleApplied"],
                      False)

    def test_cost_from_an_attribute(self):
        def ask(tokens=None, permits=None):
            attributes = {} if tokens is None else {"tokens": tokens}
            return self.service.check("costly", permits, apiKey="k", attributes=attributes)

        self.assertEqual(ask("10").json["remaining"], 50)
        self.assertEqual(ask().json["remaining"], 48)
        self.assertEqual(ask("3", permits=2).json["remaining"], 42)
        free = ask("0")
        self.assertEqual((free.json["remaining"], free.json["charged"]), (42, False))
        self.assertEqual(verdicts(free), ["looked"])
        self.assertEqual(ask("40").json["rules"][0]["cost"], 40)
        denied = ask("1000")  # At most 50 by the rule.
        self.assertEqual((denied.status, denied.json["rules"][0]["cost"]), (429, 50))
        for bad in ("-1", "x", "1.5", "99999999999999999999"):
            self.assert_error(ask(bad), 400, "INVALID_COST")
        too_much = ask("40", permits=2)
        self.assert_error(too_much, 400, "COST_EXCEEDS_LIMIT")
        self.assertIn('"costly/tokens/t"', too_much.json["error"]["message"])

    def test_matching(self):
        def applied(**context):
            return [rule["rule"] for rule in
                    self.service.check("matching", **context).json["rules"]]

        self.assertEqual(applied(method="POST", path="/v1/items/7"), ["write", "per-item"])
        self.assertEqual(applied(method="GET", path="/v1/items/7?x=1"), ["per-item"])
        self.assertEqual(applied(method="put", path="/v1/all/a/b/c"), ["write"])
        self.assertEqual(applied(method="POST", path="/v1/all"), ["write"])
        self.assertEqual(applied(method="POST", path="/v1/other"), [])
        self.assertEqual(applied(path="/v1/items/7/8"), [])
        # Other spellings of the same path.
        for path in ("//v1/items/7/", "/v1/./items/7", "/v1/x/../items/7", "/v1/%69tems/7",
                     "http://host/v1/items/7"):
            self.assertEqual(applied(path=path), ["per-item"], path)
        self.assertEqual(applied(attributes={"plan": "trial-2"}), ["trial-plan"])
        self.assertEqual(applied(attributes={"plan": "trial-2", "partner": "x"}), [])
        self.assertEqual(applied(attributes={"plan": "paid"}), [])
        item = self.service.check("matching", path="/v1/items/7").json["rules"][0]
        self.assertEqual(item["key"], "path.item:7")

    def test_unlabelled_bands_have_states_of_their_own(self):
        document = self.service.check("unlabelled").json
        self.assertEqual([(band["label"], band["remaining"])
                          for band in document["rules"][0]["bands"]],
                         [("band-1", 4), ("band-2", 6)])

    def test_retry_after_is_not_too_early(self):
        self.assertEqual(self.service.check("quick", ip="10.0.0.8").status, 200)
        denied = self.service.check("quick", ip="10.0.0.8")
        if denied.status == 200:
            self.skipTest("this machine needed more than a second for one request")
        wait = int(denied.header("Retry-After"))
        self.assertLessEqual(wait, 2)
        time.sleep(wait)
        self.assertEqual(self.service.check("quick", ip="10.0.0.8").status, 200)

    def test_an_address_is_one_client_however_it_is_written(self):
        for same in (("192.0.2.7", "::ffff:192.0.2.7", "192.0.2.7:80"),
                     ("2001:db8::1", "2001:DB8:0::1", "2001:db8:0:0:ffff::2", "[2001:db8::1]:80"),
                     ("2001:db8:1::/64",), ("not an address",)):
            keys = {self.service.check("quick", permits=0, ip=ip).json["rules"][0]["key"]
                    for ip in same}
            self.assertEqual(len(keys), 1, keys)
        batch = self.service.request("POST", "/api/v1/check/batch", {"checks": [
            {"ruleSet": "quick", "permits": 0, "context": {"ip": "2001:db8::5"}}]})
        self.assertEqual(batch.json["results"][0]["rules"][0]["key"], "ip:2001:db8::/64")

    def test_problem_names_the_bands_that_denied(self):
        who = {"ip": "10.0.0.9", "userId": "gus"}
        self.service.check("shop", permits=2, **who)
        answer = self.service.check("shop", headers={"Accept": "application/problem+json"}, **who)
        self.assertEqual(answer.status, 429)
        self.assertEqual(answer.header("Content-Type"), "application/problem+json")
        self.assertEqual(answer.json["violated-policies"], ["shop/per-user/small"])

    def test_bad_documents(self):
        def post(body):
            return self.service.request("POST", "/api/v1/check", body)

        for body in ("", "{", "[]", "null", "7", '"x"', "{}", '{"ruleSet":7}',
                     '{"ruleSet":"shop","permits":-1}', '{"ruleSet":"shop","permits":1.5}',
                     '{"ruleSet":"shop","permits":"1"}',
                     '{"ruleSet":"shop","permits":99999999999999999999}',
                     '{"ruleSet":"shop","context":[]}', '{"ruleSet":"shop","context":{"ip":1}}',
                     '{"ruleSet":"shop","context":{"ipp":"1.2.3.4"}}',
                     '{"ruleSet":"shop","contxt":{}}',
                     '{"ruleSet":"shop","context":{"attributes":[]}}',
                     '{"ruleSet":"shop","context":{"attributes":{"a":1.5}}}',
                     '{"ruleSet":"shop","context":{"attributes":{"a":true}}}',
                     '{"ruleSet":"shop","context":{"userId":1e30}}',
                     '{"ruleSet":"shop"} x', "[" * 100_000, '{"ruleSet":"shop",}',
                     json.dumps({"ruleSet": "shop", "context": {
                         "attributes": {f"a{i}": "" for i in range(65)}}})):
            with self.subTest(body[:60]):
                self.assert_error(post(body), 400, "INVALID_INPUT")
        self.assert_error(post(b'{"ruleSet":"sh\xffop"}'), 400, "INVALID_INPUT")
        self.assert_error(post({"ruleSet": "nope"}), 404, "NOT_FOUND")
        hostile = post({"ruleSet": 'a"\\\x00\u2028' + "x" * 10_000})
        self.assert_error(hostile, 404, "NOT_FOUND")
        self.assertLess(len(hostile.body), 1000)

    def test_whole_numbers_are_ids_and_attributes(self):
        # As many JSON libraries write them.
        self.assertEqual(self.service.check("overridden", userId=7041).status, 200)
        denied = self.service.check("overridden", userId="7041")
        self.assertEqual(denied.status, 429)
        self.assertEqual(denied.json["rules"][0]["key"], "user:7041")
        self.assertEqual(self.service.check("overridden", userId=7041.0).status, 429)
        costly = self.service.check("costly", apiKey=9, attributes={"tokens": 12})
        self.assertEqual(costly.json["rules"][0]["cost"], 12)
        results = self.service.request("POST", "/api/v1/check/batch", {"checks": [
            {"ruleSet": "overridden", "context": {"userId": 7041}}]}).json["results"]
        self.assertEqual(results[0]["status"], 429)

    def test_hostile_values_make_valid_json(self):
        for value in ('"', "\\", "\u2028", "a" * 5000, "\U0001f600", ":{}*", "\u0085"):
            with self.subTest(value[:20]):
                answer = self.service.check("overridden", userId=value)
                self.assertEqual(answer.status, 200)
                json.dumps(answer.json)
        for value in ("\x00", "a\nb", "\x1f", "\x7f"):
            for field in ("ip", "userId", "apiKey"):
                with self.subTest(f"{field} {value!r}"):
                    answer = self.service.check("overridden", **{field: value})
                    self.assert_error(answer, 400, "INVALID_KEY")

    def test_long_values_are_hashed(self):
        answers = [self.service.check("overridden", userId="u" * 2000 + end) for end in "aab"]
        self.assertEqual([answer.status for answer in answers], [200, 429, 200])
        self.assertRegex(answers[0].json["rules"][0]["key"], r"^user#[0-9a-f]{64}$")


class Batch(ApiTest):
    def batch(self, checks):
        return self.service.request("POST", "/api/v1/check/batch", {"checks": checks})

    def test_answers_in_order(self):
        checks = [{"ruleSet": "overridden", "context": {"userId": f"u{i % 40}"}}
                  for i in range(100)]
        answer = self.batch(checks)
        self.assertEqual(answer.status, 200)
        results = answer.json["results"]
        self.assertEqual([result["rules"][0]["key"] for result in results],
                         [f"user:u{i % 40}" for i in range(100)])
        self.assertEqual([result["status"] for result in results], [200] * 40 + [429] * 60)

    def test_each_has_its_own_error(self):
        results = self.batch([
            {"ruleSet": "shop", "context": {"ip": "10.1.0.1"}},
            {"ruleSet": "nope"},
            {"ruleSet": "shop", "permits": -1},
            17,
            {"ruleSet": "costly", "permits": 61, "context": {"apiKey": "b"}},
            {"ruleSet": "overridden", "context": {"userId": "mallory"}},
            {"ruleSet": "shop", "context": {"ip": "10.1.0.2"}}]).json["results"]
        self.assertEqual([result["status"] for result in results],
                         [200, 404, 400, 400, 400, 429, 200])
        self.assertEqual([result.get("error", {}).get("code") for result in results],
                         [None, "NOT_FOUND", "INVALID_INPUT", "INVALID_INPUT", "COST_EXCEEDS_LIMIT",
                          None, None])

    def test_bounds(self):
        self.assertEqual(self.batch([]).json, {"results": []})
        most = self.batch([{"ruleSet": "without-rules"}] * 1000)
        self.assertEqual(len(most.json["results"]), 1000)
        self.assert_error(self.batch([{"ruleSet": "without-rules"}] * 1001), 400, "INVALID_INPUT")
        for body in ("{}", '{"checks":{}}', '{"checks":[],"x":1}', "7", ""):
            self.assert_error(self.service.request("POST", "/api/v1/check/batch", body), 400,
                              "INVALID_INPUT")
        plain = self.service.request("POST", "/api/v1/check/batch", [{"ruleSet": "without-rules"}])
        self.assertEqual(plain.json["results"][0]["status"], 200)


class Authorize(ApiTest):
    ARGUMENTS = ("--trusted-proxies", "127.0.0.1/32", "--attribute-headers", "X-Tenant,X-Plan")

    def authorize(self, method="GET", query="", rule_set="edge", **headers):
        return self.service.request(method, f"/api/v1/authorize/{rule_set}{query}",
                                    headers=support.header_names(headers))

    def test_traefik(self):
        headers = {"X_Forwarded_Method": "POST", "X_Forwarded_Proto": "https",
                   "X_Forwarded_Host": "shop.example", "X_Forwarded_Uri": "/orders?id=1",
                   "X_Forwarded_For": "203.0.113.1"}
        answers = [self.authorize(**headers) for _ in range(3)]
        self.assertEqual([answer.status for answer in answers], [200, 200, 429])
        self.assertEqual(answers[0].json, {"allowed": True, "message": "Request allowed"})
        self.assertEqual(answers[2].json, {"allowed": False, "message": "Rate limit exceeded"})
        self.assertEqual(answers[0].header("X-RateLimit-Remaining"), "1")
        self.assertGreater(int(answers[2].header("Retry-After")), 0)
        self.assertEqual(parse_field(answers[2].header("RateLimit"))["edge/e/band-1"]["r"], 0)
        # Another client, and another request.
        self.assertEqual(self.authorize(**headers | {"X_Forwarded_For": "203.0.113.2"}).status, 200)
        other = self.authorize(**headers | {"X_Forwarded_Method": "GET"})
        self.assertEqual(other.json["message"], "No rule applied")

    def test_headers_are_attributes_and_delays_are_passed_on(self):
        answers = [self.authorize(rule_set="leaky", X_Tenant="acme") for _ in range(4)]
        self.assertEqual([answer.status for answer in answers], [200, 200, 200, 429])
        delays = [int(answer.header("X-Sluice-Delay-Micros") or 0) for answer in answers]
        self.assertEqual((delays[0], delays[3]), (0, 0))
        self.assertTrue(0 < delays[1] <= 1000_000_000 and delays[1] < delays[2], delays)
        self.assertEqual(answers[1].json["delayMicros"], delays[1])
        self.assertEqual(self.authorize(rule_set="leaky", X_Tenant="other").status, 200)
        self.assertEqual(self.authorize(rule_set="leaky").json["message"], "No rule applied")

    def test_attributes_that_contradict_each_other_are_refused(self):
        with RawConnection(self.service.port) as client:
            client.send(b"GET /api/v1/authorize/leaky HTTP/1.1\r\nHost: x\r\n"
                        b"X-Tenant: a\r\nx-tenant: b\r\n\r\n")
            self.assert_error(client.read_answer(), 400, "INVALID_REQUEST")

    def test_caddy(self):
        # It sends GET, with the method and the target of the original request.
        headers = {"X_Forwarded_Method": "POST", "X_Forwarded_Uri": "/orders",
                   "X_Forwarded_For": "203.0.113.3", "X_Forwarded_Host": "h",
                   "X_Forwarded_Proto": "http"}
        self.assertEqual([self.authorize(**headers).status for _ in range(3)], [200, 200, 429])

    def test_nginx(self):
        headers = {"X_Original_Method": "POST", "X_Original_URI": "/orders?x",
                   "X_Forwarded_For": "203.0.113.4"}
        answers = [self.authorize(query="?mode=nginx", **headers) for _ in range(3)]
        self.assertEqual([answer.status for answer in answers], [200, 200, 403])
        self.assertEqual(answers[2].header("X-Sluice-Status"), "429")
        self.assertIsNotNone(answers[2].header("Retry-After"))
        self.assertIsNone(answers[0].header("X-Sluice-Status"))

    def test_the_method_itself_counts_if_none_is_forwarded(self):
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            answer = self.authorize(method, X_Forwarded_For="203.0.113.5",
                                    X_Forwarded_Uri="/orders")
            self.assertEqual(answer.json["message"],
                             "Request allowed" if method == "POST" else "No rule applied")

    def test_bodies_are_of_no_interest(self):
        answer = self.service.request("POST", "/api/v1/authorize/edge", "not json")
        self.assertEqual(answer.status, 200)

    def test_permits(self):
        headers = {"X_Forwarded_Method": "POST", "X_Forwarded_Uri": "/orders",
                   "X_Forwarded_For": "203.0.113.6"}
        self.assertEqual(self.authorize(query="?permits=2", **headers).status, 200)
        self.assertEqual(self.authorize(query="?permits=0", **headers).status, 200)
        self.assertEqual(self.authorize(**headers).status, 429)

    def test_errors(self):
        self.assert_error(self.authorize(rule_set="nope"), 404, "NOT_FOUND")
        self.assert_error(self.authorize(query="?mode=apache"), 400, "INVALID_MODE")
        self.assert_error(self.authorize(query="?permits=x"), 400, "INVALID_PERMITS")
        self.assert_error(self.authorize(query="?mode=%"), 400, "INVALID_QUERY")


# Domains for POST /json.
RLS = """domain: edge
descriptors:
  - key: api_key
    rate_limit: {unit: year, requests_per_unit: 1}
"""

# A budget that lasts, and is refused in an outage; and one that is used up at once.
DESCRIBED_RULES = f"""
ruleSets:
  - id: api
    rules: [{{id: r, scope: PER_IP, onStoreFailure: FAIL_CLOSED,
             bands: [{{algorithm: FIXED_WINDOW, limit: 1000, window: {AGES}}}]}}]
  - id: spent
    rules: [{{id: r, scope: GLOBAL, hold: {{ttl: 1h}},
             bands: ["algorithm=fixed_window,limit=1,window={AGES}"]}}]
"""
HOLDS = "/api/v1/holds"
AUTHORIZE = "/api/v1/authorize/{ruleSet}"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE")


class DescribedAnswers(support.ServiceTest):
    """Every answer that /openapi.json promises is given, and has the described shape."""

    def setUp(self):
        self.seen = set()
        self.hold_id = ""

    def serve(self, *arguments, token=None):
        folder = self.folder()
        service = self.start("--rules", folder.write("rules.yaml", DESCRIBED_RULES),
                             "--rls-config", folder.write("rls.yaml", RLS), *arguments,
                             token=token)
        service.description.seen = self.seen  # The client checks and records every answer.
        return service

    def operations(self, service):
        return service.description.operations()

    def ask(self, service, method, path, operation, query="", body=None, rule_set="api"):
        if body is None and "requestBody" in operation:
            body = operation["requestBody"]["content"]["application/json"]["example"]
        path = path.replace("{ruleSet}", rule_set).replace("{id}", self.hold_id)
        return service.request(method, path + query, body)

    def hold(self, service):
        body = service.description.paths[HOLDS]["post"]["requestBody"]
        answer = service.request("POST", HOLDS, body["content"]["application/json"]["example"])
        self.assertEqual(answer.status, 201)
        return answer.json["id"]

    def test_all_are_given(self):
        service = self.serve()
        self.give_what_works(service)
        self.give_errors_of_clients(service)
        self.give_denials(service)
        self.give_outages(self.serve("--store", "redis://127.0.0.1:1", "--http-on-store-failure",
                                     "FAIL_CLOSED", "--grpc-on-store-failure", "FAIL_CLOSED"))
        self.refuse_strangers()
        self.give_draining(service)
        self.assertEqual(service.description.promised() - self.seen, set(), "never given")

    def refuse_strangers(self):
        tokens = self.folder().write("tokens", "secret")
        guarded = self.serve("--http-token-file", tokens, token="secret")
        public = self.serve("--http-public", "true")
        for method, path, operation in self.operations(guarded):
            if "401" in operation["responses"]:
                answer = self.ask(guarded, method, path, operation)
                self.assertEqual(answer.status, 401, (method, path))
                self.assertEqual(answer.header("WWW-Authenticate"), "Bearer")
            # For a denial sent to nginx, it differs.
            if "403" in operation["responses"] and path != AUTHORIZE:
                answer = self.ask(public, method, path, operation, query="?key=other")
                self.assertEqual(answer.status, 403, (method, path))

    def give_what_works(self, service):
        for method, path, operation in self.operations(service):
            if "{id}" in path:
                self.hold_id = self.hold(service)
            self.assertEqual(self.ask(service, method, path, operation).status,
                             201 if path == HOLDS else 200, (method, path))

    def give_errors_of_clients(self, service):
        for method, path, operation in self.operations(service):
            if HOLDS in path:
                wrong = path.replace("{id}", "wrong")
                self.assertEqual(service.request(method, wrong, "{").status, 400)
            elif "requestBody" in operation:
                self.assertEqual(service.request(method, path, "{").status, 400)
            elif "parameters" in operation:
                wrong = "?mode=x" if path == AUTHORIZE else "?algorithm=x"
                self.assertEqual(self.ask(service, method, path, operation, wrong).status, 400)
        for method in METHODS[:-1]:
            self.assertEqual(service.request(method, "/api/v1/authorize/none").status, 404)
        self.assertEqual(service.check("none").status, 404)
        self.assertEqual(service.request("POST", HOLDS, {"ruleSet": "none"}).status, 404)
        settle = service.request("POST", f"{HOLDS}/{self.hold(service)}/settle",
                                 {"permits": {"none": 1}})
        self.assertEqual(settle.status, 404)
        own = {"ruleSet": "api", "context": {"ip": "192.0.2.7"}, "ttl": "1m", "id": "own"}
        made = service.request("POST", HOLDS, own)
        self.assertEqual(service.request("POST", HOLDS, own | {"permits": 2}).status, 409)
        self.assertEqual(service.request("DELETE", f"{HOLDS}/{made.json['id']}").status, 200)
        self.assertEqual(service.request("POST", f"{HOLDS}/{made.json['id']}/extend").status, 410)

    def give_denials(self, service):
        self.assertEqual(service.check("spent").status, 200)
        self.assertEqual(service.check("spent").status, 429)
        self.assertEqual(service.request("POST", HOLDS, {"ruleSet": "spent"}).status, 429)
        for method in METHODS[:-1]:
            self.assertEqual(service.request(method, "/api/v1/authorize/spent").status, 429)
            self.assertEqual(service.request(method, "/api/v1/authorize/spent?mode=nginx").status,
                             403)
        spend = target(CHECK, key="spent", algorithm="SLIDING_WINDOW", permits=100)
        self.assertEqual([service.get(spend).status for _ in range(2)], [200, 429])
        # Its one request was used while all was well.
        path = service.description.paths["/json"]["post"]
        self.assertEqual(self.ask(service, "POST", "/json", path).status, 429)

    def give_outages(self, service):
        for method, path, operation in self.operations(service):
            if "503" in operation["responses"] and "health" not in path:
                answer = self.ask(service, method, path, operation)
                self.assertEqual(answer.status, 503, (method, path))

    def give_draining(self, service):
        paths = [path for _, path, operation in self.operations(service)
                 if "503" in operation["responses"] and "health" in path]
        begun = []
        for path in paths:
            begun.append(RawConnection(service.port))
            self.addCleanup(begun[-1].close)
            begun[-1].send(f"GET {path} HTTP/1.1\r\nHost: x\r\n".encode())
        service.send(signal.SIGTERM)
        eventually(lambda: service.log_lines("draining"), "it drains")
        for path, connection in zip(paths, begun):
            connection.send(b"\r\n")
            answer = connection.read_answer()
            self.assertEqual(answer.status, 503)
            service.description.check("GET", path, answer)
        self.assertEqual(service.wait(), 0)

    def test_methods_that_are_not_described_are_not_allowed(self):
        service = self.serve()
        for path, operations in service.description.paths.items():
            allowed = {method.upper() for method in operations}
            if "GET" in allowed:
                allowed.add("HEAD")
            for method in METHODS:
                with self.subTest(f"{method} {path}"):
                    if path == AUTHORIZE:  # Any method, including those that nobody can describe.
                        client = support.Client(service.port)
                        self.addCleanup(client.close)
                        answer = client.request(method, path.replace("{ruleSet}", "api"))
                        self.assertEqual(answer.status, 200)
                    elif method not in allowed:
                        answer = service.request(method, path)
                        self.assertEqual(answer.status, 405)
                        self.assertEqual(set(answer.header("Allow").split(", ")), allowed)

    def test_paths_that_are_not_described_are_not_found(self):
        service = self.serve()
        for path in service.description.paths:
            for other in (path + "/", path + "/x", path.upper(), "/" + path, path[:-1]):
                if service.description.path_of(other) is None and other.startswith("/"):
                    self.assertEqual(service.get(other).status, 404, other)


class Described(ApiTest):
    def test_the_page_for_people(self):
        for path in ("/", "/docs"):
            answer = self.service.get(path)
            self.assertEqual(answer.header("Content-Type"), "text/html; charset=utf-8")
            self.assertIn("default-src 'none'", answer.header("Content-Security-Policy"))
            page = answer.body.decode()
            self.assertTrue(page.startswith("<!doctype html>"))
            self.assertIn("/openapi.json", page)
            self.assertIn(f"http://127.0.0.1:{self.service.port}</span>/api/v1/", page)
            # Nothing is loaded from elsewhere.
            self.assertNotRegex(page, r'(src|href)="(https?:)?//')

    def test_the_page_shows_whatever_name_it_was_asked_by(self):
        page = self.service.get("/docs", Host="limits.example:81").body.decode()
        self.assertIn("http://limits.example:81</span>", page)
        hostile = self.service.get("/docs", Host="a'&b").body.decode()
        self.assertIn("http://a&#39;&amp;b</span>", hostile)

    def test_the_page_in_a_browser(self):
        """As much of one as the page needs."""
        folder = self.folder()
        page = folder.write("docs.html", self.service.get("/docs").body.decode())
        document = folder.write("openapi.json", self.service.get("/openapi.json").body.decode())
        script = pathlib.Path(__file__).with_name("docs_page.js")
        done = subprocess.run(["node", script, page, document, "https://limits.example"],
                              capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = done.stdout
        self.assertIn("https://limits.example/api/v1/rate-limit/check?key=alice", shown)
        for method, path, _ in (self.service.description.operations() +
                                self.service.admin_description.operations()):
            self.assertIn(f"{method}\n{path}\n", shown)
        self.assertIn("Answer 200", shown)
        self.assertIn('"message": "Rate limit exceeded"', shown)
        self.assertIn('"managedBy": "this process"', shown)

    def test_examples_are_valid(self):
        self.service.description.check_examples()
        self.service.admin_description.check_examples()

    def test_it_is_openapi_3_1(self):
        document = self.service.description.document
        self.assertTrue(document["openapi"].startswith("3.1"))
        text = json.dumps(document)
        for name in re.findall(r'"\$ref": "([^"]+)"', text):
            self.assertTrue(self.service.description.resolve({"$ref": name}))

    def test_info_and_health(self):
        info = self.service.get("/info").json
        self.assertEqual((info["name"], info["generation"]), ("sluice", 1))
        self.assertGreater(info["ruleSets"], 5)
        self.assertEqual(self.service.get("/actuator/info").json, info)


class Configured(support.ServiceTest):
    def test_all_metrics_have_the_common_labels(self):
        config = self.folder().write("sluice.yaml", """
metrics:
  labels: [application=distributed-rate-limiter, zone=eu]
""")
        for arguments in (("--config", config),
                          ("--metrics-labels", "application=distributed-rate-limiter, zone=eu")):
            samples = self.start(*arguments).metrics()
            self.assertGreater(len(samples), 100)
            for name, labels in samples:
                self.assertLessEqual({("application", "distributed-rate-limiter"), ("zone", "eu")},
                                     labels, name)
        done = support.sluice("serve", "--http", "127.0.0.1:0", "--metrics-labels", "le=1")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"^--metrics-labels: .*\"le=1\": expected name=value")

    def test_headers_of_strangers_are_no_attributes(self):
        rules = self.folder().write("rules.yaml", RULES)
        service = self.start("--rules", rules, "--attribute-headers", "X-Tenant")
        answer = service.get("/api/v1/authorize/leaky", X_Tenant="acme")
        self.assertEqual(answer.json, {"allowed": True, "message": "No rule applied"})

    def test_defaults_can_be_set(self):
        folder = self.folder()
        config = folder.write("sluice.yaml", f"""
defaults:
  TOKEN_BUCKET: {{capacity: 7, refill: 1, period: 1h}}
  fixed_window: limit=3,window={AGES}
""")
        service = self.start("--config", config)
        self.assertEqual(service.get(target(CHECK, key="a")).json["remaining"], 6)
        statuses = [service.get(target(CHECK, key="a", algorithm="FIXED_WINDOW")).status
                    for _ in range(4)]
        self.assertEqual(statuses, [200, 200, 200, 429])
        self.assertEqual(service.get(target(CHECK, key="a", algorithm="GCRA")).json["remaining"],
                         99)

    def test_tls(self):
        folder = self.folder()
        support.make_certificate(folder, "tls")
        service = support.Service("--http-tls-certificate", folder / "tls.pem",
                                  "--http-tls-key", folder / "tls.key", wait=False)
        self.addCleanup(service.remove)
        port = eventually(lambda: service.announced().get("http"), "it listens")
        context = ssl.create_default_context(cafile=folder / "tls.pem")
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context,
                                                         timeout=support.PATIENCE)
        self.addCleanup(connection.close)
        for _ in range(2):
            connection.request("GET", target(CHECK, key="tls"))
            response = connection.getresponse()
            self.assertEqual(response.status, 200)
            response.read()
        with RawConnection(port) as plain:
            plain.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertNotIn(b"HTTP/1.1", plain.read_until_closed())


if __name__ == "__main__":
    unittest.TestCase.maxDiff = None
    support.main()
