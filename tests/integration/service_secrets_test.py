# SPDX-License-Identifier: Apache-2.0
"""API keys never appear in clear: not in a real Redis, nor in what it is sent, logs, metrics,
answers and snapshots; and yet every door and instance finds each key's one budget.

Usage: service_secrets_test.py PROGRAM
"""

import hashlib
import os
import pathlib
import subprocess

import support
from support import AGES, eventually, target

SECRET = "sk-live-3f9a77b0c1"
VIP = "sk-live-vip-55e1"
HASH = hashlib.sha256(SECRET.encode()).hexdigest()

RULES = f"""ruleSets:
  - id: api
    rules:
      - id: keys
        scope: PER_API_KEY
        onStoreFailure: FAIL_CLOSED
        bands: [{{label: k, algorithm: FIXED_WINDOW, limit: 5, window: {AGES}}}]
        overrides:
          - key: "sha256:{hashlib.sha256(VIP.encode()).hexdigest()}"
            bands: [{{label: k, algorithm: FIXED_WINDOW, limit: 50, window: {AGES}}}]
      - id: tokens
        scope: CUSTOM
        attribute: access_token
        onStoreFailure: FAIL_CLOSED
        bands: [{{label: t, algorithm: TOKEN_BUCKET, capacity: 5, refill: 1, period: {AGES}}}]
"""

DESCRIPTORS = """domain: edge
descriptors:
  - key: api_key
    rate_limit: {unit: year, requests_per_unit: 3}
"""

KEYS = "/admin/v1/rule-sets/api/keys"
TRUST = ("--trusted-proxies", "127.0.0.1", "--trusted-headers", "X-API-Key")


class Monitor(support.Process):
    """Everything that a Redis is sent, from now on."""

    def __init__(self, redis):
        super().__init__(["redis-cli", "-p", str(redis.port), "monitor"])
        self.redis = redis
        eventually(lambda: "OK" in self.output(), "MONITOR is on")

    def told(self):
        self.redis.cli("echo", "the last of them")
        eventually(lambda: "the last of them" in self.output(), "MONITOR has shown all")
        return self.output()


class SecretsTest(support.ServiceTest):
    def start_sluice(self, *store):
        folder = self.folder()
        return self.start("--rules", folder.write("rules.yaml", RULES), "--rls-config",
                          folder.write("rls/edge.yaml", DESCRIPTORS), "--resp", "127.0.0.1:0",
                          "--grpc", "127.0.0.1:0", "--log-level", "debug", *TRUST, *store)

    def resp(self, service, *words):
        return subprocess.run(["redis-cli", "-p", str(service.resp_port), *words],
                              capture_output=True, text=True, check=True,
                              timeout=support.PATIENCE).stdout

    def ask_everywhere(self, services):
        """Takes one at each door, all that the key has; returns the answers."""
        first, second = services[0], services[-1]
        answers = [
            first.check("api", apiKey=SECRET),
            second.request("POST", "/api/v1/check/batch", {"checks": [
                {"ruleSet": "api", "context": {"apiKey": SECRET}}]}),
            first.request("GET", "/api/v1/authorize/api", headers={"X-API-Key": SECRET}),
        ]
        said = [self.resp(second, "SLUICE.CHECK", "RULESET", "api", "APIKEY", SECRET, "DETAIL"),
                self.resp(first, "SLUICE.CHECK", "RULESET", "api", "APIKEY", SECRET)]
        self.assertEqual([answer.status for answer in answers], [200] * 3)
        # It is one budget: after these five it is used up at every door.
        answers += [second.check("api", apiKey=SECRET),
                    first.request("GET", "/api/v1/authorize/api", headers={"X-API-Key": SECRET}),
                    first.check("api", attributes={"access_token": SECRET})]
        self.assertEqual([answer.status for answer in answers[3:]], [429, 429, 200])
        said.append(self.resp(first, "SLUICE.CHECK", "RULESET", "api", "APIKEY", SECRET))
        self.assertIn("keys/k", said[-1])
        # Descriptors of the Rate Limit Service, decided like at the gRPC door.
        descriptors = {"domain": "edge", "descriptors": [
            {"entries": [{"key": "api_key", "value": SECRET}]}]}
        limited = [service.request("POST", "/json", descriptors)
                   for service in (first, second, first, second)]
        self.assertEqual([answer.status for answer in limited], [200, 200, 200, 429])
        return said + [answer.body.decode() for answer in answers + limited]

    def look_and_reset(self, service):
        """As an operator would, by the key itself and by what answers show; returns what was
        shown."""
        shown = []
        for key in (f"apikey:{SECRET}", f"apikey#{HASH}"):
            answer = service.admin("GET", target(KEYS, key=key))
            self.assertEqual(answer.json["bands"][0]["remaining"], 0, key)
            shown.append(answer.body.decode())
        answer = service.admin("DELETE", target(KEYS, key=f"apikey:{SECRET}"))
        self.assertEqual((answer.status, answer.json["reset"]), (200, 1))
        self.assertEqual(service.check("api", permits=0, apiKey=SECRET).json["remaining"], 5)
        top = service.admin("GET", "/admin/v1/top?by=busy&n=100")
        self.assertIn(f"apikey#{HASH}", {entry["key"] for entry in top.json["keys"]})
        return [*shown, answer.body.decode(), top.body.decode(),
                service.admin("GET", "/admin/v1/status").body.decode(),
                service.get("/metrics").body.decode(), service.log(), service.output()]

    def assert_hidden(self, texts, *others):
        for text in texts:
            self.assertNotIn(SECRET, text)
            self.assertNotIn(VIP, text)
        # They looked at the right thing.
        self.assertTrue(any(HASH in text for text in [*texts, *others]))


class InRedis(SecretsTest):
    def test_no_key_is_in_clear(self):
        redis = self.redis()
        monitor = Monitor(redis)
        self.addCleanup(monitor.remove)
        services = [self.start_sluice(*redis.patient_store()) for _ in range(2)]
        texts = self.ask_everywhere(services)
        held = redis.cli("keys", "*")
        self.assertIn(f"sluice:{{apikey%23{HASH}}}:api/keys/k", held.split())
        texts += [held, *self.look_and_reset(services[0])]
        texts += [services[1].log(), monitor.told()]
        self.assert_hidden(texts)

    def test_an_override_by_hash_counts(self):
        redis = self.redis()
        service = self.start_sluice(*redis.patient_store())
        self.assertEqual(service.check("api", apiKey=VIP).json["remaining"], 49)
        self.assertEqual(service.check("api", apiKey=SECRET).json["remaining"], 4)

    def test_purge_finds_them(self):
        redis = self.redis()
        service = self.start_sluice(*redis.patient_store())

        def purge(match):
            done = support.sluice("purge", "--store", redis.patient_uri, "--match", match)
            return done.returncode, done.stdout + done.stderr

        for key in (SECRET, "other", "third"):
            service.check("api", apiKey=key)
        self.assertEqual(purge(f"apikey:{SECRET}"), (0, "removed 1 states\n"))
        self.assertEqual(purge(f"apikey:{SECRET}"), (0, "removed 0 states\n"))
        code, said = purge("apikey:ot*")
        self.assertNotEqual(code, 0)
        self.assertIn("stored as hashes; expected apikey:* or one of them", said)
        self.assertEqual(purge("apikey:*"), (0, "removed 2 states\n"))


class InMemory(SecretsTest):
    def test_no_key_is_in_clear(self):
        folder = self.folder()
        service = self.start_sluice("--snapshot", folder / "state")
        texts = self.ask_everywhere([service]) + self.look_and_reset(service)
        service.check("api", apiKey=SECRET)
        self.assertEqual(service.stop(), 0)
        texts.append(service.log())
        self.assert_hidden(texts)
        held = [pathlib.Path(folder / name).read_bytes() for name in os.listdir(str(folder))]
        self.assertTrue(any(held))
        for content in held:
            self.assertNotIn(SECRET.encode(), content)


if __name__ == "__main__":
    support.main()
