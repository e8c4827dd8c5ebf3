# SPDX-License-Identifier: Apache-2.0
"""Rules that change while the service runs: how changes arrive, what they preserve, and that nobody
is left without an answer or sees a half-made change.

Usage: service_reload_test.py PROGRAM
"""

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading

import support
from support import AGES, Client, eventually, eventually_get, target

# So long that only announced changes arrive within a test's patience.
NO_POLLING = ("--rules-poll-interval", "1h")


def band(limit, label="b"):
    return f"{{label: {label}, algorithm: FIXED_WINDOW, limit: {limit}, window: {AGES}}}"


def rules(limit, identifier="api", rule="r", scope="PER_IP"):
    return f"""ruleSets:
  - id: {identifier}
    rules:
      - {{id: {rule}, scope: {scope}, bands: [{band(limit)}]}}
"""


class ReloadTest(support.ServiceTest):
    def limit(self, service, rule_set="api"):
        answer = service.check(rule_set, permits=0, ip="192.0.2.99")
        return answer.json["limit"] if answer.status == 200 else answer.status

    def wait_for_limit(self, service, limit, rule_set="api"):
        eventually(lambda: self.limit(service, rule_set) == limit, f"the limit is {limit}")

    def allowed(self, service, count, ip="192.0.2.1"):
        return sum(service.check("api", ip=ip).status == 200 for _ in range(count))


class BrokenFiles(ReloadTest):
    def assert_state(self, service, successful):
        """In metrics, /health and the admin API alike."""
        health = eventually_get(lambda: service.get("/health").json,
                                lambda health: ("reload" not in health) == successful,
                                f"a reload is told of: {not successful}")
        self.assertEqual(health["status"], "UP" if successful else "DEGRADED")
        self.assertEqual(service.get("/health/ready").status, 200)
        self.assertEqual(service.metric("sluice_last_reload_successful"), int(successful))
        reload = service.admin("GET", "/admin/v1/status").json["reload"]
        self.assertEqual(reload["status"], health["status"])
        self.assertEqual(reload["problems"] == [], successful)
        at = service.metric("sluice_last_reload_success_timestamp_seconds")
        self.assertEqual(reload["lastSuccessSeconds"], int(at))
        return at, reload["problems"], json.dumps(health)

    def test_they_are_told_of_until_they_are_mended(self):
        folder = self.folder()
        path = folder.write("rules.yaml", rules(3))
        service = self.start("--rules", path, *NO_POLLING)
        started, _, _ = self.assert_state(service, True)

        folder.replace("rules.yaml", "ruleSets: s3cret\n")
        at, problems, health = self.assert_state(service, False)
        self.assertEqual(at, started)
        self.assertEqual(len(problems), 1)
        self.assertIn(path, problems[0])
        # Not everybody may see where files are and what they contain.
        self.assertNotIn(path, health)
        self.assertNotIn("s3cret", health)
        # Changes through the admin API meanwhile do not fix it.
        document = {"id": "managed", "rules": []}
        self.assertEqual(service.admin("PUT", "/admin/v1/rule-sets/managed", document).status, 201)
        self.assert_state(service, False)

        folder.replace("rules.yaml", rules(5))
        mended, _, _ = self.assert_state(service, True)
        self.assertGreater(mended, started)
        self.wait_for_limit(service, 5)

        # Gone, and back as it was.
        os.rename(path, folder / "aside")
        self.assert_state(service, False)
        os.rename(folder / "aside", path)
        self.assert_state(service, True)

    def test_tokens_as_well(self):
        folder = self.folder()
        tokens = folder.write("tokens", "t0ken\n")
        service = self.start("--resp", "127.0.0.1:0", "--resp-token-file", tokens, *NO_POLLING)
        self.assert_state(service, True)
        folder.replace("tokens", "\x01 s3cret\n")
        self.assertEqual(service.admin("POST", "/admin/v1/reload").status, 400)
        _, problems, _ = self.assert_state(service, False)
        self.assertNotIn("s3cret", str(problems))
        folder.replace("tokens", "t0ken\n")
        self.assertEqual(service.admin("POST", "/admin/v1/reload").status, 200)
        self.assert_state(service, True)


class HowChangesArrive(ReloadTest):
    def test_a_file_that_is_written_in_place(self):
        folder = self.folder()
        service = self.start("--rules", folder.write("rules.yaml", rules(3)), *NO_POLLING)
        for limit in (5, 7):
            folder.write("rules.yaml", rules(limit))
            self.wait_for_limit(service, limit)
        self.assertGreaterEqual(service.generation(), 3)

    def test_a_file_that_is_replaced(self):
        folder = self.folder()
        service = self.start("--rules", folder.write("rules.yaml", rules(3)), *NO_POLLING)
        for limit in (5, 7, 9):
            folder.replace("rules.yaml", rules(limit))
            self.wait_for_limit(service, limit)

    def test_a_file_that_is_gone_for_a_while(self):
        folder = self.folder()
        service = self.start("--rules", folder.write("rules.yaml", rules(3)), *NO_POLLING)
        os.remove(folder / "rules.yaml")
        eventually(lambda: service.log_lines("rules cannot be read; the old ones stay"),
                   "the log says so")
        self.assertEqual(self.limit(service), 3)
        folder.write("rules.yaml", rules(5))
        self.wait_for_limit(service, 5)

    def test_as_kubernetes_mounts_config_maps(self):
        folder = self.folder()

        def publish(version, limit):
            # A new folder, then one rename of the link that all names go through.
            folder.write(f"..{version}/rules.yaml", rules(limit))
            os.symlink(f"..{version}", folder / "..data_tmp")
            os.rename(folder / "..data_tmp", folder / "..data")

        publish("v1", 3)
        os.symlink("..data/rules.yaml", folder / "rules.yaml")
        by_file = self.start("--rules", folder / "rules.yaml", *NO_POLLING)
        by_folder = self.start("--rules", str(folder), *NO_POLLING)
        for version, limit in (("v2", 5), ("v3", 7)):
            publish(version, limit)
            self.wait_for_limit(by_file, limit)
            self.wait_for_limit(by_folder, limit)

    def test_a_folder_of_files(self):
        folder = self.folder()
        folder.write("one.yaml", rules(1, "one"))
        folder.write("two.yml", rules(2, "two"))
        folder.write("three.json", '{"ruleSets": [{"id": "three", "rules": []}]}')
        folder.write(".hidden.yaml", "not: [valid")
        folder.write("notes.txt", "not: [valid")
        service = self.start("--rules", str(folder), *NO_POLLING)
        self.assertEqual([self.limit(service, name) for name in ("one", "two", "four")],
                         [1, 2, 404])
        self.assertEqual(service.check("three").status, 200)
        folder.write("four.yaml", rules(4, "four"))
        self.wait_for_limit(service, 4, "four")
        os.remove(folder / "one.yaml")
        self.wait_for_limit(service, 404, "one")
        # One id in two files is an error that names both places.
        folder.write("five.yaml", rules(5, "two"))
        eventually(lambda: service.log_lines("rules are not valid", "two"), "the log says so")
        self.assertEqual(self.limit(service, "two"), 2)

    def test_what_is_gone_is_told(self):
        folder = self.folder()
        folder.write("rules/one.yaml", rules(1, "one"))
        folder.write("rules/two.yaml", rules(2, "two"))
        domain = folder.write("rls/edge.yaml", "domain: edge\ndescriptors: []\n")
        service = self.start("--rules", folder / "rules", "--rls-config", folder / "rls",
                             *NO_POLLING)
        os.remove(folder / "rules/one.yaml")
        eventually(lambda: service.log_lines("WARN", "rule sets are gone", "count=1", "names=one"),
                   "the log says so")
        # An emptied file is not a deleted one.
        folder.replace("rules/two.yaml", "")
        folder.replace("rls/edge.yaml", "")
        eventually(lambda: service.log_lines("ERROR", "not valid", "edge.yaml:1:1"), "it is refused")
        self.assertEqual(self.limit(service, "two"), 2)
        folder.replace("rules/two.yaml", rules(2, "two"))
        os.remove(domain)
        eventually(lambda: service.log_lines("WARN", "domains are gone", "names=edge"),
                   "the log says so")

    def test_a_pipe_among_the_files_holds_nothing_up(self):
        folder = self.folder()
        folder.write("rules.yaml", rules(3))
        service = self.start("--rules", str(folder), *NO_POLLING)
        os.mkfifo(folder / "pipe.yaml")
        eventually(lambda: service.log_lines("ERROR", "rules cannot be read; the old ones stay",
                                             "pipe.yaml: expected a regular file"), "it is told")
        os.remove(folder / "pipe.yaml")
        folder.replace("rules.yaml", rules(5))
        self.wait_for_limit(service, 5)

    def test_the_configuration_file(self):
        folder = self.folder()

        def config(limit, default):
            return f"defaults: {{FIXED_WINDOW: 'limit={default},window={AGES}'}}\n{rules(limit)}"

        service = self.start("--config", folder.write("sluice.yaml", config(3, 4)), *NO_POLLING)
        check = target("/api/v1/rate-limit/check", key="k", algorithm="FIXED_WINDOW")
        self.assertEqual(service.get(check).json["remaining"], 3)
        folder.replace("sluice.yaml", config(5, 6))
        self.wait_for_limit(service, 5)
        # What was used stays used.
        self.assertEqual(service.get(check).json["remaining"], 4)

    def test_sighup(self):
        folder = self.folder()
        service = self.start("--rules", folder.write("rules.yaml", rules(3)), *NO_POLLING)
        before = service.generation()
        service.send(signal.SIGHUP)
        eventually(lambda: service.generation() == before + 1, "another generation")
        self.assertTrue(service.running())

    def test_polling_finds_what_no_event_told(self):
        folder, elsewhere = self.folder(), self.folder()
        # The watched folder has a link to a file in a folder that is not watched.
        os.symlink(elsewhere.write("real.yaml", rules(3)), folder / "rules.yaml")
        service = self.start("--rules", folder / "rules.yaml", "--rules-poll-interval", "100ms")
        elsewhere.write("real.yaml", rules(5))
        self.wait_for_limit(service, 5)

    def test_what_did_not_change_is_not_loaded_again(self):
        folder = self.folder()
        service = self.start("--rules", folder.write("rules.yaml", rules(3)),
                             "--rules-poll-interval", "20ms")
        # A poll that found a half-written file would load the complete one again.
        folder.replace("rules.yaml", rules(3))
        folder.write("other.txt", "x")
        folder.replace("rules.yaml", rules(4))
        self.wait_for_limit(service, 4)
        self.assertEqual(service.generation(), 2)


class InvalidChanges(ReloadTest):
    def test_the_old_rules_stay(self):
        folder = self.folder()
        service = self.start("--rules", folder.write("rules.yaml", rules(3)), *NO_POLLING)
        self.assertEqual(self.allowed(service, 1), 1)
        invalid = 0
        for bad in ("ruleSets: [", "ruleSets: 7", rules(0), rules(-1),
                    rules(3).replace("PER_IP", "PER_PLANET"), "store: memory\n" + rules(9),
                    "\x00", rules(3) + "ruleSets: []\n", "", "ruleSets:\n", "{}"):
            with self.subTest(bad):
                folder.replace("rules.yaml", bad)
                invalid += 1
                eventually(lambda n=invalid: service.metric("sluice_reloads_total",
                                                            result="invalid") == n,
                           "the reload is counted")
                self.assertEqual(self.limit(service), 3)
                self.assertEqual(service.generation(), 1)
        service.logged("ERROR", "rules are not valid; the old ones stay", "rules.yaml:",
                       count=invalid)
        self.assertEqual(service.get("/health/ready").status, 200)
        # What was used is still used, and good rules are taken again.
        self.assertEqual(self.allowed(service, 5), 2)
        folder.replace("rules.yaml", rules(4))
        self.wait_for_limit(service, 4)
        # Counted once they are in force: a request may meet them before that.
        eventually(lambda: service.metric("sluice_rules_generation") == 2, "it is counted")
        self.assertEqual(service.metric("sluice_reloads_total", result="ok"), 2)

    def test_said_once_and_not_with_every_poll(self):
        folder = self.folder()
        service = self.start("--rules", folder.write("rules.yaml", rules(3)),
                             "--rules-poll-interval", "10ms")
        folder.replace("rules.yaml", "ruleSets: 7")
        eventually(lambda: service.metric("sluice_reloads_total", result="invalid") == 1, "counted")
        # Polls go on meanwhile: the service finds a good file without an event.
        folder.replace("rules.yaml", rules(4))
        self.wait_for_limit(service, 4)
        self.assertEqual(service.metric("sluice_reloads_total", result="invalid"), 1)
        self.assertEqual(len(service.logged("rules are not valid")), 1)

    def test_asked_for_by_an_operator(self):
        folder = self.folder()
        service = self.start("--rules", folder.write("rules.yaml", rules(3)), *NO_POLLING)
        folder.replace("rules.yaml", "ruleSets:\n  - id: 'a b'\n    colour: red\n")
        for _ in range(2):
            answer = service.admin("POST", "/admin/v1/reload")
            self.assertEqual(answer.status, 400)
            problems = answer.json["error"]["problems"]
            self.assertEqual({problem["line"] for problem in problems}, {2, 3})
            self.assertEqual({problem["file"] for problem in problems}, {folder / "rules.yaml"})
        os.remove(folder / "rules.yaml")
        answer = service.admin("POST", "/admin/v1/reload")
        self.assert_error(answer, 400, "INVALID_INPUT")
        self.assertIn("rules.yaml", answer.json["error"]["problems"][0]["message"])
        self.assertEqual(self.limit(service), 3)


class WhatIsKept(ReloadTest):
    def test_unchanged_limits_keep_their_state(self):
        folder = self.folder()
        service = self.start("--rules", folder.write("rules.yaml", rules(5)), *NO_POLLING)
        self.assertEqual(self.allowed(service, 3), 3)
        folder.replace("rules.yaml", rules(5) + "      - {id: more, scope: GLOBAL}\n")
        eventually(lambda: service.generation() == 2, "the rules changed")
        self.assertEqual(self.allowed(service, 5), 2)

    def test_a_raised_limit_takes_effect_at_once(self):
        folder = self.folder()
        service = self.start("--rules", folder.write("rules.yaml", rules(5)), *NO_POLLING)
        self.assertEqual(self.allowed(service, 10), 5)
        folder.replace("rules.yaml", rules(8))
        self.wait_for_limit(service, 8)
        self.assertEqual(self.allowed(service, 10), 3)

    def test_a_lowered_limit_never_grants_more(self):
        folder = self.folder()
        service = self.start("--rules", folder.write("rules.yaml", rules(5)), *NO_POLLING)
        self.assertEqual(self.allowed(service, 4), 4)
        folder.replace("rules.yaml", rules(2))
        self.wait_for_limit(service, 2)
        self.assertEqual(self.allowed(service, 5), 0)
        self.assertEqual(self.allowed(service, 5, ip="192.0.2.2"), 2)
        # Nor does changing back and forth.
        folder.replace("rules.yaml", rules(5))
        self.wait_for_limit(service, 5)
        self.assertEqual(self.allowed(service, 5), 1)
        self.assertEqual(self.allowed(service, 9, ip="192.0.2.2"), 3)

    def test_every_algorithm_keeps_what_was_used(self):
        folder = self.folder()

        def all_of(limit):
            bands = "\n".join(
                f"      - {{id: {name.lower()}, scope: PER_IP, match: {{paths: /{name}}}, "
                f"bands: [{{label: b, algorithm: {name}, {fields}}}]}}"
                for name, fields in (
                    ("TOKEN_BUCKET", f"capacity: {limit}, refill: 1, period: {AGES}"),
                    ("LEAKY_BUCKET", f"capacity: {limit}, leak: 1, period: {AGES}"),
                    ("GCRA", f"burst: {limit - 1}, count: 1, period: {AGES}"),
                    ("FIXED_WINDOW", f"limit: {limit}, window: {AGES}"),
                    ("SLIDING_WINDOW", f"limit: {limit}, window: {AGES}"),
                    ("SLIDING_WINDOW_COUNTER", f"limit: {limit}, window: {AGES}")))
            return f"ruleSets:\n  - id: api\n    rules:\n{bands}\n"

        names = ("TOKEN_BUCKET", "LEAKY_BUCKET", "GCRA", "FIXED_WINDOW", "SLIDING_WINDOW",
                 "SLIDING_WINDOW_COUNTER")
        service = self.start("--rules", folder.write("rules.yaml", all_of(5)), *NO_POLLING)

        def left(permits):
            return {name: service.check("api", permits, ip="192.0.2.1", path=f"/{name}")
                          .json["remaining"] for name in names}

        self.assertEqual(left(4), dict.fromkeys(names, 1))
        for generation, (limit, expected) in enumerate(((8, 4), (2, 0), (6, 2)), 2):
            folder.replace("rules.yaml", all_of(limit))
            eventually(lambda n=generation: service.generation() == n, "the rules changed")
            self.assertEqual(left(0), dict.fromkeys(names, expected), limit)

    def test_state_in_redis_is_kept_as_well(self):
        folder, redis = self.folder(), self.redis()
        service = self.start("--rules", folder.write("rules.yaml", rules(5)),
                             *redis.patient_store(), "--deny-cache-entries", "0", *NO_POLLING)
        self.assertEqual(self.allowed(service, 4), 4)
        folder.replace("rules.yaml", rules(2))
        eventually(lambda: service.generation() == 2, "the rules changed")
        self.assertEqual(self.allowed(service, 2), 0)
        folder.replace("rules.yaml", rules(7))
        eventually(lambda: service.generation() == 3, "the rules changed")
        self.assertEqual(self.allowed(service, 9), 3)


class TimeZones(ReloadTest):
    """The system's data is read again, as after an update."""

    DAY = 86_400
    RULES = """ruleSets:
  - id: api
    rules:
      - id: r
        scope: GLOBAL
        bands: [{algorithm: CALENDAR, limit: 5, every: day, zone: Europe/Berlin}]
"""

    def put(self, zones, name):
        os.makedirs(zones / "Europe", exist_ok=True)
        shutil.copyfile(f"/usr/share/zoneinfo/{name}", zones / "new")
        os.replace(zones / "new", zones / "Europe/Berlin")

    def day_ends(self, service):
        """In seconds of a day in UTC."""
        answer = service.check("api", permits=0)
        return int(answer.header("X-RateLimit-Reset")) % self.DAY

    def test_new_data_is_in_use_after_a_reload(self):
        folder = self.folder()
        self.put(folder, "Etc/UTC")
        service = self.start("--rules", folder.write("rules.yaml", self.RULES), *NO_POLLING,
                             env={"TZDIR": str(folder)})
        self.assertEqual(self.day_ends(service), 0)
        self.put(folder, "Asia/Kolkata")
        self.assertEqual(self.day_ends(service), 0)
        self.assertEqual(service.admin("POST", "/admin/v1/reload").status, 200)
        self.assertEqual(self.day_ends(service), self.DAY - 19_800)
        service.logged("time zones have changed")

        # What cannot be used is told, and the zone stays as it was.
        folder.write("Europe/Berlin", "nonsense")
        answer = service.admin("POST", "/admin/v1/reload")
        self.assertEqual(answer.status, 400)
        self.assertIn("Europe/Berlin stays as it was", answer.json["error"]["problems"][0]["message"])
        self.assertEqual(self.day_ends(service), self.DAY - 19_800)
        self.assertEqual(service.metric("sluice_last_reload_successful"), 0)
        self.put(folder, "Etc/UTC")
        service.send(signal.SIGHUP)
        eventually(lambda: self.day_ends(service) == 0, "the zone is UTC again")

    def test_a_zone_that_does_not_exist_names_what_comes_close(self):
        folder = self.folder()
        path = folder.write("rules.yaml", self.RULES.replace("Europe/Berlin", "Europe/Berln"))
        done = support.sluice("validate", path)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("did you mean Europe/Berlin?", done.stdout + done.stderr)


class UnderLoad(ReloadTest):
    GENERATIONS = 40
    THREADS = 6

    def generation(self, number):
        """Rules whose every name and number identifies their generation."""
        limit = 1_000_000 + number
        return f"""ruleSets:
  - id: api
    rules:
      - {{id: first-{number}, scope: PER_IP, bands: [{band(limit, f'a{number}')}]}}
      - {{id: second-{number}, scope: GLOBAL, bands: [{band(limit, f'b{number}')},
                                                    {band(limit, f'c{number}')}]}}
"""

    def assert_whole(self, answer):
        self.assertEqual(answer.status, 200)
        document = answer.json
        number = document["generation"]
        first, second = document["rules"]
        self.assertEqual((first["rule"], second["rule"]), (f"first-{number}", f"second-{number}"))
        self.assertEqual([band["label"] for band in first["bands"] + second["bands"]],
                         [f"a{number}", f"b{number}", f"c{number}"])
        self.assertEqual({band["limit"] for band in first["bands"] + second["bands"]},
                         {1_000_000 + number})
        return number

    def test_every_answer_is_of_one_generation_and_none_is_missing(self):
        folder = self.folder()
        service = self.start("--rules", folder.write("rules.yaml", self.generation(1)),
                             *NO_POLLING)
        over = threading.Event()
        seen = [set() for _ in range(self.THREADS)]
        failures = []

        def hammer(thread):
            # One connection for all: if the service dropped it, this would fail.
            client = Client(service.port, service.description)
            try:
                while not over.is_set():
                    answer = client.request("POST", "/api/v1/check",
                                            {"ruleSet": "api", "context": {"ip": "192.0.2.1"}})
                    number = self.assert_whole(answer)
                    self.assertGreaterEqual(number, max(seen[thread], default=1))
                    seen[thread].add(number)
            except BaseException as error:  # pylint: disable=broad-except
                failures.append(error)
            finally:
                client.close()

        threads = [threading.Thread(target=hammer, args=(number,))
                   for number in range(self.THREADS)]
        for thread in threads:
            thread.start()
        try:
            for number in range(2, self.GENERATIONS + 1):
                folder.replace("rules.yaml", self.generation(number))
                # There is load during every change.
                eventually(lambda n=number: failures or any(n in numbers for numbers in seen),
                           f"answers of generation {number}")
        finally:
            over.set()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]
        # Nothing charged under one generation counts under another: all names differ.
        self.assertEqual(service.metric("sluice_reloads_total", result="invalid"), 0)

    def test_batches_are_of_one_generation(self):
        folder = self.folder()
        service = self.start("--rules", folder.write("rules.yaml", self.generation(1)),
                             *NO_POLLING)
        checks = {"checks": [{"ruleSet": "api", "context": {"ip": "192.0.2.1"}}] * 50}
        for number in range(2, 12):
            folder.replace("rules.yaml", self.generation(number))
            while True:
                results = service.request("POST", "/api/v1/check/batch", checks).json["results"]
                generations = {result["generation"] for result in results}
                self.assertEqual(len(generations), 1)
                if generations == {number}:
                    break


class Certificates(support.ServiceTest):
    """Renewed certificates are for new connections; open ones stay open."""

    DOORS = ("http", "resp", "grpc")

    def setUp(self):
        self.files = self.folder()
        support.make_certificate(self.files, "served")
        flags = []
        for door in self.DOORS:
            flags += [f"--{door}-tls-certificate", self.files / "served.pem",
                      f"--{door}-tls-key", self.files / "served.key"]
        self.service = support.Service("--resp", "127.0.0.1:0", "--grpc", "127.0.0.1:0", *flags,
                                       "--log-format", "json", wait=False)
        self.addCleanup(self.service.remove)
        eventually(lambda: self.service.log_lines("serving"), "it serves")
        self.ports = self.service.announced()

    def connect(self, door, trusted):
        """A connection whose certificate must be the trusted one."""
        context = ssl.create_default_context(cafile=trusted)
        if door == "grpc":
            context.set_alpn_protocols(["h2"])
        plain = socket.create_connection(("127.0.0.1", self.ports[door]), support.PATIENCE)
        self.addCleanup(plain.close)
        secure = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self.addCleanup(secure.close)
        return secure

    def assert_shows(self, name):
        for door in self.DOORS:
            self.connect(door, self.files / name)

    def converse(self, door, connection):
        """Asks something that only a working connection answers."""
        if door == "http":
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            expected = b'"status":"UP"'
        elif door == "resp":
            connection.sendall(b"PING\r\n")
            expected = b"+PONG\r\n"
        else:
            expected = b"conversed"[:8]
            connection.sendall(b"\0\0\x08\x06\0\0\0\0\0" + expected)  # HTTP/2: PING.
        received = b""
        while expected not in received:
            part = connection.recv(65536)
            self.assertTrue(part, f"{door}: the connection was closed after {received!r}")
            received += part

    def reload_by_signal(self):
        lines = len(self.service.log_lines("rules in force"))
        self.service.send(signal.SIGHUP)
        eventually(lambda: len(self.service.log_lines("rules in force")) > lines, "it reloads")

    def samples(self):
        # The metrics are behind TLS, too: read them as a client would.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", self.ports["http"], context=context,
                                                 timeout=support.PATIENCE)
        self.addCleanup(connection.close)
        connection.request("GET", "/metrics")
        return support.parse_metrics(connection.getresponse().read().decode())

    def counts(self):
        samples = self.samples()
        return [samples["sluice_certificate_reloads_total", frozenset({("result", result)})]
                for result in ("ok", "invalid")]

    def assert_expiry_is_that_of(self, name):
        shown = subprocess.run(["openssl", "x509", "-enddate", "-noout", "-in", self.files / name],
                               check=True, capture_output=True, text=True).stdout
        expires = ssl.cert_time_to_seconds(shown.strip().removeprefix("notAfter="))
        told = {dict(labels)["door"]: value for (metric, labels), value in self.samples().items()
                if metric == "sluice_certificate_expires_seconds"}
        self.assertEqual(told, dict.fromkeys(self.DOORS, expires))

    def test_are_renewed_while_connections_stay(self):
        open_before = {door: self.connect(door, self.files / "served.pem") for door in self.DOORS}
        open_before["grpc"].sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        self.assert_expiry_is_that_of("served.pem")
        os.rename(self.files / "served.pem", self.files / "old.pem")
        support.make_certificate(self.files, "served", days=3)
        self.assert_shows("old.pem")
        self.assert_expiry_is_that_of("old.pem")
        self.reload_by_signal()
        eventually(lambda: len(self.service.log_lines("certificate in use")) == 3, "all doors did")
        self.assert_shows("served.pem")
        self.assert_expiry_is_that_of("served.pem")
        for door, connection in open_before.items():
            self.converse(door, connection)
        self.assertEqual(self.counts(), [3, 0])

    def test_that_are_no_good_leave_the_old_ones(self):
        for content in ("", "-----BEGIN CERTIFICATE-----\nnot one\n-----END CERTIFICATE-----\n",
                        None):
            os.rename(self.files / "served.pem", self.files / "good.pem")
            if content is not None:
                self.files.write("served.pem", content)
            answer = self.service.admin_at(self.ports["admin"], "POST", "/admin/v1/reload")
            self.assertEqual(answer.status, 400)
            problems = answer.json["error"]["problems"]
            self.assertEqual([problem["file"] for problem in problems], list(self.DOORS))
            self.assertIn("served.pem", problems[0]["message"])
            self.assert_shows("good.pem")
            os.rename(self.files / "good.pem", self.files / "served.pem")
        self.assertEqual(len(self.service.logged("error", "the old one stays", count=9)), 9)
        self.assertEqual(self.counts(), [0, 9])
        answer = self.service.admin_at(self.ports["admin"], "POST", "/admin/v1/reload")
        self.assertEqual((answer.status, answer.json["generation"]), (200, 5))
        self.assertEqual(self.counts(), [3, 9])


if __name__ == "__main__":
    support.main()
