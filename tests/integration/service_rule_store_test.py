# SPDX-License-Identifier: Apache-2.0
"""Rule sets in a Redis that is emptied, goes back in time, holds garbage or is away, and instances
that change them at the same moment.

Usage: service_rule_store_test.py PROGRAM
"""

import json
import os
import stat

import support
from support import AGES, eventually, eventually_get

SETS = "/admin/v1/rule-sets"
HASH = "sluice:rules"
MARKER = ":revision"
POLL = ("--rules-poll-interval", "50ms")


def rule_set(limit, identifier="shared"):
    return json.dumps({"id": identifier, "rules": [
        {"id": "r", "scope": "PER_IP",
         "bands": [{"label": "b", "algorithm": "FIXED_WINDOW", "limit": limit, "window": AGES}]}]})


class RuleStoreTest(support.ServiceTest):
    def serve(self, redis, *arguments, **keywords):
        return self.start("--rules-redis", redis.patient_uri, *POLL, *arguments, **keywords)

    def limit_at(self, service, identifier="shared"):
        answer = service.check(identifier, ip="192.0.2.1", permits=0)
        return answer.json["limit"] if answer.status == 200 else answer.status

    def rules_of(self, service):
        return service.admin("GET", "/admin/v1/status").json["rules"]

    def wait_for_health(self, service, status):
        return eventually_get(lambda: service.get("/health").json,
                              lambda health: health["rules"]["status"] == status,
                              f"the rules are {status}")

    def stored(self, redis):
        lines = redis.cli("hgetall", HASH).splitlines()
        return dict(zip(lines[::2], lines[1::2]))

    def create(self, service, *sets):
        for limit, identifier in sets:
            answer = service.admin("POST", SETS, rule_set(limit, identifier))
            self.assertEqual(answer.status, 201, answer)

    def away(self):
        """A Redis that is gone: its port stays reserved."""
        redis = self.redis()
        redis.kill()
        return redis


class Lost(RuleStoreTest):
    def test_flushall_takes_no_rule_out_of_force(self):
        redis = self.redis()
        services = [self.serve(redis) for _ in range(2)]
        self.create(services[0], (5, "shared"), (6, "other"))
        eventually(lambda: self.limit_at(services[1], "other") == 6, "both know them")
        before = self.stored(redis)
        for times in (1, 2):
            redis.cli("flushall")
            eventually(lambda: self.stored(redis) == before, "they are written back")
            for service in services:
                self.assertEqual(self.limit_at(service), 5)
                self.assertEqual(self.wait_for_health(service, "UP")["status"], "UP")
            # Exactly one of them did it.
            restored = sum(service.metric("sluice_rule_store_restored_total")
                           for service in services)
            self.assertEqual(restored, times)
        eventually(lambda: any(service.log_lines("WARN", "the rule set store has lost its rule sets",
                                                 "written back") for service in services),
                   "it is told")

    def test_a_restart_without_persistence(self):
        redis = self.redis()
        service = self.serve(redis)
        self.create(service, (5, "shared"))
        redis.kill()
        degraded = self.wait_for_health(service, "DEGRADED")
        self.assertEqual(degraded["status"], "DEGRADED")
        self.assertIn("cannot be read", degraded["rules"]["problem"])
        self.assertEqual(service.metric("sluice_rule_store_up"), 0)
        self.assertEqual(service.get("/health/ready").status, 200, "its rules are known")
        self.assertEqual(self.limit_at(service), 5)
        redis.restart()
        eventually(lambda: "shared" in self.stored(redis), "it is written back")
        self.wait_for_health(service, "UP")
        self.assertEqual(self.limit_at(service), 5)
        self.assertEqual(service.metric("sluice_rule_store_up"), 1)
        # An instance that starts later finds it.
        self.assertEqual(self.limit_at(self.serve(redis)), 5)

    def test_what_is_removed_through_the_api_stays_so(self):
        redis = self.redis()
        service = self.serve(redis)
        self.create(service, (5, "shared"))
        self.assertEqual(service.admin("DELETE", SETS + "/shared").status, 200)
        self.assertEqual(list(self.stored(redis)), [MARKER])
        # A reload reads the store; nothing comes back.
        self.assertEqual(service.admin("POST", "/admin/v1/reload").status, 200)
        self.assertEqual(self.limit_at(service), 404)
        self.assertEqual(list(self.stored(redis)), [MARKER])
        self.assertEqual(self.rules_of(service)["restored"], 0)

    def test_a_redis_that_goes_back_in_time_is_brought_forward(self):
        redis = self.redis()
        service = self.serve(redis)
        self.create(service, (5, "shared"), (6, "removed"))
        backup = self.stored(redis)
        self.assertEqual(service.admin("PUT", SETS + "/shared", rule_set(7)).status, 200)
        self.assertEqual(service.admin("DELETE", SETS + "/removed").status, 200)
        newest = self.stored(redis)
        # As after a failover to a stale replica, or with yesterday's dump.
        redis.cli("hset", HASH, *[part for pair in backup.items() for part in pair])
        eventually(lambda: self.stored(redis) == newest, "the newest is written back")
        self.assertEqual(self.limit_at(service), 7)
        self.assertEqual(self.limit_at(service, "removed"), 404)
        eventually(lambda: service.log_lines("WARN", "has lost its last changes"), "it is told")

    def test_what_cannot_be_written_back_is_told(self):
        redis = self.redis()
        redis.cli("acl", "setuser", "reader", "on", ">pw", "~*", "&*", "+@all")
        uri = f"redis://reader:pw@127.0.0.1:{redis.port}?timeout=60s&connect_timeout=60s"
        service = self.start("--rules-redis", uri, *POLL)
        self.create(service, (5, "shared"))
        redis.cli("acl", "setuser", "reader", "-eval")
        redis.cli("flushall")
        degraded = self.wait_for_health(service, "DEGRADED")
        self.assertIn("lost", degraded["rules"]["problem"])
        self.assertEqual(service.get("/health/ready").status, 200)
        self.assertEqual(self.limit_at(service), 5)
        self.assertEqual(service.admin("PUT", SETS + "/shared", rule_set(6)).status, 503)
        redis.cli("acl", "setuser", "reader", "+eval")
        self.wait_for_health(service, "UP")
        self.assertIn("shared", self.stored(redis))

    def test_rule_sets_that_an_earlier_version_wrote(self):
        redis = self.redis()
        redis.cli("hset", HASH, "shared", rule_set(5))
        service = self.serve(redis)
        self.assertEqual(self.limit_at(service), 5)
        redis.cli("hset", HASH, "shared", rule_set(6))
        eventually(lambda: self.limit_at(service) == 6, "a change by hand")
        redis.cli("flushall")
        eventually(lambda: "shared" in self.stored(redis), "it is written back")
        self.assertEqual(self.limit_at(service), 6)


class Start(RuleStoreTest):
    def test_without_redis_and_without_a_file_it_is_not_ready(self):
        redis = self.away()
        service = self.serve(redis)
        for path in ("/health/ready", "/actuator/health/readiness"):
            ready = service.get(path)
            self.assertEqual((ready.status, ready.json["status"]), (503, "DOWN"))
            self.assertIn("cannot be read", ready.json["reason"])
        health = service.get("/health")
        self.assertEqual((health.status, health.json["status"]), (503, "DOWN"))
        self.assertEqual(service.get("/health/live").status, 200)
        self.assertEqual(service.metric("sluice_rules_ready"), 0)
        redis.restart()
        eventually(lambda: service.get("/health/ready").status == 200, "it is ready")
        self.assertEqual(service.get("/health").json["status"], "UP")
        # From now on it is, whatever happens to Redis.
        redis.kill()
        self.wait_for_health(service, "DEGRADED")
        self.assertEqual(service.get("/health/ready").status, 200)

    def test_without_redis_it_serves_what_it_kept(self):
        redis, folder = self.redis(), self.folder()
        kept = folder / "rules.kept"
        service = self.serve(redis, "--rules-keep", kept)
        self.create(service, (5, "shared"), (6, "other"))
        before = self.stored(redis)
        self.assertEqual(service.stop(), 0)
        self.assertEqual(stat.S_IMODE(os.stat(kept).st_mode), 0o600)
        self.assertEqual(os.listdir(str(folder)), ["rules.kept"])

        redis.kill()
        again = self.serve(redis, "--rules-keep", kept)
        self.assertEqual(again.get("/health/ready").status, 200)
        self.assertEqual(again.get("/health").json["rules"]["status"], "DEGRADED")
        self.assertEqual([self.limit_at(again), self.limit_at(again, "other")], [5, 6])
        # Redis has lost everything, and nobody else knows it.
        redis.restart()
        eventually(lambda: self.stored(redis) == before, "it is written back")
        self.wait_for_health(again, "UP")

    def test_the_store_counts_once_it_is_there(self):
        redis, folder = self.redis(), self.folder()
        kept = folder / "rules.kept"
        service = self.serve(redis, "--rules-keep", kept)
        self.create(service, (5, "shared"))
        self.assertEqual(service.stop(), 0)
        self.assertEqual(self.serve(redis).admin("PUT", SETS + "/shared", rule_set(7)).status, 200)
        self.assertEqual(self.limit_at(self.serve(redis, "--rules-keep", kept)), 7)

    def test_a_damaged_file_is_set_aside(self):
        redis, folder = self.redis(), self.folder()
        kept = folder / "rules.kept"
        service = self.serve(redis, "--rules-keep", kept)
        self.create(service, (5, "shared"))
        self.assertEqual(service.stop(), 0)
        with open(kept, "r+b") as file:
            whole = file.read()
            file.seek(whole.index(b'"limit": 5') + 9)
            file.write(b"9")
        redis.kill()
        again = self.serve(redis, "--rules-keep", kept)
        self.assertEqual(self.limit_at(again), 404)
        self.assertEqual(again.get("/health/ready").status, 503)
        self.assertTrue(again.logged("ERROR", "the kept rule sets cannot be used",
                                     kept + ".damaged"))
        self.assertTrue(os.path.exists(kept + ".damaged"))
        self.assertEqual(again.metric("sluice_rules_keep_failures_total"), 1)

    def test_rule_sets_of_the_process_are_kept_as_well(self):
        kept = self.folder() / "rules.kept"
        service = self.start("--rules-keep", kept)
        self.create(service, (5, "shared"))
        self.assertEqual(service.stop(), 0)
        self.assertEqual(self.limit_at(self.start("--rules-keep", kept)), 5)


class BadDocuments(RuleStoreTest):
    def test_hold_up_nothing_else(self):
        redis, folder = self.redis(), self.folder()
        files = folder.write("rules.yaml", "ruleSets: [{id: filed}]\n")
        service = self.serve(redis, "--rules", files)
        self.create(service, (5, "shared"), (6, "other"))
        for identifier, document in (("shared", "{not"), ("filed", rule_set(1, "filed")),
                                     ("newer", '{"id": "newer", "fieldOfTomorrow": 1}'),
                                     ("named", rule_set(1, "other")), ("empty", ""),
                                     ("a b\n", rule_set(1)), ("text", "just words")):
            redis.cli("hset", HASH, identifier, document)
        redis.cli("eval", "redis.call('hset', KEYS[1], 'binary', '\\255\\254', 'large', "
                  "string.rep(' ', 8388609))", "1", HASH)
        bad = {"shared", "filed", "newer", "named", "empty", "a b\n", "text", "binary", "large"}
        rules = eventually_get(lambda: self.rules_of(service),
                               lambda rules: rules["rejected"] == len(bad), "all are found")
        self.assertEqual(rules["status"], "DEGRADED")
        self.assertEqual({entry["id"] for entry in rules["rejectedRuleSets"]}, bad)
        self.assertEqual({entry["id"] for entry in rules["rejectedRuleSets"]
                          if entry["lastGoodInForce"]}, {"shared"})
        self.assertEqual(service.get("/health").json["status"], "DEGRADED")
        self.assertEqual(service.get("/health/ready").status, 200)
        self.assertEqual(service.metric("sluice_rule_sets_rejected"), len(bad))
        self.assertEqual(service.metric("sluice_rule_set_rejected", rule_set="newer"), 1)
        self.assertTrue(service.logged("ERROR", "is not valid and was left out",
                                       "rule_set=shared", "its last good version"))

        # Valid rule sets are in force, here and at an instance that starts now; files are still
        # taken.
        starter = self.serve(redis, "--rules", files)
        self.assertEqual(self.limit_at(service), 5)
        for each in (service, starter):
            self.assertEqual(self.limit_at(each, "other"), 6)
            self.assertEqual(each.check("filed").json["ruleApplied"], False, "the file counts")
        self.assertEqual(self.limit_at(starter), 404, "it never saw a good one")
        folder.replace("rules.yaml", "ruleSets: [{id: filed}, {id: more}]\n")
        eventually(lambda: service.check("more").status == 200, "the files are taken")

        # The others can be changed as usual, and the bad ones fixed or removed.
        self.assertEqual(service.admin("PUT", SETS + "/other", rule_set(7, "other")).status, 200)
        self.assertEqual(service.admin("POST", SETS, rule_set(8, "new")).status, 201)
        self.assertEqual(service.admin("DELETE", SETS + "/other").status, 200)
        self.assertEqual(self.limit_at(service, "other"), 404)
        self.assert_error(service.admin("POST", SETS, rule_set(9)), 409, "CONFLICT")
        self.assert_error(service.admin("POST", SETS + "/shared/disable"), 409, "CONFLICT")
        self.assertEqual(service.admin("PUT", SETS + "/shared", rule_set(9)).status, 200)
        self.assertEqual(self.limit_at(service), 9)
        for identifier in bad - {"shared", "a b\n"}:
            self.assertEqual(service.admin("DELETE", f"{SETS}/{identifier}").status, 200)
        redis.cli("hdel", HASH, "a b\n")
        for each in (service, starter):
            self.wait_for_health(each, "UP")
            self.assertEqual(self.limit_at(each), 9)
        self.assertNotIn(("sluice_rule_set_rejected", frozenset({("rule_set", "newer")})),
                         service.metrics())

    def test_the_last_good_version_outlives_a_restart(self):
        redis, folder = self.redis(), self.folder()
        arguments = ("--rules-keep", folder / "kept")
        service = self.serve(redis, *arguments)
        self.create(service, (5, "shared"))
        redis.cli("hset", HASH, "shared", "{not")
        eventually(lambda: self.rules_of(service)["rejected"] == 1, "it is found")
        self.assertEqual(service.stop(), 0)
        again = self.serve(redis, *arguments)
        self.assertEqual(self.limit_at(again), 5)
        self.assertEqual(self.rules_of(again)["rejected"], 1)
        # What is lost is put back as it was, even if invalid: another instance may understand it.
        before = self.stored(redis)
        redis.cli("flushall")
        eventually(lambda: self.stored(redis) == before, "it is written back")

    def test_a_key_of_another_type(self):
        redis = self.redis()
        service = self.serve(redis)
        self.create(service, (5, "shared"))
        redis.cli("set", HASH, "x")
        degraded = self.wait_for_health(service, "DEGRADED")
        self.assertIn("WRONGTYPE", degraded["rules"]["problem"])
        self.assertEqual(self.limit_at(service), 5)
        self.assertEqual(service.admin("PUT", SETS + "/shared", rule_set(6)).status, 503)
        self.assertEqual(redis.cli("get", HASH).strip(), "x", "it is not ours to remove")
        starter = self.serve(redis)
        self.assertEqual(starter.get("/health/ready").status, 503)
        redis.cli("del", HASH)
        for each in (service, starter):
            eventually(lambda s=each: self.limit_at(s) == 5, "the rules are back")
            self.wait_for_health(each, "UP")


class AtTheSameMoment(RuleStoreTest):
    ROUNDS = 12

    def setUp(self):
        self.store = self.redis()
        self.services = [self.serve(self.store) for _ in range(2)]

    def statuses(self, method, target, body=None, headers=None):
        """Asks both instances, twice each, at once: returns the statuses, sorted."""
        def ask(number):
            return self.services[number % 2].admin(method, target, body(number) if body else None,
                                                   headers).status
        return sorted(support.in_threads(4, ask))

    def test_one_creates(self):
        for number in range(self.ROUNDS):
            name = f"made-{number}"
            statuses = self.statuses("POST", SETS, lambda n, name=name: rule_set(n + 1, name))
            self.assertEqual(statuses, [201, 409, 409, 409])
            statuses = self.statuses("PUT", f"{SETS}/put-{number}",
                                     lambda n, i=number: rule_set(n + 1, f"put-{i}"))
            self.assertEqual(statuses, [200, 200, 200, 201])
            statuses = self.statuses("PUT", f"{SETS}/only-{number}",
                                     lambda n, i=number: rule_set(n + 1, f"only-{i}"),
                                     {"If-None-Match": "*"})
            self.assertEqual(statuses, [201, 412, 412, 412])

    def test_one_replaces_what_it_read(self):
        self.create(self.services[0], (1000, "shared"))
        for number in range(self.ROUNDS):
            # Whoever changed it last knows it; when both agree, both do.
            (tag,) = eventually_get(
                lambda: {service.admin("GET", SETS + "/shared").header("ETag")
                         for service in self.services},
                lambda tags: len(tags) == 1 and None not in tags, "both agree")
            statuses = self.statuses("PUT", SETS + "/shared",
                                     lambda n, i=number: rule_set(10 * i + n + 1),
                                     {"If-Match": tag})
            self.assertEqual(statuses, [200, 412, 412, 412])

    def test_one_removes(self):
        for _ in range(self.ROUNDS):
            self.create(self.services[0], (5, "shared"))
            self.assertEqual(self.statuses("DELETE", SETS + "/shared"), [200, 404, 404, 404])

    def test_edits_of_one_rule_set_are_all_made_or_refused(self):
        """Enable and disable write back what they read."""
        self.create(self.services[0], (5, "shared"))

        def work(number):
            service = self.services[number % 2]
            if number < 2:
                return [service.admin("PUT", SETS + "/shared", rule_set(100 + i)).status
                        for i in range(10)]
            return [service.admin("POST", f"{SETS}/shared/{switch}").status
                    for switch in ("disable", "enable") * 5]

        for statuses in support.in_threads(4, work):
            self.assertEqual(statuses, [200] * 10)
        self.assertEqual(int(self.stored(self.store)[MARKER].split(":")[1]), 41)
        for service in self.services:
            eventually(lambda s=service: self.limit_at(s) == 109 or
                       not s.admin("GET", SETS + "/shared").json["enabled"], "the last of them")


class Answers(RuleStoreTest):
    def test_a_put_that_creates_says_so(self):
        service = self.start()
        made = service.admin("PUT", SETS + "/made", rule_set(1, "made"))
        self.assertEqual((made.status, made.json), (201, {"created": "made"}))
        self.assertEqual(made.header("Location"), SETS + "/made")
        again = service.admin("PUT", SETS + "/made", rule_set(2, "made"))
        self.assertEqual((again.status, again.json), (200, {"replaced": "made"}))
        self.assertIsNone(again.header("Location"))
        posted = service.admin("POST", SETS, rule_set(1, "posted"))
        self.assertEqual((posted.status, posted.header("Location")), (201, SETS + "/posted"))

    def test_if_none_match(self):
        service = self.start()
        self.create(service, (1, "made"))
        tag = service.admin("GET", SETS + "/made").header("ETag")
        for tags in ("*", tag, "W/" + tag, f'"x", {tag}'):
            answer = service.admin("PUT", SETS + "/made", rule_set(2, "made"),
                                   {"If-None-Match": tags})
            self.assert_error(answer, 412, "PRECONDITION_FAILED")
        self.assertEqual(self.limit_at(service, "made"), 1)
        answer = service.admin("PUT", SETS + "/made", rule_set(2, "made"), {"If-None-Match": '"x"'})
        self.assertEqual(answer.status, 200)
        answer = service.admin("PUT", SETS + "/new", rule_set(2, "new"), {"If-None-Match": "*"})
        self.assertEqual(answer.status, 201)

    def test_an_outcome_that_is_not_known(self):
        redis = self.redis()
        service = self.start("--rules-redis", f"{redis.uri}?timeout=1s", *POLL)
        eventually(lambda: service.admin("PUT", SETS + "/shared", rule_set(5)).status in (200, 201),
                   "there is a rule set")

        def put():
            # Reads pass, and writes wait.
            redis.cli("client", "pause", "600000", "write")
            answer = service.admin("PUT", SETS + "/shared", rule_set(6))
            redis.cli("client", "unpause")
            self.assertEqual(answer.status, 503)
            return answer.json["error"]

        # On a busy machine, reading may be what takes too long.
        error = eventually_get(put, lambda error: error["code"] == "OUTCOME_UNKNOWN", "it is told")
        self.assertIn("may have been changed or not", error["message"])
        # The outcome is what Redis has, here and there.
        eventually(lambda: service.admin("PUT", SETS + "/shared", rule_set(7)).status == 200,
                   "changes go on")
        eventually(lambda: self.limit_at(service) in (6, 7), "one of them is in force")


class WhereverRedisIs(RuleStoreTest):
    def check_changes(self, uri, empty):
        services = [self.start("--rules-redis", uri, *POLL) for _ in range(2)]
        # A Sentinel may still be starting.
        for service in services:
            self.wait_for_health(service, "UP")
        statuses = support.in_threads(
            4, lambda n: services[n % 2].admin("POST", SETS, rule_set(n + 1)).status)
        self.assertEqual(sorted(statuses), [201, 409, 409, 409])
        self.assertEqual(services[0].admin("PUT", SETS + "/shared", rule_set(5)).status, 200)
        eventually(lambda: self.limit_at(services[1]) == 5, "the change arrives")
        empty()
        eventually(lambda: sum(service.metric("sluice_rule_store_restored_total")
                               for service in services) == 1, "it is written back")
        self.assertEqual(self.limit_at(services[0]), 5)
        self.assertEqual(services[1].admin("DELETE", SETS + "/shared").status, 200)
        eventually(lambda: self.limit_at(services[0]) == 404, "the removal arrives")

    def test_in_a_cluster(self):
        cluster = support.RedisCluster()
        self.addCleanup(cluster.remove)
        self.check_changes(cluster.patient_uri,
                           lambda: [node.cli("flushall") for node in cluster.nodes])

    def test_behind_a_sentinel(self):
        redis = self.redis()
        sentinel = support.Sentinel(redis)
        self.addCleanup(sentinel.remove)
        self.check_changes(f"{sentinel.uri}?timeout=60s&connect_timeout=60s",
                           lambda: redis.cli("flushall"))

    def test_under_the_documented_acl(self):
        manual = (support.REPOSITORY / "docs/reference/redis.md").read_text(encoding="utf-8")
        line = next(line for line in manual.splitlines()
                    if line.startswith("ACL SETUSER sluice-rules "))
        redis = self.redis()
        self.assertEqual(redis.cli(*line.replace(">PASSWORD", ">pw").split()).strip(), "OK")
        self.check_changes(f"redis://sluice-rules:pw@127.0.0.1:{redis.port}?timeout=60s"
                           "&connect_timeout=60s", lambda: redis.cli("flushall"))


if __name__ == "__main__":
    support.main()
