# SPDX-License-Identifier: Apache-2.0
"""Holds over HTTP: made, settled, released and extended, on any instance, by rules and by limits.

Usage: service_holds_test.py PROGRAM
"""

import json
import signal
import threading
import time

import support
from support import AGES, eventually, target

HOLDS = "/api/v1/holds"

RULES = f"""
ruleSets:
  - id: llm
    rules:
      - id: requests
        scope: PER_USER
        hold: {{ttl: 10m}}
        bands: [{{label: rpm, algorithm: FIXED_WINDOW, limit: 5, window: {AGES}}}]
      - id: tokens
        scope: PER_USER
        cost: {{attribute: tokens, default: 1}}
        bands: [{{label: tpm, algorithm: FIXED_WINDOW, limit: 1000, window: {AGES}}}]
  - id: jobs
    rules:
      - {{id: slots, scope: PER_USER, bands: [{{label: open, algorithm: CONCURRENCY, limit: 2, ttl: 10m}}]}}
  - id: fast
    rules:
      - id: r
        scope: PER_USER
        onStoreFailure: FAIL_OPEN
        hold: {{ttl: 10m}}
        bands: [{{algorithm: FIXED_WINDOW, limit: 10, window: {AGES}}}]
  - id: share
    rules:
      - id: r
        scope: PER_USER
        onStoreFailure: LOCAL
        hold: {{ttl: 10m}}
        bands: [{{algorithm: FIXED_WINDOW, limit: 1000, window: {AGES}}}]
"""

CONFIG = """
limits:
  pool: {algorithm: CONCURRENCY, limit: 3, ttl: 10m}
"""


class HoldTest(support.ServiceTest):
    def serve(self, *arguments, **options):
        folder = self.folder()
        return self.start("--rules", folder.write("rules.yaml", RULES),
                          "--config", folder.write("sluice.yaml", CONFIG), *arguments, **options)

    def make(self, service, rule_set=None, status=201, **document):
        if rule_set:
            user = document.pop("user", "ann")
            tokens = document.pop("tokens", None)
            document |= {"ruleSet": rule_set, "context": {"userId": user}}
            if tokens is not None:
                document["context"]["attributes"] = {"tokens": tokens}
        answer = service.request("POST", HOLDS, document)
        self.assertEqual(answer.status, status, answer)
        return answer

    def change(self, service, hold, what, status=200, body=None):
        method, path = ("DELETE", "") if what == "release" else ("POST", f"/{what}")
        answer = service.request(method, f"{HOLDS}/{hold}{path}", body)
        self.assertEqual(answer.status, status, answer)
        return answer.json

    def left(self, service, rule_set, user="ann"):
        answer = service.check(rule_set, permits=0, userId=user)
        return {rule["rule"]: (rule["bands"][0]["remaining"], rule["bands"][0].get("held", 0))
                for rule in answer.json["rules"]}


    def shown(self, service, key, **parameters):
        """What the admin API lists: by rule or name, how many holds are live, and those shown."""
        answer = service.admin("GET", target("/admin/v1/keys", key=key, **parameters))
        self.assertEqual(answer.status, 200, answer)
        return {limit.get("rule", limit.get("name")): (limit["liveHolds"], limit["holds"])
                for limit in answer.json["limits"] if "holds" in limit}

    def release_by_id(self, service, status=200, **parameters):
        answer = service.admin("DELETE", target("/admin/v1/keys/holds", **parameters))
        self.assertEqual(answer.status, status, answer)
        return answer.json


class InMemory(HoldTest):
    def setUp(self):
        self.service = self.serve()

    def test_a_budget_of_tokens(self):
        made = self.make(self.service, "llm", tokens=800).json
        self.assertTrue(made["allowed"] and made["holds"])
        self.assertGreater(made["expiresAtMicros"] / 1e6, time.time() + 500)
        self.assertRegex(made["expiresAt"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
        self.assertEqual(self.left(self.service, "llm"), {"requests": (4, 1), "tokens": (200, 800)})
        denied = self.make(self.service, "llm", 429, tokens=800)
        self.assertEqual(denied.json["deniedBy"], {"rule": "tokens", "band": "tpm"})
        self.assertNotIn("id", denied.json)
        self.assertGreater(int(denied.header("Retry-After")), 0)

        settled = self.change(self.service, made["id"], "settle",
                              body={"permits": {"tokens": 250}})
        self.assertEqual((settled["settled"], settled["late"], settled["overdrawn"]),
                         (True, False, False))
        self.assertEqual([(limit["name"], limit["cost"], limit["remaining"], limit["held"])
                          for limit in settled["limits"]],
                         [("llm/requests/rpm", 1, 4, 0), ("llm/tokens/tpm", 250, 750, 0)])
        again = self.change(self.service, made["id"], "settle", body={"permits": 999})
        self.assertEqual(again["limits"][1]["remaining"], 750, "it was settled already")

    def test_fields_by_band(self):
        service = self.serve("--http-band-fields", "true")
        service.description = None  # It does not know the labels.
        for answer in (self.make(service, "llm", tokens=700),
                       service.check("llm", permits=0, userId="ann")):
            self.assertEqual(answer.header("x-ratelimit-limit-tpm"), "1000")
            self.assertEqual(answer.header("x-ratelimit-remaining-tpm"), "300")
            self.assertEqual(answer.header("x-ratelimit-limit-rpm"), "5")
            self.assertRegex(answer.header("x-ratelimit-reset-rpm"), r"^(\d+h)?(\d+m)?\d+m?s$")

    def test_settling_for_more_takes_what_is_not_there(self):
        made = self.make(self.service, "llm", tokens=900).json
        settled = self.change(self.service, made["id"], "settle",
                              body={"permits": {"tokens": 1500}})
        self.assertTrue(settled["overdrawn"])
        self.make(self.service, "llm", 429, tokens=1)

    def test_jobs_at_a_time(self):
        first = self.make(self.service, "jobs").json["id"]
        self.make(self.service, "jobs")
        denied = self.make(self.service, "jobs", 429)
        self.assertEqual(denied.header("RateLimit-Policy"), '"jobs/slots/open";q=2;w=600')
        released = self.change(self.service, first, "release")
        self.assertEqual((released["released"], released["late"]), (True, False))
        self.change(self.service, first, "release")
        self.make(self.service, "jobs")
        self.make(self.service, "jobs", 429)

    def test_a_check_of_what_can_only_be_held_says_how(self):
        answer = self.service.check("jobs", userId="ann")
        self.assertEqual(answer.status, 400)
        self.assertEqual(answer.json["error"]["code"], "NEEDS_HOLD")
        self.assertIn("expected a hold", answer.json["error"]["message"])

    def test_ids_of_the_callers_own(self):
        made = self.make(self.service, "llm", id="chat 1", tokens=100).json
        same = self.make(self.service, "llm", id="chat 1", tokens=100).json
        self.assertEqual(same["id"], made["id"])
        self.assertEqual(self.left(self.service, "llm")["tokens"], (900, 100))
        conflict = self.make(self.service, "llm", 409, id="chat 1", tokens=200)
        self.assertEqual(conflict.json["error"]["code"], "HOLD_CONFLICT")
        self.change(self.service, made["id"], "release")
        self.make(self.service, "llm", 409, id="chat 1", tokens=100)

    def test_a_limit_and_a_key(self):
        made = self.make(self.service, limit="pool", key="db", permits=2).json
        self.assertEqual((made["remaining"], made["held"], made["algorithm"]),
                         (1, 2, "CONCURRENCY"))
        self.make(self.service, limit="pool", key="db", permits=2, status=429)
        self.change(self.service, made["id"], "release")
        written = "algorithm=token_bucket,capacity=10,refill=1,period=1h"
        made = self.make(self.service, limit=written, key="k", permits=4, ttl="1m").json
        settled = self.change(self.service, made["id"], "settle", body={"permits": 1})
        self.assertEqual(settled["limits"][0]["remaining"], 9)
        self.assertEqual(settled["limits"][0]["name"], written)

    def test_extending(self):
        made = self.make(self.service, "jobs", ttl="1m").json
        extended = self.change(self.service, made["id"], "extend", body={"ttl": "2h"})
        self.assertGreater(extended["expiresAtMicros"], made["expiresAtMicros"] + 7000e6)
        self.assertEqual(extended["limits"][0]["held"], 1)
        back = self.change(self.service, made["id"], "extend")
        self.assertLess(back["expiresAtMicros"], extended["expiresAtMicros"])
        self.change(self.service, made["id"], "release")
        lost = self.change(self.service, made["id"], "extend", 410)
        self.assertEqual(lost["error"]["code"], "HOLD_LOST")

    def test_a_hold_that_nobody_ends_expires(self):
        made = self.make(self.service, "jobs", ttl="1ms").json
        eventually(lambda: self.left(self.service, "jobs")["slots"] == (2, 0), "it has expired")
        released = self.change(self.service, made["id"], "release")
        self.assertTrue(released["late"])

    def test_what_is_wrong_is_said(self):
        for document, code, words in (
                ({}, "INVALID_INPUT", "or else limit and key"),
                ({"ruleSet": "llm", "limit": "pool"}, "INVALID_INPUT", "or else limit and key"),
                ({"ruleSet": "llm", "key": "x"}, "INVALID_INPUT", "or else limit and key"),
                ({"limit": "pool", "context": {}}, "INVALID_INPUT", "or else limit and key"),
                ({"limit": "pool"}, "INVALID_KEY", "expected 1 to 1024 bytes"),
                ({"limit": "lake", "key": "k"}, "INVALID_REQUEST", 'no limit is named "lake"'),
                ({"limit": "algorithm=x", "key": "k"}, "INVALID_LIMIT", "unknown algorithm"),
                ({"limit": "limit=5,window=1m", "key": "k"}, "INVALID_REQUEST", "without a ttl"),
                ({"limit": "pool", "key": "k", "permits": 4}, "COST_EXCEEDS_LIMIT", "4"),
                ({"limit": "pool", "key": "k", "ttl": "2d"}, "INVALID_INPUT", "from 1ms to 1d"),
                ({"limit": "pool", "key": "k", "ttl": 30}, "INVALID_INPUT", 'such as "30s"'),
                ({"limit": "pool", "key": "k", "onExpiry": "KEEP"}, "INVALID_INPUT",
                 "CHARGE or RELEASE"),
                ({"limit": "pool", "key": "k", "id": "é"}, "INVALID_REQUEST", "printable ASCII"),
                ({"limit": "pool", "key": "k", "id": "x" * 65}, "INVALID_REQUEST", "1 to 64"),
                ({"limit": "pool", "key": "k", "cost": 1}, "INVALID_INPUT", 'no field "cost"')):
            answer = self.service.request("POST", HOLDS, document)
            self.assertEqual((answer.status, answer.json["error"]["code"]), (400, code), document)
            self.assertIn(words, answer.json["error"]["message"])
        made = self.make(self.service, "llm", tokens=1).json["id"]
        for body, code in (({"permits": -1}, "INVALID_COST"), ({"permits": "1"}, "INVALID_INPUT"),
                           ({"permits": {"tokens": 1.5}}, "INVALID_INPUT"),
                           ({"cost": 1}, "INVALID_INPUT"), ([], "INVALID_INPUT"),
                           ({"permits": {"tokens": -1}}, "INVALID_COST")):
            error = self.change(self.service, made, "settle", 400, body)
            self.assertEqual(error["error"]["code"], code, body)
        error = self.change(self.service, made, "settle", 404, {"permits": {"rules": 1}})
        self.assertIn('"rules"', error["error"]["message"])
        for wrong in ("x", made[:-1], made[1:], "%00", "A" * 7000):
            for what in ("settle", "extend", "release"):
                error = self.change(self.service, wrong, what, 400)
                self.assertEqual(error["error"]["code"], "INVALID_REQUEST")
        self.assertEqual(self.left(self.service, "llm")["tokens"], (999, 1), "nothing has changed")

    def test_a_public_door_holds_for_nobody_without_a_token(self):
        folder = self.folder()
        service = self.serve("--http-public", "true", "--http-token-file",
                             folder.write("tokens", "secret"))
        made = self.make(self.service, "llm", tokens=1).json["id"]
        for answer in (service.request("POST", HOLDS, {"limit": "pool", "key": "k"}),
                       service.request("DELETE", f"{HOLDS}/{made}")):
            self.assertEqual(answer.status, 403, answer)
        self.make(service, limit="pool", key="k", status=403)
        answer = service.request("POST", HOLDS, {"limit": "pool", "key": "k"},
                                 {"Authorization": "Bearer secret"})
        self.assertEqual(answer.status, 201)

    def test_events_are_counted(self):
        made = self.make(self.service, "llm", tokens=5).json["id"]
        self.assertEqual(self.service.metric("sluice_holds_live"), 1)
        self.change(self.service, made, "settle", body={"permits": {"tokens": 9}})
        self.assertEqual(self.service.metric("sluice_holds_live"), 0)
        for event, count in (("made", 1), ("settled", 1), ("overdrawn", 1), ("late", 0)):
            self.assertEqual(self.service.metric("sluice_holds_total", event=event), count)
            self.assertEqual(self.service.metric("sluice_rule_holds_total", rule_set="llm",
                                                 rule="tokens", event=event), count)
        self.assertEqual(self.service.metric("sluice_rule_decisions_total", rule_set="llm",
                                             rule="tokens", outcome="allowed"), 1)

    def test_operators_see_and_release_them(self):
        before = time.time()
        made = self.make(self.service, "llm", id="chat 1", tokens=800, ttl="5m").json
        self.make(self.service, "jobs", id="job", ttl="1m", onExpiry="CHARGE")
        self.make(self.service, limit="pool", key="user:ann", id="job", ttl="2m")
        shown = self.shown(self.service, "user:ann")
        self.assertEqual(set(shown), {"requests", "tokens", "slots", "pool"})
        live, (chat,) = shown["tokens"]
        self.assertEqual((live, chat["id"], chat["units"], chat["onExpiry"]),
                         (1, "chat 1", 800, "CHARGE"))
        self.assertEqual((chat["expiresAt"], chat["expiresAtMicros"]),
                         (made["expiresAt"], made["expiresAtMicros"]))
        self.assertTrue(0 <= chat["ageMicros"] / 1e6 <= time.time() - before)
        self.assertEqual(shown["slots"][1][0]["onExpiry"], "RELEASE")

        # Only where it is, and once.
        self.release_by_id(self.service, 404, key="user:bob", hold="chat 1")
        self.release_by_id(self.service, 404, key="user:ann", hold="chat")
        self.release_by_id(self.service, 404, key="user:ann", hold="chat 1", rule="slots")
        self.release_by_id(self.service, 400, key="user:ann", hold="x" * 65)
        released = self.release_by_id(self.service, key="user:ann", hold="chat 1")
        self.assertEqual((released["key"], released["hold"]), ("user:ann", "chat 1"))
        self.assertEqual([(one["rule"], one["units"], one["source"])
                          for one in released["released"]],
                         [("requests", 1, "store"), ("tokens", 800, "store")])
        self.release_by_id(self.service, 404, key="user:ann", hold="chat 1")
        self.assertEqual(self.left(self.service, "llm"), {"requests": (5, 0), "tokens": (1000, 0)})
        self.assertEqual(set(self.shown(self.service, "user:ann")), {"slots", "pool"})

        # Its holder is told as after any other end.
        self.assertEqual(self.change(self.service, made["id"], "settle",
                                     body={"permits": {"tokens": 9}})["limits"][1]["remaining"], 1000)
        self.change(self.service, made["id"], "extend", 410)

        # One id on several limits.
        both = self.release_by_id(self.service, key="user:ann", hold="job")["released"]
        self.assertEqual([one.get("rule", one.get("name")) for one in both], ["slots", "pool"])
        self.assertEqual(self.service.metric("sluice_holds_total", event="released"), 2)
        self.assertEqual(self.service.metric("sluice_rule_holds_total", rule_set="llm",
                                             rule="tokens", event="released"), 1)

    def test_who_names_a_hold_resets_no_budget(self):
        self.make(self.service, "llm", tokens=5, id="chat")
        path = "/admin/v1/rule-sets/llm/keys"
        for hold in ("chat", ""):
            answer = self.service.admin("DELETE", target(path, key="user:ann", hold=hold))
            self.assertEqual((answer.status, answer.json["error"]["code"]),
                             (400, "INVALID_QUERY"), answer)
        self.assertEqual(self.left(self.service, "llm")["tokens"], (995, 5))

    def test_many_are_listed_up_to_a_maximum(self):
        ids = [f"{number:03}" for number in range(120)]
        for number, identifier in enumerate(ids):
            self.make(self.service, "share", id=identifier, ttl=f"{600 + number}s")
        live, listed = self.shown(self.service, "user:ann")["r"]
        self.assertEqual((live, [hold["id"] for hold in listed]), (120, ids[:100]))
        live, listed = self.shown(self.service, "user:ann", hold="119")["r"]
        self.assertEqual((live, [hold["id"] for hold in listed]), (120, ["119"]))
        self.release_by_id(self.service, key="user:ann", hold="119")
        self.assertEqual(self.shown(self.service, "user:ann")["r"][0], 119)

    def test_holds_survive_a_restart(self):
        folder = self.folder()
        arguments = ("--snapshot", f"{folder}/state")
        service = self.serve(*arguments)
        made = self.make(service, "jobs").json["id"]
        self.assertEqual(service.stop(), 0)
        service = self.serve(*arguments)
        self.assertEqual(self.left(service, "jobs")["slots"], (1, 1))
        self.assertFalse(self.change(service, made, "release")["late"])
        self.assertEqual(self.left(service, "jobs")["slots"], (2, 0))

    def test_never_too_many_at_a_time(self):
        live, most, lock = 0, 0, threading.Lock()

        def work():
            nonlocal live, most
            client = support.Client(self.service.port)
            for _ in range(40):
                answer = client.request("POST", HOLDS, {"limit": "pool", "key": "shared"})
                if answer.status != 201:
                    continue
                with lock:
                    live += 1
                    most = max(most, live)
                with lock:
                    live -= 1
                client.request("DELETE", f"{HOLDS}/{answer.json['id']}")
            client.close()

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertLessEqual(most, 3)
        made = self.make(self.service, limit="pool", key="shared", permits=3)
        self.assertEqual(made.json["remaining"], 0, "all of them are back")


class OnRedis(HoldTest):
    def test_any_instance_ends_what_another_made(self):
        redis = self.redis()
        a = self.serve(*redis.patient_store(), "--instances", "2")
        b = self.serve(*redis.patient_store(), "--instances", "2")
        made = self.make(a, "llm", tokens=800).json["id"]
        self.assertEqual(self.left(b, "llm")["tokens"], (200, 800))
        extended = self.change(b, made, "extend", body={"ttl": "1h"})
        self.assertEqual(extended["source"], "store")
        settled = self.change(b, made, "settle", body={"permits": {"tokens": 250}})
        self.assertEqual(settled["limits"][1]["remaining"], 750)
        self.assertEqual(self.left(a, "llm")["tokens"], (750, 0))
        slot = self.make(b, "jobs").json["id"]
        self.change(a, slot, "release")
        self.assertEqual(self.left(b, "jobs")["slots"], (2, 0))

    def test_operators_see_and_release_them_on_any_instance(self):
        redis = self.redis()
        a = self.serve(*redis.patient_store(), "--instances", "2")
        b = self.serve(*redis.patient_store(), "--instances", "2")
        self.make(a, "llm", id="chat", tokens=800)
        live, (chat,) = self.shown(b, "user:ann")["tokens"]
        self.assertEqual((live, chat["id"], chat["units"]), (1, "chat", 800))
        self.release_by_id(b, key="user:ann", hold="chat")
        self.assertEqual(self.left(a, "llm"), {"requests": (5, 0), "tokens": (1000, 0)})
        self.assertEqual(self.shown(a, "user:ann"), {})

    def test_operators_are_told_that_redis_is_away(self):
        redis = self.redis()
        service = self.serve("--store", redis.uri)
        self.make(service, "share", id="chat")
        redis.kill()
        answer = service.admin("GET", "/admin/v1/keys?key=user:ann")
        self.assertEqual(answer.status, 200)
        self.assertLessEqual({limit.get("error") for limit in answer.json["limits"]},
                             {"UNAVAILABLE", "OUTCOME_UNKNOWN"})
        lost = self.release_by_id(service, 503, key="user:ann", hold="chat")
        self.assertIn(lost["error"]["code"], ("UNAVAILABLE", "OUTCOME_UNKNOWN"))

    def test_memory_and_redis_answer_alike(self):
        services = (self.serve(), self.serve(*self.redis().patient_store()))
        answers = [[], []]
        for service, seen in zip(services, answers):
            for document in ({"ruleSet": "llm", "context": {"userId": "u"}, "id": "x"},
                             {"ruleSet": "llm", "context": {"userId": "u"}, "id": "x"},
                             {"ruleSet": "jobs", "context": {"userId": "u"}, "permits": 2, "id": "y"},
                             {"ruleSet": "jobs", "context": {"userId": "u"}, "id": "z"}):
                seen.append(service.request("POST", HOLDS, document))
        times = {"id", "expiresAt", "expiresAtMicros", "retryAfterMicros", "resetAfterMicros",
                 "retryAfterSeconds", "resetAfterSeconds"}

        def shape(value):
            if isinstance(value, dict):
                return {name: shape(part) for name, part in value.items() if name not in times}
            return [shape(part) for part in value] if isinstance(value, list) else value

        for memory, store in zip(*answers):
            self.assertEqual(memory.status, store.status)
            self.assertEqual(json.dumps(shape(memory.json)), json.dumps(shape(store.json)))

    def test_a_hold_that_fails_open_settles_to_nothing(self):
        redis = self.redis()
        service = self.serve("--store", redis.uri)
        redis.kill()
        made = eventually(lambda: self.failed_open(service), "the store is missed")
        self.assertFalse(made["holds"])
        settled = self.change(service, made["id"], "settle", body={"permits": 3})
        self.assertTrue(settled["settled"])
        self.assertEqual(settled["limits"], [])

    def test_a_settle_that_redis_could_not_be_told_is_sent_later(self):
        redis = self.redis()
        # Patient at first, so that the hold is surely made there.
        service = self.serve("--store", redis.patient_uri, "--deadline", "5s")
        other = self.serve(*redis.patient_store())
        made = self.make(service, "llm", tokens=800).json["id"]
        slot = self.make(service, "jobs").json["id"]
        redis.send(signal.SIGSTOP)
        settled = self.change(service, made, "settle", body={"permits": {"tokens": 250}})
        self.assertEqual((settled["source"], settled["settled"]), ("local", True))
        self.assertEqual(self.change(service, slot, "release")["source"], "local")
        redis.send(signal.SIGCONT)
        eventually(lambda: self.left(other, "llm")["tokens"] == (750, 0), "it is settled")
        eventually(lambda: self.left(other, "jobs")["slots"] == (2, 0), "it is released")
        eventually(lambda: service.metric("sluice_guard_settles_waiting") == 0, "all are sent")
        self.assertEqual(service.metric("sluice_guard_settles_total", state="kept"),
                         service.metric("sluice_guard_settles_total", state="sent"))

    def test_a_hold_on_this_instances_share(self):
        redis = self.redis("--appendonly", "yes", "--appendfsync", "always")
        service = self.serve("--store", redis.uri, "--instances", "2")
        redis.kill()
        # The first requests may meet a store that has just gone.
        made = eventually(lambda: self.held_here(service), "the store is missed")
        self.assertTrue(made["holds"])
        self.assertEqual((made["limit"], made["remaining"]), (500, 200))
        denied = service.request("POST", HOLDS, {"ruleSet": "share", "permits": 300,
                                                 "context": {"userId": "u"}})
        self.assertEqual(denied.status, 429)
        settled = self.change(service, made["id"], "settle", body={"permits": 100})
        self.assertEqual((settled["late"], settled["limits"][0]["remaining"]), (False, 400))
        redis.restart()
        eventually(lambda: self.left(service, "share", "u")["r"] == (900, 0), "it is reported")

    def held_here(self, service):
        answer = service.request("POST", HOLDS, {"ruleSet": "share", "permits": 300,
                                                 "context": {"userId": "u"}})
        return answer.json if answer.status == 201 and answer.json["source"] == "local" else None

    def failed_open(self, service):
        answer = service.request("POST", HOLDS, {"ruleSet": "fast", "context": {"userId": "u"}})
        return answer.json if answer.status == 201 and answer.json["source"] == "fail-open" else None


if __name__ == "__main__":
    support.main()
