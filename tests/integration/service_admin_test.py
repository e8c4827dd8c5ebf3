# SPDX-License-Identifier: Apache-2.0
"""The admin API of the running service: who may use it, and what it does.

Usage: service_admin_test.py PROGRAM
"""

import hashlib
import json

import support
from support import AGES, RawConnection, eventually, eventually_get, sluice, target

TOKEN = "t0ken-that-nobody-guesses"
SETS = "/admin/v1/rule-sets"

RULES = f"""
ruleSets:
  - id: filed
    rules:
      - id: per-ip
        scope: PER_IP
        bands:
          - {{label: burst, algorithm: FIXED_WINDOW, limit: 5, window: {AGES}}}
          - {{label: long, algorithm: TOKEN_BUCKET, capacity: 50, refill: 1, period: {AGES}}}
      - id: per-user
        scope: PER_USER
        onMissingKey: USE_IP
        match: {{paths: "/user/**"}}
        bands: [{{label: u, algorithm: SLIDING_WINDOW, limit: 3, window: {AGES}}}]
        overrides:
          - {{key: vip, bands: [{{label: u, algorithm: SLIDING_WINDOW, limit: 9, window: {AGES}}}]}}
      - id: all
        scope: GLOBAL
        match: {{paths: "/global"}}
        bands: [{{label: g, algorithm: FIXED_WINDOW, limit: 100, window: {AGES}}}]
"""


def rule_set(identifier, limit, rule="r"):
    return {"id": identifier, "rules": [
        {"id": rule, "scope": "PER_IP",
         "bands": [{"label": "b", "algorithm": "FIXED_WINDOW", "limit": limit, "window": AGES}]}]}


class Sizes(support.ServiceTest):
    def test_as_many_overrides_as_a_rule_may_have(self):
        service = self.start()
        document = rule_set("many", 5)
        document["rules"][0]["scope"] = "PER_USER"
        document["rules"][0]["overrides"] = [
            {"key": f"partner-{number:06}", "unlimited": True} for number in range(100_000)]
        answer = service.admin("PUT", SETS + "/many", document)
        self.assertEqual(answer.status, 201, answer)
        answer = service.check("many", userId="partner-099999")
        self.assertEqual(answer.json["rules"][0]["verdict"], "unlimited")

    def test_what_is_too_large_is_told_the_maximum(self):
        service = self.start()
        with RawConnection(service.admin_port) as client:
            client.send(b"PUT /admin/v1/rule-sets/x HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                        b"Content-Length: 8388609\r\n\r\n")
            answer = client.read_answer()
        self.assert_error(answer, 413, "BODY_TOO_LARGE")
        self.assertIn("8388608 bytes, as a rule set may have", answer.json["error"]["message"])


class Authentication(support.ServiceTest):
    def assert_nobody_gets_in(self, service, credentials):
        for method, path in (("GET", SETS), ("GET", "/admin/v1/status"), ("POST", SETS),
                             ("DELETE", SETS + "/x"), ("GET", "/nope"), ("PUT", "/admin/v1/top")):
            headers = {} if credentials is None else {"Authorization": credentials}
            answer = service.admin(method, path, headers=headers)
            self.assert_error(answer, 401, "UNAUTHORIZED")
            self.assertEqual(answer.header("WWW-Authenticate"), "Bearer")
            self.assertNotIn(TOKEN, answer.body.decode())

    def test_a_token_is_asked_for(self):
        folder = self.folder()
        for arguments, environment in (
                (("--admin-token", TOKEN), {}),
                (("--admin-token-file", folder.write("token", TOKEN + "\n")), {}),
                ((), {"SLUICE_ADMIN_TOKEN": TOKEN})):
            with self.subTest(arguments):
                service = self.start(*arguments, env=environment)
                for wrong in (None, "", TOKEN, "Bearer", "Bearer ", "Bearer x", f"Basic {TOKEN}",
                              f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN.upper()}",
                              f"Bearer x {TOKEN}"):
                    self.assert_nobody_gets_in(service, wrong)
                for right in (f"Bearer {TOKEN}", f"bearer  {TOKEN}"):
                    answer = service.admin("GET", SETS, headers={"Authorization": right})
                    self.assertEqual(answer.status, 200)
                # With the token, also from a web page or under another host name.
                answer = service.admin("GET", SETS, headers={
                    "Authorization": f"Bearer {TOKEN}", "Origin": "https://ops.example",
                    "Host": "sluice.internal"})
                self.assertEqual(answer.status, 200)
                self.assertEqual(service.stop(), 0)
                self.assertNotIn(TOKEN, service.log() + service.output())

    def test_without_a_token_pages_in_a_browser_are_refused(self):
        service = self.start()
        self.assertEqual(service.admin("GET", SETS).status, 200)
        for name in ("localhost", f"localhost:{service.admin_port}", "127.0.0.1", "[::1]:8090",
                     "LOCALHOST"):
            self.assertEqual(service.admin("GET", SETS, headers={"Host": name}).status, 200, name)
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"},
                        {"Origin": f"http://127.0.0.1:{service.admin_port}"},
                        {"Host": "evil.example"}, {"Host": f"evil.example:{service.admin_port}"},
                        {"Host": "127.0.0.1.evil.example"}, {"Host": "localhost.evil.example"},
                        {"Host": "[::1].evil.example"}, {"Host": "[::2]"}, {"Host": ""}):
            with self.subTest(headers):
                self.assert_error(service.admin("GET", SETS, headers=headers), 403, "FORBIDDEN")
                self.assert_error(service.admin("POST", "/admin/v1/reload", headers=headers), 403,
                                  "FORBIDDEN")
        self.assertEqual(service.generation(), 1)

    def test_other_machines_need_a_token(self):
        for address in ("0.0.0.0:0", "[::]:0", "192.0.2.1:0"):
            done = sluice("serve", "--http", "127.0.0.1:0", "--admin", address)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr,
                             r"^--admin: admin\.listen: .*not a loopback.*admin\.token.*\n$")
        service = self.start("--admin", "0.0.0.0:0", "--admin-token", TOKEN)
        self.assert_nobody_gets_in(service, None)

    def test_admin_is_not_on_the_public_listener(self):
        service = self.start()
        self.assert_error(service.get(SETS), 404, "NOT_FOUND")
        self.assertEqual(service.admin("GET", "/api/v1/rate-limit/check").status, 404)

    def test_it_can_be_switched_off(self):
        service = support.Process([support.PROGRAM, "serve", "--http", "127.0.0.1:0",
                                   "--admin", ""])
        self.addCleanup(service.remove)
        eventually(lambda: "serving" in service.log(), "it serves")
        self.assertNotIn("admin", service.output())

    def test_token_files(self):
        folder = self.folder()
        for path in (folder / "missing", folder.write("empty", "\n")):
            done = sluice("serve", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0",
                          "--admin-token-file", path)
            self.assertEqual(done.returncode, 2)
            self.assertIn(path, done.stderr)
        both = sluice("config", "--admin-token", TOKEN, "--admin-token-file", "x")
        self.assertEqual(both.returncode, 2)
        self.assertNotIn(TOKEN, both.stdout + both.stderr)


class DescribedAnswers(support.ServiceTest):
    """Every answer that /openapi.json promises for the admin API is given, and has the described
    shape; support.Service checks all of them."""

    KEY = "?key=ip:192.0.2.1"
    DESCRIPTOR = "/admin/v1/domains/edge/descriptor"
    DESCRIPTORS = """
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: closed, rate_limit: {unit: year, requests_per_unit: 0}}
"""

    def setUp(self):
        self.seen = set()

    def serve(self, *arguments):
        folder = self.folder()
        self.rules = folder.write("rules.yaml", RULES)
        domains = folder.write("rls/edge.yaml", self.DESCRIPTORS)
        service = self.start("--rules", self.rules, "--rls-config", domains, *arguments)
        service.admin_description.seen = self.seen
        return service

    def test_all_are_given(self):
        service = self.serve()
        self.give_what_works(service)
        self.give_errors(service)
        self.give_outages(self.serve("--store", "redis://127.0.0.1:1", "--rules-redis", "store"))
        self.refuse_strangers(service)
        self.assertEqual(service.admin_description.promised() - self.seen, set(), "never given")

    def ask(self, service, status, method, path, body=None, **headers):
        answer = service.admin(method, path, body, support.header_names(headers))
        self.assertEqual(answer.status, status, (method, path, answer))
        return answer

    def give_what_works(self, service):
        for path in ("status", "rule-sets", "top", "top?by=busy&n=1", "log-level"):
            self.ask(service, 200, "GET", "/admin/v1/" + path)
        self.ask(service, 200, "PUT", "/admin/v1/log-level?level=info")
        self.ask(service, 200, "POST", "/admin/v1/reload")
        self.ask(service, 200, "POST", "/admin/v1/validate", rule_set("made", 5))
        self.ask(service, 201, "POST", SETS, rule_set("made", 5))
        self.ask(service, 201, "PUT", SETS + "/put", rule_set("put", 5))
        self.ask(service, 200, "PUT", SETS + "/put", rule_set("put", 6))
        tag = self.ask(service, 200, "GET", SETS + "/put").header("ETag")
        self.ask(service, 304, "GET", SETS + "/put", If_None_Match=tag)
        for switch in ("disable", "enable"):
            self.ask(service, 200, "POST", f"{SETS}/put/{switch}")
        service.check("filed", ip="192.0.2.1")
        self.ask(service, 200, "GET", SETS + "/filed/keys" + self.KEY)
        self.ask(service, 200, "GET", "/admin/v1/keys" + self.KEY)
        self.ask(service, 200, "DELETE", SETS + "/filed/keys" + self.KEY)
        self.assertEqual(service.request("POST", "/api/v1/holds", {
            "ruleSet": "filed", "context": {"ip": "192.0.2.1"}, "id": "h", "ttl": "10m"}).status, 201)
        self.ask(service, 200, "GET", SETS + "/filed/keys" + self.KEY)
        self.ask(service, 200, "DELETE", "/admin/v1/keys/holds" + self.KEY + "&hold=h")
        for by in ("busy", "near", "shadow"):
            self.ask(service, 200, "GET", f"/admin/v1/top?by={by}&ruleSet=filed")
        for entry in ("user=ann", "free=x", "closed=x"):
            self.ask(service, 200, "GET", f"{self.DESCRIPTOR}?{entry}")
        self.ask(service, 200, "DELETE", f"{self.DESCRIPTOR}?user=ann")
        self.assertIn("edge.user: unit=YEAR", self.ask(service, 200, "GET", "/rlconfig").body.decode())
        self.ask(service, 200, "DELETE", SETS + "/put")

    def give_errors(self, service):
        for method, path in (("POST", "/admin/v1/validate"), ("POST", SETS), ("PUT", SETS + "/x"),
                             ("PUT", "/admin/v1/log-level?level=loud"),
                             ("GET", "/admin/v1/top?by=name"), ("GET", SETS + "/filed/keys"),
                             ("DELETE", SETS + "/filed/keys"), ("GET", "/admin/v1/keys"),
                             ("DELETE", "/admin/v1/keys/holds" + self.KEY),
                             ("GET", self.DESCRIPTOR), ("DELETE", self.DESCRIPTOR)):
            self.ask(service, 400, method, path, "{")
        for method, path in (("GET", SETS + "/none"), ("DELETE", SETS + "/none"),
                             ("POST", SETS + "/none/enable"), ("POST", SETS + "/none/disable"),
                             ("GET", SETS + "/none/keys" + self.KEY),
                             ("DELETE", SETS + "/none/keys" + self.KEY),
                             ("GET", "/admin/v1/keys?key=nobody:x"),
                             ("DELETE", "/admin/v1/keys/holds" + self.KEY + "&hold=none"),
                             ("GET", "/admin/v1/top?ruleSet=none"),
                             ("GET", f"{self.DESCRIPTOR}?other=x"),
                             ("DELETE", f"{self.DESCRIPTOR}?other=x")):
            self.ask(service, 404, method, path)
        self.ask(service, 409, "POST", SETS, rule_set("filed", 1))
        self.ask(service, 409, "PUT", SETS + "/filed", rule_set("filed", 1))
        self.ask(service, 409, "DELETE", SETS + "/filed")
        for switch in ("disable", "enable"):
            self.ask(service, 409, "POST", f"{SETS}/filed/{switch}")
            self.ask(service, 412, "POST", f"{SETS}/made/{switch}", If_Match='"other"')
        self.ask(service, 412, "PUT", SETS + "/made", rule_set("made", 1), If_Match='"other"')
        self.ask(service, 412, "DELETE", SETS + "/made", If_Match='"other"')
        self.ask(service, 405, "PATCH", SETS)
        self.ask(service, 404, "GET", "/admin/v1/nothing")
        # A file that is broken at runtime.
        broken = self.serve()
        with open(self.rules, "w", encoding="utf-8") as file:
            file.write("ruleSets: 7\n")
        problems = self.ask(broken, 400, "POST", "/admin/v1/reload").json["error"]["problems"]
        self.assertEqual(problems[0]["line"], 1)

    def give_outages(self, service):
        self.ask(service, 503, "POST", SETS, rule_set("made", 5))
        self.ask(service, 503, "PUT", SETS + "/made", rule_set("made", 5))
        self.ask(service, 503, "DELETE", SETS + "/made")
        for switch in ("disable", "enable"):
            self.ask(service, 503, "POST", f"{SETS}/made/{switch}")
        self.ask(service, 503, "DELETE", SETS + "/filed/keys" + self.KEY)
        self.ask(service, 503, "DELETE", "/admin/v1/keys/holds" + self.KEY + "&hold=h")
        for method in ("GET", "DELETE"):
            self.ask(service, 503, method, f"{self.DESCRIPTOR}?user=ann")
        # What cannot be looked up is reported in its place.
        bands = self.ask(service, 200, "GET", SETS + "/filed/keys" + self.KEY).json["bands"]
        self.assertEqual({band["error"] for band in bands}, {"UNAVAILABLE"})
        self.ask(service, 200, "GET", "/admin/v1/status")

    def refuse_strangers(self, unguarded):
        guarded = self.serve("--admin-token", TOKEN)
        for method, path, _ in guarded.admin_description.operations():
            path = path.replace("{id}", "filed").replace("{domain}", "edge")
            self.ask(guarded, 401, method, path)
            self.ask(unguarded, 403, method, path, Origin="https://evil.example")


class Admin(support.SharedServiceTest):
    RULES = RULES

    def admin(self, method, path, body=None, **headers):
        return self.service.admin(method, path, body, support.header_names(headers))

    def test_rule_sets_come_and_go(self):
        generation = self.service.generation()
        created = self.admin("POST", SETS, rule_set("made", 2))
        self.assertEqual((created.status, created.json), (201, {"created": "made"}))
        self.assertEqual(self.service.generation(), generation + 1)
        statuses = [self.service.check("made", ip="1.1.1.1").status for _ in range(3)]
        self.assertEqual(statuses, [200, 200, 429])

        listed = self.admin("GET", SETS).json
        self.assertEqual(listed["managedBy"], "this process")
        by_id = {entry["id"]: entry for entry in listed["ruleSets"]}
        self.assertEqual(by_id.keys(), {"filed", "made"})
        self.assertEqual((by_id["made"]["managed"], by_id["filed"]["managed"]), (True, False))
        self.assertRegex(by_id["filed"]["file"], r"rules\.yaml$")

        # A raised limit takes effect at once, and what was used stays used.
        replaced = self.admin("PUT", SETS + "/made", rule_set("made", 3))
        self.assertEqual((replaced.status, replaced.json), (200, {"replaced": "made"}))
        statuses = [self.service.check("made", ip="1.1.1.1").status for _ in range(2)]
        self.assertEqual(statuses, [200, 429])

        read = self.admin("GET", SETS + "/made")
        self.assertEqual(read.json["rules"][0]["bands"][0]["limit"], 3)
        self.assertEqual(read.header("ETag").strip('"'),
                         self.admin("GET", SETS).json["ruleSets"][1]["hash"])
        # What is read can be written back.
        again = self.admin("PUT", SETS + "/made", read.body.decode())
        self.assertEqual(again.status, 200)
        self.assertEqual(self.admin("GET", SETS + "/made").body, read.body)

        deleted = self.admin("DELETE", SETS + "/made")
        self.assertEqual((deleted.status, deleted.json), (200, {"deleted": "made"}))
        self.assertEqual(self.service.check("made", ip="1.1.1.1").status, 404)
        self.assert_error(self.admin("GET", SETS + "/made"), 404, "NOT_FOUND")
        self.assert_error(self.admin("DELETE", SETS + "/made"), 404, "NOT_FOUND")

    def test_put_creates(self):
        self.assertEqual(self.admin("PUT", SETS + "/put", rule_set("put", 1)).status, 201)
        self.assertEqual(self.service.check("put", ip="1.1.1.1").status, 200)
        self.admin("DELETE", SETS + "/put")

    def test_yaml_is_taken(self):
        body = "id: why\nrules:\n  - id: r\n    scope: GLOBAL\n    bands: ['limit=1,window=1h']\n"
        self.assertEqual(self.admin("POST", SETS, body).status, 201)
        self.assertEqual(self.service.check("why").json["limit"], 1)
        self.admin("DELETE", SETS + "/why")

    def test_enable_and_disable(self):
        self.admin("POST", SETS, rule_set("switch", 1))
        self.assertEqual([self.service.check("switch", ip="1.1.1.2").status for _ in range(2)],
                         [200, 429])
        self.assertEqual(self.admin("POST", SETS + "/switch/disable").json, {"disabled": "switch"})
        answer = self.service.check("switch", ip="1.1.1.2")
        self.assertEqual((answer.status, answer.json["ruleApplied"]), (200, False))
        self.assertEqual(self.admin("POST", SETS + "/switch/enable").json, {"enabled": "switch"})
        self.assertEqual(self.service.check("switch", ip="1.1.1.2").status, 429)
        self.assert_error(self.admin("POST", SETS + "/nope/enable"), 404, "NOT_FOUND")
        self.admin("DELETE", SETS + "/switch")

    def test_what_a_file_defines_is_changed_there(self):
        generation = self.service.generation()
        for method, path, body in (("POST", SETS, rule_set("filed", 1)),
                                   ("PUT", SETS + "/filed", rule_set("filed", 1)),
                                   ("DELETE", SETS + "/filed", None),
                                   ("POST", SETS + "/filed/disable", None)):
            with self.subTest(f"{method} {path}"):
                self.assert_error(self.admin(method, path, body), 409, "CONFLICT")
        self.assertEqual(self.service.generation(), generation)

    def test_creating_twice_is_a_conflict(self):
        self.assertEqual(self.admin("POST", SETS, rule_set("twice", 1)).status, 201)
        self.assert_error(self.admin("POST", SETS, rule_set("twice", 2)), 409, "CONFLICT")
        kept = self.admin("GET", SETS + "/twice").json
        self.assertEqual(kept["rules"][0]["bands"][0]["limit"], 1)
        self.admin("DELETE", SETS + "/twice")

    def test_invalid_rule_sets_change_nothing(self):
        generation = self.service.generation()
        bad = {"id": "bad", "rules": [{"id": "r", "scope": "PER_PLANET", "bands": ["limit=x"]},
                                      {"id": "r", "scope": "GLOBAL", "colour": "red"}]}
        for method, path in (("POST", SETS), ("PUT", SETS + "/bad"),
                             ("POST", "/admin/v1/validate")):
            answer = self.admin(method, path, json.dumps(bad, indent=1))
            self.assert_error(answer, 400, "INVALID_INPUT")
            problems = answer.json["error"]["problems"]
            self.assertGreaterEqual(len(problems), 3)
            for problem in problems:
                self.assertGreater(problem["line"], 0)
                self.assertGreater(problem["column"], 0)
                self.assertNotEqual(problem["message"], "")
        for body in ("", "[", "7", "\x00", "{}", "a: &a [*a]", json.dumps(rule_set("a b", 1))):
            self.assert_error(self.admin("POST", SETS, body), 400, "INVALID_INPUT")
        self.assert_error(self.admin("PUT", SETS + "/other", rule_set("another", 1)), 400,
                          "INVALID_INPUT")
        self.assertEqual(self.service.generation(), generation)

    def test_validate_changes_nothing(self):
        generation = self.service.generation()
        answer = self.admin("POST", "/admin/v1/validate", {"id": "odd", "rules": [
            {"id": "none", "scope": "GLOBAL"}]})
        self.assertEqual(answer.status, 200)
        self.assertEqual([warning["message"].split(";")[0] for warning in answer.json["warnings"]],
                         ['rule "none" has no bands and never applies'])
        answer = self.admin("POST", "/admin/v1/validate", rule_set("fine", 1))
        self.assertEqual((answer.status, answer.json), (200, {"valid": True, "id": "fine",
                                                              "rules": 1}))
        self.assertEqual(self.service.generation(), generation)

    def inspect(self, key, **parameters):
        answer = self.admin("GET", target(SETS + "/filed/keys", key=key, **parameters))
        self.assertEqual(answer.status, 200)
        return {f"{band['rule']}/{band['band']}": (band["remaining"], band["limit"])
                for band in answer.json["bands"]}

    def test_a_key_can_be_inspected_and_reset(self):
        for _ in range(2):
            self.service.check("filed", ip="2.2.2.2", path="/user/x")
        whole = {"per-ip/burst": (5, 5), "per-ip/long": (50, 50), "per-user/u": (3, 3)}
        used = {"per-ip/burst": (3, 5), "per-ip/long": (48, 50), "per-user/u": (1, 3)}
        self.assertEqual(self.inspect("ip:2.2.2.2"), used)
        self.assertEqual(self.inspect("ip:2.2.2.2"), used)  # Peeking takes nothing.
        self.assertEqual(self.inspect("ip:2.2.2.3"), whole)
        self.assertEqual(self.inspect("ip:2.2.2.2", rule="per-user"), {"per-user/u": (1, 3)})

        one = self.admin("DELETE", target(SETS + "/filed/keys", key="ip:2.2.2.2", rule="per-user"))
        self.assertEqual((one.status, one.json), (200, {"key": "ip:2.2.2.2", "bands": 1,
                                                        "reset": 1}))
        self.assertEqual(self.inspect("ip:2.2.2.2"), used | {"per-user/u": (3, 3)})
        rest = self.admin("DELETE", target(SETS + "/filed/keys", key="ip:2.2.2.2"))
        self.assertEqual(rest.json["reset"], 2)
        self.assertEqual(self.inspect("ip:2.2.2.2"), whole)

    def test_keys_of_all_scopes(self):
        self.service.check("filed", userId="vip", path="/user/x")
        self.service.check("filed", userId="u:1", path="/user/x")
        self.service.check("filed", path="/global")
        self.assertEqual(self.inspect("user:vip"), {"per-user/u": (8, 9)})
        self.assertEqual(self.inspect("user:u:1"), {"per-user/u": (2, 3)})
        self.assertEqual(self.inspect("global"), {"all/g": (99, 100)})

    def test_bad_questions_about_keys(self):
        for method in ("GET", "DELETE"):
            self.assert_error(self.admin(method, SETS + "/nope/keys?key=ip:1"), 404, "NOT_FOUND")
            for query, code in (("", "INVALID_KEY"), ("?key=", "INVALID_KEY"),
                                ("?key=%", "INVALID_QUERY"), ("?key=a&key=b", "INVALID_QUERY")):
                self.assert_error(self.admin(method, SETS + "/filed/keys" + query), 400, code)
            # A key that nothing counts is a mistake, not a full budget.
            for query in ("key=nonsense", "key=apikey:none", "key=192.0.2.1",
                          "key=ip:192.0.2.1&rule=typo", "key=ip:192.0.2.1&rule=all"):
                answer = self.admin(method, f"{SETS}/filed/keys?{query}")
                self.assert_error(answer, 404, "NOT_FOUND")
                self.assertIn("ip:192.0.2.1, user:alice", answer.json["error"]["message"])
        # Whatever is asked, the answer is JSON.
        for key in ("%00", "%ff", "x" * 3000, "%22%5c"):
            answer = self.admin("GET", f"{SETS}/filed/keys?key=ip:{key}")
            self.assertIn(answer.status, (200, 400), key)
            json.dumps(answer.json)

    def test_top_keys(self):
        self.admin("POST", SETS, rule_set("hot", 1))
        for _ in range(30):
            self.service.check("hot", ip="9.9.9.9")
        for kind, least in (("busy", 30), ("denied", 29)):
            answer = self.admin("GET", f"/admin/v1/top?by={kind}&n=1")
            self.assertEqual(answer.json["by"], kind)
            (entry,) = answer.json["keys"]
            self.assertEqual(entry["key"], "ip:9.9.9.9")
            self.assertGreaterEqual(entry["countAtMost"], least)
            self.assertLessEqual(entry["countAtLeast"], least)
        self.assertEqual(self.admin("GET", "/admin/v1/top").json["by"], "denied")
        for query in ("?by=x", "?n=0", "?n=x", "?n=1000000", "?by=%"):
            self.assert_error(self.admin("GET", "/admin/v1/top" + query), 400, "INVALID_QUERY")
        self.assert_error(self.admin("GET", "/admin/v1/top?ruleSet=nope"), 404, "NOT_FOUND")
        self.admin("DELETE", SETS + "/hot")

    def top(self, **parameters):
        answer = self.admin("GET", target("/admin/v1/top", n=100, **parameters))
        self.assertEqual(answer.status, 200)
        return answer.json["keys"]

    def test_top_tells_what_denied_and_whom(self):
        window = {"algorithm": "FIXED_WINDOW", "window": support.AGES}
        self.admin("POST", SETS, {"id": "why", "rules": [
            {"id": "all", "scope": "GLOBAL", "bands": [{"label": "g", "limit": 1000, **window}]},
            {"id": "user", "scope": "PER_USER",
             "bands": [{"label": "wide", "limit": 500, **window},
                       {"label": "narrow", "limit": 5, **window}],
             "overrides": [{"key": "mallory", "blocked": True}]},
            {"id": "trial", "scope": "PER_IP", "shadow": True,
             "bands": [{"label": "t", "limit": 1, **window}]}]})
        for _ in range(8):
            self.service.check("why", ip="9.8.7.6", userId="why-ann")
        for _ in range(4):
            self.service.check("why", ip="9.8.7.6", userId="why-near")
        self.service.check("why", ip="9.8.7.6", userId="why-far")
        self.service.check("why", userId="mallory")

        def told(entries):
            return [(entry["rule"], entry.get("band"), entry["key"], entry["countAtMost"])
                    for entry in entries]

        denied = self.top(ruleSet="why")
        self.assertEqual(told(denied), [("user", "narrow", "user:why-ann", 3),
                                        ("user", None, "user:mallory", 1)])
        self.assertEqual([entry.get("blocked") for entry in denied], [None, True])
        self.assertEqual({entry["ruleSet"] for entry in denied}, {"why"})
        self.assertEqual(told(self.top(ruleSet="why", by="shadow")),
                         [("trial", "t", "ip:9.8.7.6", 12)])
        self.assertEqual(told(self.top(ruleSet="why", by="busy", rule="all")),
                         [("all", None, "global", 13)])
        self.assertEqual(told(self.top(ruleSet="why", rule="all")), [])
        busy = told(self.top(ruleSet="why", by="busy", rule="user"))
        self.assertIn(("user", None, "user:why-ann", 8), busy)

        near = self.top(ruleSet="why", by="near")
        self.assertEqual([(entry["band"], entry["key"], entry["limit"], entry["remaining"],
                           entry["allowed"]) for entry in near],
                         [("narrow", "user:why-ann", 5, 0, False),
                          ("narrow", "user:why-near", 5, 1, True)])
        # A full budget is not near its limit.
        self.admin("DELETE", target(SETS + "/why/keys", key="user:why-ann"))
        self.assertEqual([entry["key"] for entry in self.top(ruleSet="why", by="near")],
                         ["user:why-near"])
        self.admin("DELETE", SETS + "/why")

    def test_a_look_says_what_a_request_would_get(self):
        for _ in range(3):
            self.service.check("filed", userId="looked-at", path="/user/x")
        denied = self.service.check("filed", userId="looked-at", path="/user/x")
        self.assertEqual(denied.status, 429)
        answer = self.admin("GET", target(SETS + "/filed/keys", key="user:looked-at"))
        self.assertIs(answer.json["charged"], False)
        (band,) = answer.json["bands"]
        self.assertEqual((band["allowed"], band["remaining"], band["untouched"]), (False, 0, False))
        self.assertGreater(band["retryAfterMicros"], 0)
        self.assertLessEqual(band["retryAfterMicros"],
                             denied.json["retryAfterMicros"])
        other = self.admin("GET", target(SETS + "/filed/keys", key="user:never-seen"))
        (band,) = other.json["bands"]
        self.assertEqual((band["allowed"], band["retryAfterMicros"], band["untouched"]),
                         (True, 0, True))

    def test_a_key_is_found_everywhere(self):
        self.service.check("filed", ip="9.7.7.7", path="/user/x")
        self.service.get(target("/api/v1/rate-limit/check", key="everywhere",
                                algorithm="SLIDING_WINDOW", permits=3))

        def found(key):
            answer = self.admin("GET", target("/admin/v1/keys", key=key))
            self.assertEqual(answer.status, 200, answer)
            self.assertEqual((answer.json["charged"], answer.json["more"]), (False, False))
            return answer.json["limits"]

        places = {(place.get("ruleSet"), place.get("rule"), place["limit"] - place["remaining"])
                  for place in found("ip:9.7.7.7")}
        self.assertIn(("filed", "per-ip", 1), places)
        (default,) = found("everywhere")
        self.assertEqual((default["name"], default["limit"] - default["remaining"]),
                         ("api/sliding_window", 3))
        self.assert_error(self.admin("GET", "/admin/v1/keys?key=never-asked-for"), 404, "NOT_FOUND")
        self.assert_error(self.admin("GET", "/admin/v1/keys"), 400, "INVALID_KEY")

    def test_a_covered_key_is_no_full_budget(self):
        keyed = rule_set("covered", 1)
        keyed["rules"][0]["scope"] = "PER_API_KEY"
        self.admin("POST", SETS, keyed)
        for _ in range(3):
            self.service.check("covered", apiKey="covered-secret")
        digest = hashlib.sha256(b"covered-secret").hexdigest()
        for path in (SETS + "/covered/keys", "/admin/v1/keys"):
            for key in ("apikey:***", f"apikey:***{digest[:6]}", f"apikey#{digest[:12]}",
                        f"apikey:{digest[:12]}…"):
                self.assert_error(self.admin("GET", target(path, key=key)), 400, "INVALID_KEY")
        # The output of /top can be pasted, escaped or not.
        (entry,) = self.top(ruleSet="covered")
        self.assertEqual(entry["key"], "apikey#" + digest)
        for query in (target("", key=entry["ref"]), "?key=" + entry["ref"]):
            answer = self.admin("GET", SETS + "/covered/keys" + query)
            self.assertEqual(answer.json["bands"][0]["remaining"], 0)
            answer = self.admin("GET", "/admin/v1/keys" + query)
            self.assertEqual([(place["ruleSet"], place["remaining"])
                              for place in answer.json["limits"]], [("covered", 0)])
        self.admin("DELETE", SETS + "/covered")

    def test_top_shows_no_api_key(self):
        keyed = rule_set("keyed", 9)
        keyed["rules"][0]["scope"] = "PER_API_KEY"
        self.admin("POST", SETS, keyed)
        secrets = ("top-secret-1", "top-secret-2")
        for secret in secrets:
            self.service.check("keyed", apiKey=secret)
        answer = self.admin("GET", "/admin/v1/top?by=busy&n=100")
        self.assertNotIn(b"top-secret", answer.body)
        shown = {entry["key"] for entry in answer.json["keys"]}
        for secret in secrets:
            digest = hashlib.sha256(secret.encode()).hexdigest()
            self.assertIn("apikey#" + digest, shown)
        self.admin("DELETE", SETS + "/keyed")

    def test_if_match(self):
        self.admin("POST", SETS, rule_set("tagged", 1))
        read = self.admin("GET", SETS + "/tagged").header("ETag")
        change = self.service.admin("PUT", SETS + "/tagged", rule_set("tagged", 2),
                                    {"If-Match": read})
        self.assertEqual(change.status, 200)
        weak = "W/" + self.admin("GET", SETS + "/tagged").header("ETag")
        for tags in (read, f'"x", {read}', weak):
            for method, body in (("PUT", rule_set("tagged", 3)), ("DELETE", None)):
                answer = self.service.admin(method, SETS + "/tagged", body, {"If-Match": tags})
                self.assert_error(answer, 412, "PRECONDITION_FAILED")
        kept = self.admin("GET", SETS + "/tagged")
        self.assertEqual(kept.json["rules"][0]["bands"][0]["limit"], 2)
        answer = self.service.admin("PUT", SETS + "/none", rule_set("none", 1), {"If-Match": "*"})
        self.assert_error(answer, 412, "PRECONDITION_FAILED")
        done = self.service.admin("DELETE", SETS + "/tagged", None,
                                  {"If-Match": f'"x", {kept.header("ETag")}'})
        self.assertEqual(done.status, 200)

    def test_if_none_match(self):
        def put(limit, tags, name="fresh"):
            return self.service.admin("PUT", SETS + "/" + name, rule_set(name, limit),
                                      {"If-None-Match": tags})

        self.assertIn(put(1, "*").status, (200, 201))
        for tags in ("*", ' "x" , * '):
            self.assert_error(put(2, tags), 412, "PRECONDITION_FAILED")
        kept = self.admin("GET", SETS + "/fresh")
        self.assertEqual(kept.json["rules"][0]["bands"][0]["limit"], 1)
        tag = kept.header("ETag")
        for tags in (tag, f'"x", {tag}', "W/" + tag):
            self.assert_error(put(2, tags), 412, "PRECONDITION_FAILED")
            unchanged = self.service.admin("GET", SETS + "/fresh", None, {"If-None-Match": tags})
            self.assertEqual((unchanged.status, unchanged.body), (304, b""))
            self.assertEqual(unchanged.header("ETag"), tag)
        other = self.service.admin("GET", SETS + "/fresh", None, {"If-None-Match": '"x"'})
        self.assertEqual((other.status, other.json), (200, kept.json))
        self.assertEqual(put(2, '"x"').status, 200)
        # Several lines are one list, and a tag that does not exist fails no such condition.
        for field in ("If-Match", "If-None-Match"):
            with support.RawConnection(self.service.admin_port) as connection:
                connection.send(f'DELETE {SETS}/fresh HTTP/1.1\r\nHost: localhost\r\n'
                                f'{field}: "x"\r\n{field}: '
                                f'{"*" if field == "If-None-Match" else tag}\r\n\r\n'.encode())
                self.assertEqual(connection.read_answer().status, 412)
        self.assertEqual(self.admin("DELETE", SETS + "/fresh").status, 200)
        self.assert_error(self.service.admin("GET", SETS + "/fresh", None,
                                             {"If-None-Match": "*"}), 404, "NOT_FOUND")

    def test_a_request_under_many_bands_counts_once_for_its_key(self):
        for _ in range(20):
            self.service.check("filed", ip="9.9.9.8")
        top = self.admin("GET", "/admin/v1/top?by=busy&n=100").json["keys"]
        entry = next(entry for entry in top if entry["key"] == "ip:9.9.9.8")
        self.assertEqual(entry["countAtMost"], 20)

    def test_reload(self):
        generation = self.service.generation()
        answer = self.admin("POST", "/admin/v1/reload")
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.json["generation"], generation + 1)

    def test_log_level(self):
        self.assertEqual(self.admin("GET", "/admin/v1/log-level").json, {"level": "info"})
        self.service.get("/api/v1/rate-limit/check?key=quiet-one")
        self.assertEqual(self.admin("PUT", "/admin/v1/log-level?level=debug").json,
                         {"level": "debug"})
        self.service.get("/api/v1/rate-limit/check?key=loud-one")
        eventually(lambda: self.service.log_lines("loud-one"), "a debug line")
        self.assertEqual(self.service.log_lines("quiet-one"), [])
        for query in ("", "?level=", "?level=loud", "?level=%"):
            self.assert_error(self.admin("PUT", "/admin/v1/log-level" + query), 400,
                              "INVALID_LEVEL")
        self.admin("PUT", "/admin/v1/log-level?level=info")

    def test_status(self):
        status = self.admin("GET", "/admin/v1/status").json
        self.assertEqual(status["store"]["kind"], "memory")
        self.assertIs(status["draining"], False)
        self.assertIsNone(status["guard"])

    def test_wrong_methods_and_paths(self):
        answer = self.admin("PATCH", SETS + "/filed")
        self.assertEqual(answer.status, 405)
        self.assertEqual(answer.header("Allow"), "GET, HEAD, PUT, DELETE")
        self.assert_error(self.admin("GET", "/admin/v1/nope"), 404, "NOT_FOUND")
        self.assert_error(self.admin("GET", "/admin/v2/rule-sets"), 404, "NOT_FOUND")
        self.assertEqual(self.admin("HEAD", SETS).body, b"")

    def test_many_admins_at_once(self):
        def work(number):
            name = f"many-{number}"
            results = [self.admin("POST", SETS, rule_set(name, 1)).status]
            results.append(self.service.check(name, ip="3.3.3.3").status)
            results.append(self.admin("DELETE", SETS + f"/{name}").status)
            return results

        self.assertEqual(support.in_threads(8, work), [[201, 200, 200]] * 8)


class Secrets(support.ServiceTest):
    SECRET = "hunter2-s3cret"

    def assert_hidden(self, *texts):
        for text in texts:
            self.assertNotIn(self.SECRET, text)

    def test_the_password_of_redis_is_never_shown(self):
        redis = self.redis(password=self.SECRET)
        service = self.start("--store", redis.uri + "?timeout=5s", "--log-level", "debug",
                             "--admin-token", self.SECRET + "-admin", "--deadline", "5s")
        eventually(lambda: service.get("/health").json["status"] == "UP", "Redis is reachable")
        self.assertEqual(service.get("/api/v1/rate-limit/check?key=a").status, 200)
        shown = [service.get(path).body.decode() for path in
                 ("/health", "/info", "/metrics", "/openapi.json")]
        status = service.admin("GET", "/admin/v1/status", headers={
            "Authorization": f"Bearer {self.SECRET}-admin"})
        self.assertEqual(status.json["store"]["kind"], "standalone")
        redis.kill()
        eventually(lambda: service.get("/health").json["status"] == "DEGRADED", "Redis is gone")
        shown += [service.get(path).body.decode() for path in
                  ("/health", "/api/v1/rate-limit/check?key=a")]
        with open(f"/proc/{service.pid}/environ", "rb") as environment:
            self.assert_hidden(environment.read().decode())
        service.stop()
        self.assert_hidden(status.body.decode(), service.log(), service.output(), *shown)

    def test_a_wrong_password_is_not_shown_either(self):
        redis = self.redis(password="right")
        service = self.start("--store", redis.uri.replace("right", self.SECRET))
        health = eventually_get(lambda: service.get("/health").json,
                                lambda health: health["store"].get("problem"),
                                "the health says what is wrong")
        self.assertEqual(health["status"], "DEGRADED")
        service.get("/api/v1/rate-limit/check?key=a")
        service.stop()
        self.assert_hidden(json.dumps(health), service.log())

    def test_config_redacts(self):
        folder = self.folder()
        config = folder.write("c.yaml", f"""
store: redis://user:{self.SECRET}@127.0.0.1:6379/2
admin: {{token: {self.SECRET}}}
resp: {{password: "{self.SECRET}"}}
""")
        done = sluice("config", "--config", config)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_hidden(done.stdout, done.stderr)
        self.assertIn("***", done.stdout)
        self.assertIn("127.0.0.1:6379", done.stdout)

    def test_errors_do_not_quote_secrets(self):
        folder = self.folder()
        for arguments in (("--store", f"redis://:{self.SECRET}@host:99999"),
                          ("--store", f"nonsense://:{self.SECRET}@host"),
                          ("--store", f"redis://:{self.SECRET}@host?nonsense=1"),
                          ("--store", f"{self.SECRET}"),
                          ("--rules-redis", f"redis://:{self.SECRET}@:x"),
                          ("--config", folder.write("a.yaml",
                                                    f"admin:\n  token: [[{self.SECRET}]]\n")),
                          ("--config", folder.write("b.yaml",
                                                    f"admin: {{token: {{a: {self.SECRET}}}}}\n"))):
            for command in ("serve", "config"):
                done = sluice(command, *arguments)
                self.assertEqual(done.returncode, 2, arguments)
                self.assertNotEqual(done.stderr, "")
                self.assert_hidden(done.stdout, done.stderr)


EDGE = """
domain: edge
descriptors:
  - {key: api_key, rate_limit: {unit: year, requests_per_unit: 5}}
"""


class Audit(support.ServiceTest):
    def changes(self, service):
        lines = [json.loads(line) for line in service.log().splitlines()]
        return [line for line in lines if line["message"] == "changed through the admin API"]

    def test_every_change_says_who_what_before_and_after(self):
        folder = self.folder()
        tokens = folder.write("tokens", f"ops {TOKEN}\ndeploy {TOKEN}-2\n")
        service = self.start("--rules", folder.write("rules.yaml", RULES), "--log-format", "json",
                             "--rls-config", folder.write("rls/edge.yaml", EDGE),
                             "--admin-token-file", tokens)

        def ask(method, path, body=None, token=TOKEN, request=None):
            headers = {"Authorization": f"Bearer {token}"}
            if request:
                headers["X-Request-Id"] = request
            return service.admin(method, path, body, headers)

        secret = rule_set("new", 3) | {"description": "s3cret"}
        secret["rules"][0]["scope"] = "PER_API_KEY"
        secret["rules"][0]["overrides"] = [{"key": "s3cret-1", "blocked": True}]
        raised = json.loads(json.dumps(secret))
        raised["rules"][0]["bands"][0]["limit"] = 77
        raised["rules"].append(rule_set("x", 5, rule="second")["rules"][0])
        self.assertEqual(ask("POST", SETS, secret, request="r-1").status, 201)
        self.assertEqual(ask("PUT", f"{SETS}/new", raised, token=f"{TOKEN}-2").status, 200)
        self.assertEqual(ask("POST", f"{SETS}/new/disable").status, 200)
        self.assertEqual(ask("DELETE", f"{SETS}/new").status, 200)
        service.check("filed", ip="192.0.2.1")
        self.assertEqual(
            ask("DELETE", target(f"{SETS}/filed/keys", key="ip:192.0.2.1")).status, 200)
        self.assertEqual(
            ask("DELETE", "/admin/v1/domains/edge/descriptor?api_key=s3cret-2").status, 200)
        self.assertEqual(service.request("POST", "/api/v1/holds", {
            "ruleSet": "filed", "context": {"ip": "192.0.2.1"}, "id": "h 1", "ttl": "10m"}).status,
                         201)
        self.assertEqual(
            ask("DELETE", target("/admin/v1/keys/holds", key="ip:192.0.2.1", hold="h 1")).status,
            200)
        self.assertEqual(ask("POST", "/admin/v1/reload").status, 200)
        self.assertEqual(ask("PUT", "/admin/v1/log-level?level=error").status, 200)
        self.assertEqual(ask("PUT", "/admin/v1/log-level?level=info").status, 200)

        digest = hashlib.sha256(b"s3cret-2").hexdigest()
        changes = eventually_get(lambda: self.changes(service), lambda found: len(found) >= 10,
                                 "every change is logged")
        for change in changes:
            self.assertEqual((change["level"], change["address"]), ("info", "127.0.0.1"))
            self.assertTrue(change["request_id"])
        self.assertEqual(changes[0]["request_id"], "r-1")
        self.assertEqual([(change["caller"], change["action"], change["target"])
                          for change in changes],
                         [("ops", "created", "rule set new"),
                          ("deploy", "replaced", "rule set new"),
                          ("ops", "disabled", "rule set new"),
                          ("ops", "deleted", "rule set new"),
                          ("ops", "reset", "key ip:192.0.2.1 of rule set filed"),
                          ("ops", "reset", f"key edge|api_key#{digest} of domain edge"),
                          ("ops", "released", "hold h 1 of key ip:192.0.2.1"),
                          ("ops", "reloaded", "files"),
                          ("ops", "set", "log level"),
                          ("ops", "set", "log level")])
        states = [(change["before"], change["after"]) for change in changes]
        band = r"\(b: algorithm=fixed_window,limit={},window=10000d\)"
        for (before, after), (expected_before, expected_after) in zip(states, (
                ("none", rf"hash=\w{{16}} rules=1 r{band.format(3)}"),
                (rf"hash=\w{{16}} rules=1 r{band.format(3)}",
                 rf"hash=\w{{16}} rules=2 r{band.format(77)} second{band.format(5)}"),
                (r"hash=\w{16} rules=2", r"hash=\w{16} disabled rules=2"),
                (r"hash=\w{16} disabled rules=2 r\(.*\) second\(.*\)", "none"),
                ("2 of 3 budgets used", "all full"),
                ("0 of 1 budgets used", "all full"),
                ("on 2 budgets", "on none"),
                (r"generation=\d+", r"generation=\d+ problems=0"),
                ("info", "error"), ("error", "info"))):
            self.assertRegex(before, f"^{expected_before}$")
            self.assertRegex(after, f"^{expected_after}$")
        self.assertEqual(states[1][0], states[0][1])
        self.assertNotIn("s3cret", service.log())
        self.assertNotIn(TOKEN, service.log())

    def test_what_changes_nothing_is_not_logged(self):
        service = self.start("--log-format", "json")
        self.assertEqual(service.admin("POST", SETS, {"id": "a b"}).status, 400)
        self.assertEqual(service.admin("DELETE", f"{SETS}/none").status, 404)
        self.assertEqual(service.admin("POST", "/admin/v1/validate", rule_set("x", 1)).status, 200)
        self.assertEqual(service.admin("PUT", "/admin/v1/log-level?level=loud").status, 400)
        self.assertEqual(service.admin("PUT", f"{SETS}/x", rule_set("x", 1)).status, 201)
        changes = eventually(lambda: self.changes(service), "the change is logged")
        self.assertEqual([(change["caller"], change["action"]) for change in changes],
                         [("local", "created")])


class OtherDoors(support.ServiceTest):
    """What descriptors and named limits count: as requests, in /top and in /keys."""

    DESCRIPTORS = """
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: api_key, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: closed, rate_limit: {unit: year, requests_per_unit: 0}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
"""
    LIMITS = f"limits:\n  login: algorithm=fixed_window,limit=2,window={AGES}\n"

    def limit(self, *entries):
        descriptors = [{"entries": [{"key": key, "value": value}]} for key, value in entries]
        return self.service.request("POST", "/json", {"domain": "edge",
                                                      "descriptors": descriptors}).status

    def resp(self, *words):
        command = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        with support.RawConnection(self.service.resp_port) as connection:
            connection.send(command.encode() + b"QUIT\r\n")
            return connection.read_until_closed()

    def look(self, key):
        answer = self.service.admin("GET", target("/admin/v1/keys", key=key))
        self.assertEqual(answer.status, 200, answer)
        return [(place.get("domain"), place["name"], place["remaining"], place["allowed"])
                for place in answer.json["limits"]]

    def top(self, by):
        answer = self.service.admin("GET", f"/admin/v1/top?by={by}").json["keys"]
        return {(entry["name"], entry["key"], entry["countAtMost"]) for entry in answer}

    def test_they_are_counted_and_found(self):
        folder = self.folder()
        self.service = self.start("--config", folder.write("sluice.yaml", self.LIMITS),
                                  "--rls-config", folder.write("rls/edge.yaml", self.DESCRIPTORS),
                                  "--resp", "127.0.0.1:0")
        secret = "descriptor-secret"
        digest = hashlib.sha256(secret.encode()).hexdigest()
        two = (("user", "ann"), ("trial", "x"))
        self.assertEqual([self.limit(*two) for _ in range(4)], [200, 200, 429, 429])
        self.assertEqual([self.limit(("api_key", secret)) for _ in range(2)], [200, 429])
        self.assertEqual(self.limit(("closed", "x")), 429)
        self.assertEqual(self.limit(("unknown", "x")), 200)
        for _ in range(3):
            self.resp("SLUICE.CHECK", "LIMIT", "login", "bob")
        self.resp("CL.THROTTLE", "never", "1", "1", "60", "100")

        counted = {tuple(sorted(dict(labels).values())): value for (name, labels), value
                   in self.service.metrics().items()
                   if name == "rate_limiter_requests_total" and value}
        self.assertEqual(counted, {("FIXED_WINDOW", "true"): 5, ("FIXED_WINDOW", "false"): 4,
                                   ("NONE", "true"): 1, ("NONE", "false"): 1,
                                   ("GCRA", "false"): 1})
        self.assertEqual(self.top("denied"), {
            ("rls/configured", "edge|user=ann", 2), ("rls/configured", f"edge|api_key#{digest}", 1),
            ("rls/configured", "edge|closed=x", 1), ("login", "bob", 1),
            ("resp/cl.throttle", "never", 1)})
        self.assertEqual(self.top("shadow"), {("rls/configured", "edge|trial=x", 3)})

        self.assertEqual(self.look("edge|user=ann"), [("edge", "edge.user", 0, False)])
        self.assertEqual(self.look("edge|user=bob"), [("edge", "edge.user", 2, True)])
        self.assertEqual(self.look(f"edge|api_key#{digest}"), [("edge", "edge.api_key", 0, False)])
        self.assertEqual(self.look(f"edge|api_key={secret}"), [("edge", "edge.api_key", 0, False)])
        self.assertEqual(self.look("bob"), [(None, "login", 0, False)])
        shown = self.service.admin("GET", target("/admin/v1/keys", key=f"edge|api_key={secret}"))
        self.assertNotIn(secret.encode(), shown.body)
        near = self.service.admin("GET", "/admin/v1/top?by=near").json["keys"]
        self.assertEqual({entry["key"] for entry in near},
                         {"edge|user=ann", f"edge|api_key#{digest}", "bob"})


if __name__ == "__main__":
    support.main()
