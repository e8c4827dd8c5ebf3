# SPDX-License-Identifier: Apache-2.0
"""What instances share through Redis besides state: rule sets, and how many they are.

Usage: service_shared_test.py PROGRAM
"""

import json

import support
from support import AGES, eventually

SETS = "/admin/v1/rule-sets"
POLL_NEVER = ("--rules-poll-interval", "1h")


def rule_set(limit, identifier="shared"):
    return json.dumps({"id": identifier, "rules": [
        {"id": "r", "scope": "PER_IP",
         "bands": [{"label": "b", "algorithm": "FIXED_WINDOW", "limit": limit, "window": AGES}]}]})


class SharedRules(support.ServiceTest):
    def limit_at(self, service):
        answer = service.check("shared", ip="192.0.2.1", permits=0)
        return answer.json["limit"] if answer.status == 200 else None

    def test_a_change_reaches_every_instance_at_once(self):
        redis = self.redis()
        one, two = (self.start(*redis.patient_store(), "--rules-redis", "store",
                               *POLL_NEVER) for _ in range(2))
        # A late subscription looks by itself for what it missed.
        self.assertEqual(one.admin("POST", SETS, rule_set(5)).status, 201)
        eventually(lambda: self.limit_at(two) == 5, "the rule set at the other instance")
        self.assertEqual(two.admin("PUT", SETS + "/shared", rule_set(7)).status, 200)
        eventually(lambda: self.limit_at(one) == 7, "the change at the first instance")
        listed = one.admin("GET", SETS).json
        self.assertEqual(listed["managedBy"], "Redis")
        self.assertTrue(listed["ruleSets"][0]["managed"])

        # Rule sets outlive the instances, and removing states does not touch them.
        redis.cli("set", "sluice:other", "x")
        purged = support.sluice("purge", "--store", redis.patient_uri, "--match", "*")
        self.assertEqual(purged.returncode, 0, purged.stderr)
        three = self.start(*redis.patient_store(), "--rules-redis", "store", *POLL_NEVER)
        self.assertEqual(self.limit_at(three), 7)

        self.assertEqual(three.admin("DELETE", SETS + "/shared").status, 200)
        for service in (one, two):
            eventually(lambda s=service: s.check("shared", ip="192.0.2.1").status == 404,
                       "the removal everywhere")

    def test_another_redis_may_keep_them_and_be_away(self):
        redis = self.redis()
        service = self.start("--rules-redis", redis.patient_uri, *POLL_NEVER)
        self.assertEqual(service.admin("POST", SETS, rule_set(3)).status, 201)
        self.assertEqual(redis.cli("hexists", "sluice:rules", "shared").strip(), "1")
        redis.kill()
        self.assertEqual(self.limit_at(service), 3, "those known stay")
        refused = service.admin("PUT", SETS + "/shared", rule_set(4))
        self.assertEqual(refused.status, 503)
        self.assertEqual(self.limit_at(service), 3, "what cannot be kept is not in force")


class Instances(support.ServiceTest):
    def instances_of(self, service):
        return service.admin("GET", "/admin/v1/status").json["guard"]["instances"]

    def test_are_counted_by_heartbeats(self):
        redis = self.redis()
        services = [self.start("--store", redis.uri) for _ in range(3)]
        for service in services:
            eventually(lambda s=service: self.instances_of(s) == 3, "three instances")
        self.assertGreater(int(redis.cli("pttl", "sluice:instances")), 0)
        fixed = self.start("--store", redis.uri, "--instances", "5")
        self.assertEqual(self.instances_of(fixed), 5)


if __name__ == "__main__":
    support.main()
