# SPDX-License-Identifier: Apache-2.0
"""The RESP door of a running `sluice serve`, through the clients that people have: redis-cli,
redis-benchmark, redis-py and ioredis.

Usage: resp_door_test.py PROGRAM
"""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import redis

PROGRAM = sys.argv[1]
NODE_CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node", "resp_client.js")
WAIT_S = 60

CONFIG = """
limits:
  login: algorithm=token_bucket,capacity=5,refill=1,period=1h
ruleSets:
  - id: api
    rules:
      - id: user
        scope: PER_USER
        bands:
          - {label: hour, algorithm: fixed_window, limit: 2, window: 30d}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Service:
    """A `sluice serve` with a RESP door on a free port."""

    def __init__(self, *arguments, environment=None):
        self.folder = tempfile.TemporaryDirectory()
        config = os.path.join(self.folder.name, "sluice.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG)
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--config", config, "--http", "", "--admin", "",
             "--resp", "127.0.0.1:0", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **(environment or {})})
        self.lines = []
        self.port = self.announced_port()
        # Whatever it says later must not fill the pipe.
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stdout))
        self.reader.start()

    def announced_port(self):
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            ready, _, _ = select.select([self.process.stdout], [], [], 1)
            line = self.process.stdout.readline() if ready else ""
            if ready and not line:
                break
            self.lines.append(line)
            found = re.search(r"resp listening on \S+?:(\d+)", line)
            if found:
                return int(found.group(1))
        self.process.kill()
        raise AssertionError("no door was announced: " + "".join(self.lines))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(WAIT_S)
        self.reader.join()
        self.process.stdout.close()
        self.folder.cleanup()
        return code


def redis_cli(port, *arguments, stdin=None):
    return subprocess.run(["redis-cli", "-p", str(port), *arguments], input=stdin,
                          capture_output=True, text=True, timeout=WAIT_S, check=False).stdout


class Door(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service()
        cls.port = cls.service.port

    @classmethod
    def tearDownClass(cls):
        code = cls.service.stop()
        assert code == 0, f"exit status {code}: " + "".join(cls.service.lines)

    def client(self, **options):
        client = redis.Redis(port=self.port, decode_responses=True, socket_timeout=WAIT_S,
                             **options)
        self.addCleanup(client.close)
        return client

    def test_redis_cli(self):
        self.assertEqual(redis_cli(self.port, "ping"), "PONG\n")
        self.assertEqual(redis_cli(self.port, "CL.THROTTLE", "cli", "15", "30", "3600").split(),
                         ["0", "16", "15", "-1", "120"])
        self.assertEqual(redis_cli(self.port, "-3", "--json", "SLUICE.CHECK", "LIMIT", "login",
                                   "cli"),
                         '{"allowed":1,"limit":5,"remaining":4,"retry_after_us":0,'
                         '"reset_after_us":3600000000,"delay_us":0,"denied_by":null,'
                         '"source":"store"}\n')
        many = redis_cli(self.port, stdin="cl.throttle many 1 1 3600\n" * 3 + 'echo "a b"\n')
        self.assertEqual(many.split("\n\n")[-1].split("\n")[-2:], ["a b", ""])

    def test_redis_cli_knows_the_commands(self):
        # Without a terminal it asks for nothing, so ask as it would.
        self.assertIn("cl.throttle", redis_cli(self.port, "COMMAND", "DOCS"))
        self.assertIn("key max_burst", redis_cli(self.port, "COMMAND", "DOCS", "cl.throttle"))

    def test_redis_benchmark(self):
        for depth in ("1", "16"):
            done = subprocess.run(
                ["redis-benchmark", "-p", str(self.port), "-c", "20", "-n", "20000", "-r", "1000",
                 "-P", depth, "--csv", "CL.THROTTLE", "bench:__rand_int__", "100", "1000", "60"],
                capture_output=True, text=True, timeout=WAIT_S, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("rror", done.stdout + done.stderr)
            self.assertIn("CL.THROTTLE", done.stdout)

    def test_redis_py(self):
        client = self.client(client_name="python")
        self.assertTrue(client.ping())
        self.assertEqual(client.client_getname(), "python")
        self.assertIn("tcp_port", client.info("server"))
        self.assertEqual(client.config_get("save"), {"save": ""})
        self.assertEqual(client.command_count(), len(client.command()))
        self.assertEqual(client.execute_command("CL.THROTTLE", "py", 1, 1, 3600),
                         [0, 2, 1, -1, 3600])
        pipeline = client.pipeline(transaction=False)
        for _ in range(3):
            pipeline.execute_command("CL.THROTTLE", "py", 1, 1, 3600)
        pipeline.execute_command("SLUICE.CHECK", "RULESET", "api", "USER", "py")
        *throttled, checked = pipeline.execute()
        self.assertEqual([reply[:3] for reply in throttled], [[0, 2, 0], [1, 2, 0], [1, 2, 0]])
        self.assertEqual(dict(zip(checked[::2], checked[1::2]))["remaining"], 1)
        self.assertEqual(client.delete("py", "nobody"), 1)
        with self.assertRaisesRegex(redis.ResponseError, "unknown command 'SET'"):
            client.set("a", "b")
        with self.assertRaisesRegex(redis.ResponseError, "COST_EXCEEDS_LIMIT"):
            client.execute_command("SLUICE.CHECK", "LIMIT", "login", "py", "COST", 6)

    def test_rule_sets_deny_and_say_which_rule(self):
        client = self.client()
        check = ("SLUICE.CHECK", "RULESET", "api", "USER", "rules")
        answers = [client.execute_command(*check) for _ in range(3)]
        answers = [dict(zip(answer[::2], answer[1::2])) for answer in answers]
        self.assertEqual([answer["allowed"] for answer in answers], [1, 1, 0])
        self.assertEqual(answers[-1]["denied_by"], "user/hour")

    def test_ioredis(self):
        done = subprocess.run(["node", NODE_CLIENT, str(self.port)], capture_output=True,
                              text=True, timeout=WAIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        answers = json.loads(done.stdout)
        self.assertEqual(answers["ping"], "PONG")
        self.assertEqual(answers["name"], "node")
        self.assertEqual(answers["throttle"], [0, 2, 1, -1, 3600])
        *throttled, checked, nonsense = answers["pipeline"]
        self.assertEqual([reply[0] for reply in throttled], [0, 1, 1])
        self.assertEqual(checked[:6], ["allowed", 1, "limit", 5, "remaining", 4])
        self.assertIn("unknown command 'NONSENSE'", nonsense)
        self.assertEqual(answers["deleted"], 1)

    def test_misbehaving_clients_do_not_disturb_others(self):
        bad = [
            b"*1\r\n:1\r\n", b"*99999999\r\n", b"*1\r\n$999999999\r\n", b"*1\r\n$-5\r\n",
            b"\"unbalanced\r\n", b"x" * 70_000, b"*2\r\n$4\r\nECHO\r\n", b"\x16\x03\x01\x02\x00",
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"*3\r\n$3\r\nDEL\r\n$1\r\na", b"\0" * 1000,
        ]
        stop = threading.Event()

        def misbehave(number):
            while not stop.is_set():
                with socket.create_connection(("127.0.0.1", self.port)) as peer:
                    try:
                        peer.sendall(bad[number % len(bad)] * (1 + number % 3))
                        if number % 2:
                            peer.settimeout(0.05)
                            peer.recv(100)
                    except OSError:
                        pass
                number += 1

        threads = [threading.Thread(target=misbehave, args=(i,)) for i in range(20)]
        for thread in threads:
            thread.start()
        try:
            client = self.client()
            for i in range(1, 501):
                reply = client.execute_command("CL.THROTTLE", "good", 499, 1, 3600)
                self.assertEqual(reply[:3], [0, 500, 500 - i])
        finally:
            stop.set()
            for thread in threads:
                thread.join()


class Password(unittest.TestCase):
    def test_is_asked_for(self):
        service = Service(environment={"SLUICE_RESP_PASSWORD": "open sesame"})
        try:
            self.assertIn("NOAUTH", redis_cli(service.port, "ping"))
            self.assertEqual(redis_cli(service.port, "-a", "open sesame", "--no-auth-warning",
                                       "ping"), "PONG\n")
            self.assertEqual(redis_cli(service.port, "-3", "-a", "open sesame",
                                       "--no-auth-warning", "ping"), "PONG\n")
            with redis.Redis(port=service.port, password="open sesame") as client:
                self.assertTrue(client.ping())
            with redis.Redis(port=service.port, username="default", password="no") as client:
                # What it is called depends on the parser that the library finds.
                with self.assertRaisesRegex(redis.RedisError, "WRONGPASS|invalid username"):
                    client.ping()
            done = subprocess.run(["node", NODE_CLIENT, str(service.port), "open sesame"],
                                  capture_output=True, text=True, timeout=WAIT_S, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
        finally:
            self.assertEqual(service.stop(), 0)


class SharedState(unittest.TestCase):
    """Two instances on one Redis are one limiter; an outage is an error and no denial."""

    def test_instances_share_and_an_outage_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            port = free_port()
            server = subprocess.Popen(
                ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                 "--dir", folder], stdout=subprocess.DEVNULL)
            services = []
            try:
                while redis_cli(port, "ping") != "PONG\n":
                    time.sleep(0.01)
                store = f"redis://127.0.0.1:{port}"
                services = [Service("--store", store, "--resp-on-store-failure", "FAIL_CLOSED")
                            for _ in range(2)]
                clients = [redis.Redis(port=service.port) for service in services]
                remaining = []
                for i in range(10):
                    pipeline = clients[i % 2].pipeline(transaction=False)
                    for _ in range(5):
                        pipeline.execute_command("CL.THROTTLE", "shared", 49, 1, 36000)
                    remaining += [reply[2] for reply in pipeline.execute()]
                self.assertEqual(remaining, list(range(49, -1, -1)))
                self.assertEqual(clients[0].execute_command("CL.THROTTLE", "shared", 49, 1,
                                                            36000)[0], 1)
                # By the same instance: others remember the denial until it ends.
                self.assertEqual(clients[0].delete("shared"), 1)
                self.assertEqual(clients[0].execute_command("CL.THROTTLE", "shared", 49, 1,
                                                            36000)[0], 0)
                server.kill()
                server.wait()
                with self.assertRaisesRegex(redis.ResponseError, "UNAVAILABLE|OUTCOME_UNKNOWN"):
                    clients[0].execute_command("CL.THROTTLE", "shared", 49, 1, 36000)
                self.assertTrue(clients[0].ping())
                for client in clients:
                    client.close()
            finally:
                for service in services:
                    self.assertEqual(service.stop(), 0)
                server.kill()
                server.wait()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
