# SPDX-License-Identifier: Apache-2.0
"""Commands on a Redis whose name the system takes a minute to look up.

Usage: redis_lookup_test.py PROGRAM SLOW_LOOKUP
SLOW_LOOKUP is the library that makes looking up names take that long.
"""

import os
import subprocess
import sys
import time
import unittest

import support

LIMIT = "algorithm=fixed_window,limit=1000,window=1d"
# Ignores that the sanitizer, if any, wants to be loaded first.
SLOW = {"LD_PRELOAD": sys.argv[2], "ASAN_OPTIONS": "verify_asan_link_order=0"}
SOON = 20.0  # Of a minute: long enough for a busy machine.


class RedisLookup(unittest.TestCase):
    def check(self, uri):
        """The outcome of a check, which must not take as long as the lookup."""
        begun = time.monotonic()
        done = support.sluice("check", "--store", uri, "--limit", LIMIT, "--key", "k", env=SLOW)
        self.assertLess(time.monotonic() - begun, SOON)
        return done

    def test_the_lookup_is_slow(self):
        ask = [sys.executable, "-c", "import socket; socket.getaddrinfo('slowhost', 1)"]
        with self.assertRaises(subprocess.TimeoutExpired):
            subprocess.run(ask, env=os.environ | SLOW, check=False, timeout=1)

    def test_a_command_ends_without_the_name(self):
        done = self.check("redis://slowhost?timeout=300ms&connect_timeout=500ms")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("could not be sent to Redis within 300 ms", done.stderr)
        done = self.check("redis://slowhost?timeout=50s&connect_timeout=500ms")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("Redis at slowhost:6379: no connection within 500 ms; "
                      "its name is still being looked up", done.stderr)

    def test_the_next_seed_of_a_cluster_is_tried(self):
        cluster = support.RedisCluster()
        self.addCleanup(cluster.remove)
        # The first seed may be any of them.
        for _ in range(3):
            done = self.check(f"redis://slowhost,127.0.0.1:{cluster.nodes[0].port}"
                              "?timeout=50s&connect_timeout=3s")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_other_names_and_addresses_are_found(self):
        server = support.Redis("--bind", "127.0.0.1 ::1")
        self.addCleanup(server.remove)
        for host in ("localhost", "127.0.0.1", "127.1", "[::1]"):
            done = self.check(f"redis://{host}:{server.port}?timeout=50s&connect_timeout=50s")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_an_unknown_name_is_an_error_that_says_so(self):
        done = self.check("redis://nosuchhost.invalid?timeout=50s&connect_timeout=50s")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("UNAVAILABLE: Redis at nosuchhost.invalid:6379: Host not found", done.stderr)


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    unittest.main(argv=[sys.argv[0]])
