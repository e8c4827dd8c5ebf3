# SPDX-License-Identifier: Apache-2.0
"""`sluice check`, `purge` and `replay --store` against a real redis-server and a real Cluster.

Usage: redis_cli_test.py PROGRAM CLOCK_SHIFT
CLOCK_SHIFT is the library that sets the clock of a program an hour ahead.
"""

import json
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
import unittest

import support

sys.path.append(str(support.REPOSITORY / "tests" / "chaos"))
import proxy  # noqa: E402  pylint: disable=wrong-import-position

CLOCK_SHIFT = sys.argv[2]
LIMIT = "algorithm=fixed_window,limit=2,window=1d"


def documented_acl(user):
    """The permissions that the manual documents as sufficient for this user, whose password is
    `pw`."""
    manual = (support.REPOSITORY / "docs/reference/redis.md").read_text(encoding="utf-8")
    line = next(line for line in manual.splitlines() if line.startswith(f"ACL SETUSER {user} "))
    return line.replace(">PASSWORD", ">pw").split()


class RedisCli(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = support.Redis(password="s3cret")
        cls.addClassCleanup(cls.server.remove)
        cls.redis = cls.server.cli
        cls.port = cls.server.port
        cls.uri = cls.server.patient_uri

    def setUp(self):
        self.redis("flushall")

    def check(self, *arguments, key="alice"):
        return support.sluice("check", "--store", self.uri, "--limit", LIMIT, "--key", key, *arguments)

    def test_check_says_allowed_denied_and_error_by_its_exit_status(self):
        first = self.check()
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertRegex(first.stdout, r"^allowed, 1 of 2 left, full again in ")
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

    def test_check_says_which_of_several_limits_denied(self):
        wide = "algorithm=fixed_window,limit=9,window=1d"
        self.check("--cost", "2")
        several = self.check("--limit", wide)
        self.assertEqual(several.returncode, 1, several.stderr)
        overall, narrow, other = several.stdout.splitlines()
        self.assertRegex(overall, r"^denied, 0 of 2 left, retry in ")
        self.assertRegex(narrow, f"^  {LIMIT}: denied, 0 of 2 left, retry in ")
        self.assertRegex(other, f"^  {wide}: allowed, 9 of 9 left, full again in ")
        decision = json.loads(self.check("--limit", wide, "--json").stdout)
        self.assertEqual((decision["allowed"], decision["limit"]), (False, 2))
        self.assertEqual([(own["spec"], own["allowed"], own["limit"], own["remaining"])
                          for own in decision["limits"]],
                         [(LIMIT, False, 2, 0), (wide, True, 9, 9)])
        self.assertEqual(decision["limits"][0]["retry_after_us"], decision["retry_after_us"])
        self.assertEqual(decision["limits"][1]["retry_after_us"], 0)

    def test_check_peeks_with_cost_zero(self):
        for _ in range(3):
            self.assertIn("2 of 2 left", self.check("--cost", "0").stdout)
        self.assertEqual(self.redis("dbsize").strip(), "0")
        self.check("--cost", "2")
        empty = self.check("--cost", "0")
        self.assertEqual(empty.returncode, 0)
        self.assertRegex(empty.stdout, "^nothing charged; a request of 1: denied, 0 of 2 left, retry in ")

    def test_errors_never_show_the_password(self):
        for uri in (f"redis://:wr0ng@127.0.0.1:{self.port}", "redis://:wr0ng@127.0.0.1:1",
                    "redis://:wr0ng@nosuchhost.invalid", "redis://:wr0ng@host:99999",
                    "redis://:wr0ng@127.0.0.1/?nonsense=1"):
            done = support.sluice("check", "--store", uri, "--limit", LIMIT, "--key", "k")
            self.assertEqual(done.returncode, 2, uri)
            self.assertNotEqual(done.stderr, "")
            self.assertNotIn("wr0ng", done.stdout + done.stderr)
        # Nor do those of the command line itself.
        for arguments in (("check", "--stor", "redis://:wr0ng@h"), ("check", "redis://:wr0ng@h"),
                          ("serve", "--admin-tokn=wr0ng"), ("redis://:wr0ng@h",),
                          ("check", "--store", self.uri, "--key", "k", "--limit",
                           "redis://:wr0ng,wr0ng=wr0ng@h"),
                          ("check", "--store", self.uri, "--key", "k", "--limit",
                           "redis://:" + 20 * "wr0ng" + "@h"),
                          ("check", "--store", self.uri, "--key", "k", "--limit", LIMIT,
                           "--cost", "redis://:wr0ng@h"),
                          ("replay", "--limit", LIMIT, "redis://:wr0ng@h"),
                          ("replay", "--limit", LIMIT, "--format", "redis://:wr0ng@h"),
                          ("serve", "--threads", "redis://:" + 20 * "wr0ng" + "@h"),
                          ("serve", "--http", "redis-sentinel://h/m?sentinel_password=wr0ng"),
                          ("serve", "--config", "redis://:wr0ng@h")):
            done = support.sluice(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertNotIn("wr0ng", done.stdout + done.stderr)

    def test_a_pipe_in_the_place_of_a_certificate_is_not_waited_for(self):
        folder = support.Folder()
        self.addCleanup(folder.remove)
        os.mkfifo(folder / "ca.pem")
        done = support.sluice("check", "--store", f"rediss://127.0.0.1:{self.port}?ca={folder / 'ca.pem'}",
                              "--limit", LIMIT, "--key", "alice")
        self.assertEqual(done.returncode, 2)
        self.assertIn("ca.pem: expected a regular file", done.stderr)

    def test_passwords_are_covered_in_the_list_of_processes(self):
        with tempfile.TemporaryFile() as log:
            service = subprocess.Popen(
                [support.PROGRAM, "serve", "--http", "",
                 "--admin", f"127.0.0.1:{support.free_port()}",
                 "--admin-token", "wr0ng-token", "--resp-password=wr0ng-word",
                 "--store", f"redis://user:wr0ng@127.0.0.1:{self.port}/?prefix=shown"],
                stdout=log, stderr=log)
            try:
                shown = pathlib.Path(f"/proc/{service.pid}/cmdline")
                support.eventually(lambda: "*****" in shown.read_text(encoding="utf-8"),
                                   "secrets are covered")
                arguments = shown.read_text(encoding="utf-8")
            finally:
                service.kill()
                service.wait()
        self.assertNotIn("wr0ng", arguments)
        self.assertIn(f"@127.0.0.1:{self.port}/?prefix=shown", arguments)

    def test_the_store_may_come_from_the_environment(self):
        env = {"SLUICE_STORE": self.uri}
        done = support.sluice("check", "--limit", LIMIT, "--key", "k", env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = support.sluice("purge", "--match", "k", env=env)
        self.assertEqual((done.returncode, done.stdout), (0, "removed 1 states\n"))

    def test_several_addresses_with_mode_standalone_use_the_first_and_warn(self):
        uri = (f"redis://:s3cret@127.0.0.1:{self.port},127.0.0.1:1?mode=standalone"
               "&timeout=60s&connect_timeout=60s")
        done = support.sluice("check", "--store", uri, "--limit", LIMIT, "--key", "k")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("only the first of 2 addresses", done.stderr)

    def test_purge_removes_what_matches(self):
        for key in ("user:1", "user:2", "ip:1"):
            self.check(key=key)
        self.redis("set", "unrelated", "1")
        dry = support.sluice("purge", "--store", self.uri, "--match", "user:*", "--dry-run")
        self.assertEqual(dry.stdout, "would remove 2 states\n")
        self.assertEqual(self.redis("dbsize").strip(), "4")
        done = support.sluice("purge", "--store", self.uri, "--match", "user:*")
        self.assertEqual((done.returncode, done.stdout), (0, "removed 2 states\n"))
        self.assertEqual(self.redis("dbsize").strip(), "2")

    def test_purge_matches_keys_and_not_what_is_stored_for_them(self):
        for key in ("{", "José", "x" * 200):
            self.check(key=key)
        for pattern, count in (("*b", 0), ("*9", 0), ("*5*", 0), ("Jos?", 1), ("?", 1),
                               ("x" * 200, 1), ("*", 0)):
            for dry_run, said in (("--dry-run",), "would remove"), ((), "removed"):
                done = support.sluice("purge", "--store", self.uri, "--match", pattern, *dry_run)
                self.assertEqual(done.stdout, f"{said} {count} states\n", pattern)

    def test_purge_shows_its_progress_on_a_terminal(self):
        self.check(key="user:1")
        # Scanning is not writing; removing waits for longer than a command stays silent.
        self.redis("client", "pause", "60000", "write")
        self.addCleanup(self.redis, "client", "unpause")
        screen, terminal = pty.openpty()
        self.addCleanup(os.close, screen)
        # Open until everything is read: output is lost with the last writer.
        self.addCleanup(os.close, terminal)
        with subprocess.Popen([support.PROGRAM, "purge", "--store", self.uri, "--match", "user:*"],
                              stdout=subprocess.PIPE, stderr=terminal) as purge:
            try:
                support.eventually(lambda: re.search(" flags=b .* cmd=unlink ",
                                                     self.redis("client", "list")),
                                   "it removes, and waits")
                time.sleep(1.1)
                self.redis("client", "unpause")
                output, _ = purge.communicate(timeout=support.PATIENCE)
            finally:
                purge.kill()
        self.assertEqual((purge.returncode, output), (0, b"removed 1 states\n"))
        shown = b""
        while not shown.endswith(b"\x1b[K"):  # Drawn, and erased at the end.
            self.assertTrue(select.select([screen], [], [], support.PATIENCE)[0], shown)
            shown += os.read(screen, 4096)
        self.assertRegex(shown.decode(), r"purge: \[#+\] 100 %")

    def test_purge_says_why_it_cannot(self):
        wrong = self.uri.replace("s3cret", "wr0ng")
        for uri, why in (("redis://127.0.0.1:1", "UNAVAILABLE"), (wrong, "ACCESS_DENIED")):
            done = support.sluice("purge", "--store", uri, "--match", "*")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(why, done.stderr)

    def test_replay_decides_as_on_memory_and_leaves_nothing_behind(self):
        lines = "".join(f"{1_700_000_000_000_000 + i * 250_000},k{i % 7},{i % 3}\n"
                        for i in range(5000))
        for limit in ("algorithm=token_bucket,capacity=5,refill=1,period=1s",
                      "algorithm=sliding_window,limit=5,window=9s", "limit=5,window=7s"):
            arguments = ("replay", "--decisions", "--limit", limit,
                         "--limit", "algorithm=leaky_bucket,capacity=9,leak=1,period=2s")
            memory = support.sluice(*arguments, stdin=lines)
            redis = support.sluice(*arguments, "--store", self.uri, stdin=lines)
            self.assertEqual(redis.returncode, 0, redis.stderr)
            self.assertEqual(redis.stdout, memory.stdout)
        self.assertEqual(self.redis("dbsize").strip(), "0")

    def test_replay_takes_its_time_for_many_limits(self):
        lines = "".join(f"{1_700_000_000_000_000 + i * 250_000},k{i % 7}\n" for i in range(3000))
        limits = [argument for i in range(1, 31) for argument in
                  ("--limit", f"algorithm=sliding_window,limit={50 + i},window={i}00s")]
        memory = support.sluice("replay", "--json", *limits, stdin=lines)
        redis = support.sluice("replay", "--json", *limits, "--store", self.server.uri, stdin=lines)
        self.assertEqual(redis.returncode, 0, redis.stderr)
        self.assertEqual(redis.stdout, memory.stdout)

    def test_replay_reaches_a_redis_that_is_far_away(self):
        far = proxy.Proxy(self.port)
        self.addCleanup(far.remove)
        # Each has its own time: two at once, so that all of them take 4 s, or 12.
        lines = "".join(f"{1_700_000_000_000_000 + i},k\n" for i in range(400))
        arguments = ("replay", "--json", "--limit", LIMIT)
        memory = support.sluice(*arguments, stdin=lines)
        # Without a timeout there is time enough; a timeout applies to only a part of the lines.
        for delay, options in ((0.02, ""), (0.06, "?timeout=10s")):
            far.delay(delay)
            uri = f"redis://:s3cret@127.0.0.1:{far.port}{options}"
            start = time.monotonic()
            redis = support.sluice(*arguments, "--store", uri, stdin=lines)
            self.assertEqual(redis.returncode, 0, redis.stderr)
            self.assertEqual(redis.stdout, memory.stdout)
            self.assertGreater(time.monotonic() - start, 175 * delay, "else nothing is tested")

    def test_replay_keeps_to_the_timeout_of_the_uri(self):
        self.redis("client", "pause", "60000", "write")
        self.addCleanup(self.redis, "client", "unpause")
        done = support.sluice("replay", "--limit", LIMIT, "--store",
                              f"{self.server.uri}?timeout=2s", stdin="1,a\n")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("OUTCOME_UNKNOWN: no answer from Redis within 2000 ms", done.stderr)

    def test_replay_needs_no_more_than_the_documented_acl(self):
        self.assertEqual(self.redis(*documented_acl("sluice")), "OK\n")
        self.redis("acl", "log", "reset")
        self.check()
        for options in ("", "?prefix=sluice:" + "x" * 57):
            uri = f"redis://sluice:pw@127.0.0.1:{self.port}{options}"
            done = support.sluice("replay", "--limit", LIMIT, "--store", uri, stdin="1,alice\n" * 3)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"allowed +2 ")
        self.assertEqual(self.redis("dbsize").strip(), "1", "what others hold is untouched")
        self.assertEqual(self.redis("acl", "log").strip(), "", "and nothing else was tried")

    def test_replay_and_purge_leave_each_other_alone(self):
        self.check()
        with subprocess.Popen([support.PROGRAM, "replay", "--limit", LIMIT, "--store", self.uri],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as replay:
            replay.stdin.write("1,alice\n" * 50_000)  # More than it reads at once.
            replay.stdin.flush()
            support.eventually(lambda: self.redis("dbsize").strip() == "2", "the replay has begun")
            self.assertIn("sluice:replay:", self.redis("keys", "*"))
            done = support.sluice("purge", "--store", self.uri, "--match", "*")
            self.assertEqual(done.stdout, "removed 1 states\n")
            self.check()
            output, _ = replay.communicate()
        self.assertRegex(output, r"allowed +2 ")
        self.assertRegex(self.redis("keys", "*"), r"^sluice:\{alice\}:\S+\n$")

    def test_replay_stops_at_an_outage_with_nothing_printed(self):
        done = support.sluice("replay", "--decisions", "--skip-bad", "--limit", LIMIT,
                      "--store", "redis://127.0.0.1:1", stdin="1,a\n")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("UNAVAILABLE", done.stderr)

    def test_bad_flags_are_refused(self):
        for arguments in (("check",), ("purge",), ("check", "--store", "nonsense", "--limit", LIMIT,
                                                   "--key", "k"),
                          ("purge", "--store", "memory", "--match", "*"),
                          ("check", "--store", self.uri, "--limit", "x", "--key", "k"),
                          ("check", "--store", self.uri, "--limit", LIMIT, "--key", "")):
            done = support.sluice(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertNotEqual(done.stderr, "")


    def test_the_clock_of_a_client_does_not_matter(self):
        # Ignores that the sanitizer, if any, wants to be loaded first.
        ahead = {"LD_PRELOAD": CLOCK_SHIFT, "ASAN_OPTIONS": "verify_asan_link_order=0"}
        now = int(subprocess.run(["date", "+%s"], capture_output=True, text=True, check=True,
                                 env={**os.environ, **ahead}).stdout)
        self.assertAlmostEqual(now, time.time() + 3600, delta=60)
        for limit in ("algorithm=token_bucket,capacity=2,refill=1,period=1h",
                      "algorithm=sliding_window,limit=2,window=50m"):
            arguments = ("check", "--store", self.uri, "--limit", limit, "--key", "k")
            results = [support.sluice(*arguments, env=env) for env in (None, ahead, ahead, None)]
            self.assertEqual([done.returncode for done in results], [0, 0, 1, 1],
                             [done.stderr for done in results])


class ClusterCli(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = support.RedisCluster()
        cls.addClassCleanup(cls.cluster.remove)
        cls.uri = cls.cluster.patient_uri

    def sizes(self):
        return [int(node.cli("dbsize")) for node in self.cluster.nodes]

    def test_check_purge_and_replay_reach_every_master(self):
        for i in range(30):
            done = support.sluice("check", "--store", self.uri, "--limit", LIMIT, "--key", f"user:{i}")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sum(self.sizes()), 30)
        self.assertNotIn(0, self.sizes())
        dry = support.sluice("purge", "--store", self.uri, "--match", "user:*", "--dry-run")
        self.assertEqual(dry.stdout, "would remove 30 states\n")
        done = support.sluice("purge", "--store", self.uri, "--match", "user:*")
        self.assertEqual((done.returncode, done.stdout), (0, "removed 30 states\n"))

        lines = "".join(f"{1_700_000_000_000_000 + i * 250_000},k{i % 7},{i % 3}\n"
                        for i in range(2000))
        arguments = ("replay", "--decisions", "--limit", "limit=5,window=7s",
                     "--limit", "algorithm=leaky_bucket,capacity=9,leak=1,period=2s")
        memory = support.sluice(*arguments, stdin=lines)
        for node in self.cluster.nodes:
            self.assertEqual(node.cli(*documented_acl("sluice-cluster")), "OK\n")
            node.cli("acl", "log", "reset")
        limited = self.uri.replace("redis://", "redis://sluice-cluster:pw@")
        for uri in (self.uri, limited):
            redis = support.sluice(*arguments, "--store", uri, stdin=lines)
            self.assertEqual(redis.returncode, 0, redis.stderr)
            self.assertEqual(redis.stdout, memory.stdout)
            self.assertEqual(self.sizes(), [0, 0, 0])
        self.assertEqual([node.cli("acl", "log").strip() for node in self.cluster.nodes], [""] * 3)


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    unittest.main(argv=[sys.argv[0]])
