# SPDX-License-Identifier: Apache-2.0
"""`sluice check`, `purge` and `replay --store` against a real redis-server.

Usage: redis_cli_test.py PROGRAM
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = sys.argv[1]
LIMIT = "algorithm=fixed_window,limit=2,window=1d"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def sluice(*arguments, stdin=""):
    return subprocess.run([PROGRAM, *arguments], input=stdin, capture_output=True, text=True,
                          timeout=60, check=False)


class RedisCli(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.port = free_port()
        cls.server = subprocess.Popen(
            ["redis-server", "--port", str(cls.port), "--bind", "127.0.0.1", "--save", "",
             "--dir", cls.folder.name, "--requirepass", "s3cret"],
            stdout=subprocess.DEVNULL)
        cls.uri = f"redis://:s3cret@127.0.0.1:{cls.port}"
        for _ in range(500):
            if cls.redis("ping").strip() == "PONG":
                break
            time.sleep(0.01)

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.server.wait()
        cls.folder.cleanup()

    @classmethod
    def redis(cls, *command):
        return subprocess.run(["redis-cli", "-p", str(cls.port), "-a", "s3cret",
                               "--no-auth-warning", *command],
                              capture_output=True, text=True, check=False).stdout

    def setUp(self):
        self.redis("flushall")

    def check(self, *arguments, key="alice"):
        return sluice("check", "--store", self.uri, "--limit", LIMIT, "--key", key, *arguments)

    def test_check_says_allowed_denied_and_error_by_its_exit_status(self):
        first = self.check()
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertRegex(first.stdout, r"^allowed, 1 of 2 left, whole in ")
        self.assertEqual(self.check().returncode, 0)
        denied = self.check()
        self.assertEqual(denied.returncode, 1)
        self.assertRegex(denied.stdout, r"^denied, 0 of 2 left, retry in ")
        self.assertEqual(self.check(key="bob").returncode, 0)
        too_much = self.check("--cost", "3")
        self.assertEqual(too_much.returncode, 2)
        self.assertIn("COST_EXCEEDS_LIMIT", too_much.stderr)
        self.assertEqual(too_much.stdout, "")

    def test_check_prints_json(self):
        decision = json.loads(self.check("--json").stdout)
        self.assertEqual(decision["allowed"], True)
        self.assertEqual(decision["limit"], 2)
        self.assertEqual(decision["remaining"], 1)
        self.assertEqual(decision["retry_after_us"], 0)
        self.assertGreater(decision["reset_after_us"], 0)

    def test_check_peeks_with_cost_zero(self):
        for _ in range(3):
            self.assertIn("2 of 2 left", self.check("--cost", "0").stdout)
        self.assertEqual(self.redis("dbsize").strip(), "0")

    def test_errors_never_show_the_password(self):
        for uri in (f"redis://:wr0ng@127.0.0.1:{self.port}", "redis://:wr0ng@127.0.0.1:1",
                    "redis://:wr0ng@nosuchhost.invalid", "redis://:wr0ng@host:99999",
                    "redis://:wr0ng@127.0.0.1/?nonsense=1"):
            done = sluice("check", "--store", uri, "--limit", LIMIT, "--key", "k")
            self.assertEqual(done.returncode, 2, uri)
            self.assertNotEqual(done.stderr, "")
            self.assertNotIn("wr0ng", done.stdout + done.stderr)

    def test_purge_removes_what_matches(self):
        for key in ("user:1", "user:2", "ip:1"):
            self.check(key=key)
        self.redis("set", "unrelated", "1")
        dry = sluice("purge", "--store", self.uri, "--match", "user:*", "--dry-run")
        self.assertEqual(dry.stdout, "would remove 2 states\n")
        self.assertEqual(self.redis("dbsize").strip(), "4")
        done = sluice("purge", "--store", self.uri, "--match", "user:*")
        self.assertEqual((done.returncode, done.stdout), (0, "removed 2 states\n"))
        self.assertEqual(self.redis("dbsize").strip(), "2")

    def test_replay_decides_as_on_memory_and_leaves_nothing_behind(self):
        lines = "".join(f"{1_700_000_000_000_000 + i * 250_000},k{i % 7},{i % 3}\n"
                        for i in range(5000))
        for limit in ("algorithm=token_bucket,capacity=5,refill=1,period=1s",
                      "algorithm=sliding_window,limit=5,window=9s", "limit=5,window=7s"):
            arguments = ("replay", "--decisions", "--limit", limit,
                         "--limit", "algorithm=leaky_bucket,capacity=9,leak=1,period=2s")
            memory = sluice(*arguments, stdin=lines)
            redis = sluice(*arguments, "--store", self.uri, stdin=lines)
            self.assertEqual(redis.returncode, 0, redis.stderr)
            self.assertEqual(redis.stdout, memory.stdout)
        self.assertEqual(self.redis("dbsize").strip(), "0")

    def test_replay_stops_at_an_outage_with_nothing_printed(self):
        done = sluice("replay", "--decisions", "--skip-bad", "--limit", LIMIT,
                      "--store", "redis://127.0.0.1:1", stdin="1,a\n")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("UNAVAILABLE", done.stderr)

    def test_bad_flags_are_refused(self):
        for arguments in (("check",), ("purge",), ("check", "--store", "nonsense", "--limit", LIMIT,
                                                   "--key", "k"),
                          ("purge", "--store", "memory", "--match", "*"),
                          ("check", "--store", self.uri, "--limit", "x", "--key", "k"),
                          ("check", "--store", self.uri, "--limit", LIMIT, "--key", "")):
            done = sluice(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertNotEqual(done.stderr, "")


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    unittest.main(argv=[sys.argv[0]])
