# SPDX-License-Identifier: Apache-2.0
"""The RESP door of a running `sluice serve`, through common clients: redis-cli, redis-benchmark,
redis-py and ioredis.

Usage: resp_door_test.py PROGRAM
"""

import json
import os
import socket
import subprocess
import threading
import unittest

import redis

import support

NODE_CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node", "resp_client.js")

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
  - id: clients
    rules:
      - id: address
        scope: PER_IP
        bands:
          - {label: month, algorithm: sliding_window, limit: 3, window: 30d}
"""


class Service(support.Service):
    """A service with a RESP door."""

    def __init__(self, *arguments, env=None):
        self.config = support.Folder()
        super().__init__("--config", self.config.write("sluice.yaml", CONFIG),
                         "--resp", "127.0.0.1:0", *arguments, env=env)

    def remove(self):
        super().remove()
        self.config.remove()


def redis_cli(port, *arguments, stdin=None):
    return subprocess.run(["redis-cli", "-p", str(port), *arguments], input=stdin,
                          capture_output=True, text=True, timeout=support.PATIENCE, check=False).stdout


class Door(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service()
        cls.addClassCleanup(cls.service.remove)
        cls.port = cls.service.resp_port

    @classmethod
    def tearDownClass(cls):
        code = cls.service.stop()
        assert code == 0, f"exit status {code}: {cls.service.log()}"

    def client(self, **options):
        client = redis.Redis(port=self.port, decode_responses=True, socket_timeout=support.PATIENCE,
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
        # Without a terminal, redis-cli does not ask, so ask as it would.
        self.assertIn("cl.throttle", redis_cli(self.port, "COMMAND", "DOCS"))
        self.assertIn("key max_burst", redis_cli(self.port, "COMMAND", "DOCS", "cl.throttle"))

    def test_redis_benchmark(self):
        for depth in ("1", "16"):
            done = subprocess.run(
                ["redis-benchmark", "-p", str(self.port), "-c", "20", "-n", "20000", "-r", "1000",
                 "-P", depth, "--csv", "CL.THROTTLE", "bench:__rand_int__", "100", "1000", "60"],
                capture_output=True, text=True, timeout=support.PATIENCE, check=False)
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
        self.assertEqual(client.execute_command("SLUICE.RESET", *check[1:]), 1)
        self.assertEqual(client.execute_command(*check)[:2], ["allowed", 1])

    def test_an_address_is_one_client_at_every_door(self):
        client = self.client()
        for left, address in ((2, "2001:db8::1"), (1, "[2001:DB8:0:0:ffff::2]:80")):
            answer = client.execute_command("SLUICE.CHECK", "RULESET", "clients", "IP", address)
            self.assertEqual(dict(zip(answer[::2], answer[1::2]))["remaining"], left)
        self.assertEqual(self.service.check("clients", ip="2001:db8::3").json["remaining"], 0)

    def test_ioredis(self):
        done = subprocess.run(["node", NODE_CLIENT, str(self.port)], capture_output=True,
                              text=True, timeout=support.PATIENCE, check=False)
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
        service = Service(env={"SLUICE_RESP_PASSWORD": "open sesame"})
        self.addCleanup(service.remove)
        port = service.resp_port
        self.assertIn("NOAUTH", redis_cli(port, "ping"))
        self.assertEqual(redis_cli(port, "-a", "open sesame", "--no-auth-warning", "ping"),
                         "PONG\n")
        self.assertEqual(redis_cli(port, "-3", "-a", "open sesame", "--no-auth-warning", "ping"),
                         "PONG\n")
        with redis.Redis(port=port, password="open sesame") as client:
            self.assertTrue(client.ping())
        with redis.Redis(port=port, username="default", password="no") as client:
            # Its name depends on the parser that the library finds.
            with self.assertRaisesRegex(redis.RedisError, "WRONGPASS|invalid username"):
                client.ping()
        done = subprocess.run(["node", NODE_CLIENT, str(port), "open sesame"],
                              capture_output=True, text=True, timeout=support.PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(service.stop(), 0)


def command(*arguments):
    parts = [argument.encode() for argument in arguments]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part)
                                              for part in parts)


class AsRedis(unittest.TestCase):
    """What a real redis-server of the same version answers to the same bytes."""

    PROTOCOL = [
        b"*1\r\n:1\r\n", b"*1\r\nPING\r\n", b"*1\r\n$-5\r\n", b"*1\r\n$-1\r\n",
        b"*1\r\n$999999999\r\n", b"*01\r\n$4\r\nPING\r\n", b"*1\r\n$04\r\nPING\r\n",
        b"*+1\r\n$4\r\nPING\r\n", b"*1\r\n$+4\r\nPING\r\n", b"* 1\r\n", b"*abc\r\n", b"*\r\n",
        b"*1\r\n$\r\n", b"*0\r\nPING\r\n", b"*-1\r\nPING\r\n", b'"unbalanced\r\n', b"'open\r\n",
        b'"a"b\r\n', b"PING\r\nPING\n\r\n\n PING\r\n", b'ECHO "a\\x41\\n\\t\\q"\r\n',
        b"ECHO 'it\\'s'\r\n", b'ECHO ""\r\n', b"POST / HTTP/1.1\r\n\r\n",
    ]
    ENDLESS = [b"*1" + b"0" * 70_000, b"*1\r\n$" + b"1" * 70_000, b"x" * 70_000]
    COMMANDS = [
        "PING", "PING x", "PING x y", "ECHO", "ECHO a b", "HELLO 4", "HELLO 1", "HELLO x",
        "HELLO 3 SETNAME", "HELLO 3 AUTH default", "HELLO 3 AUTH bob x", "HELLO 3 FOO", "AUTH",
        "AUTH x", "AUTH default x", "AUTH bob x", "AUTH a b c", "SELECT", "SELECT 0", "SELECT 1000",
        "SELECT x", "SELECT -1", "SELECT 0 1", "SELECT 99999999999999999999", "SELECT 99999999999",
        "SELECT 2147483648", "SELECT 2147483647", "SELECT -2147483649", "RESET", "RESET x",
        "CLIENT", "CLIENT FOO", "client foo", "CLIENT GETNAME", "CLIENT GETNAME x", "CLIENT SETNAME",
        "CLIENT ID x", "CLIENT REPLY ON", "CLIENT REPLY FOO", "CLIENT REPLY", "CLIENT NO-EVICT ON",
        "CLIENT NO-EVICT X", "COMMAND FOO", "COMMAND COUNT x", "COMMAND LIST x",
        "COMMAND INFO nosuch", "COMMAND DOCS nosuch", "COMMAND GETKEYS", "COMMAND GETKEYS nosuch",
        "COMMAND GETKEYS nosuch x", "COMMAND GETKEYS ECHO x", "COMMAND GETKEYS DEL a b", "CONFIG",
        "CONFIG GET", "CONFIG GET save", "CONFIG GET s*ve", "CONFIG GET nosuch", "CONFIG FOO", "ACL",
        "ACL WHOAMI", "ACL FOO", "INFO nosuch", "NOSUCH", "NOSUCH a b", "DEL", "DEL x", "UNLINK x y",
        "NOSUCH " + "x" * 200 + " y", "N" * 300 + " a", "NOSUCH" + " abcdefghij" * 40,
    ]

    # Both require the password "pw".
    LOGINS = [
        ["PING"], ["HELLO"], ["HELLO 3"], ["HELLO 4"], ["HELLO 3 bogus"],
        ["HELLO 3 SETNAME me", "AUTH pw", "CLIENT GETNAME"],
        ["HELLO 3 AUTH default no", "PING"], ["HELLO 3 AUTH default pw bogus", "PING"],
        ["HELLO 3 AUTH default pw AUTH default no", "CLIENT GETNAME"],
        ["HELLO 3 SETNAME me AUTH default no", "AUTH pw", "CLIENT GETNAME"],
        ["AUTH pw", "HELLO 3 SETNAME me bogus", "CLIENT GETNAME", "RESET", "PING"],
    ]

    @classmethod
    def setUpClass(cls):
        cls.redis = support.Redis()
        cls.addClassCleanup(cls.redis.remove)
        cls.service = Service()
        cls.addClassCleanup(cls.service.remove)

    @staticmethod
    def conversation(port, sent):
        """Everything that is received until the server closes."""
        with support.RawConnection(port) as connection:
            connection.send(sent)
            return connection.read_until_closed()

    def assert_same(self, sent, last=b"QUIT\r\n", service=None, server=None):
        with self.subTest(sent=sent[:80]):
            service, server = service or self.service, server or self.redis
            self.assertEqual(self.conversation(service.resp_port, sent + last),
                             self.conversation(server.port, sent + last))

    def test_says_what_redis_says(self):
        for sent in self.PROTOCOL:
            self.assert_same(sent)
        for sent in self.ENDLESS:
            self.assert_same(sent, last=b"")
        for text in self.COMMANDS:
            self.assert_same(command(*text.split(" ")))
        self.assert_same(command("ECHO", ""))
        self.assert_same(command("") + command("", "a") + command("NO\r\nSUCH", "x\r\ny"))
        self.assert_same(command("CLIENT", "SETNAME", "a b") + command("CLIENT", "SETNAME", "a\n"))
        self.assert_same(command("CLIENT", "SETNAME", "me") + command("CLIENT", "GETNAME") +
                         command("CLIENT", "SETNAME", "") + command("CLIENT", "GETNAME"))
        self.assert_same(command("CLIENT", "SETNAME", "n" * 5000) + command("CLIENT", "GETNAME"))
        self.assert_same(command("CLIENT", "SETNAME", "me") + command("RESET") +
                         command("CLIENT", "GETNAME"))
        self.assert_same(command("QUIT", "x") + command("PING"))

    def test_lets_in_whom_redis_lets_in(self):
        server = support.Redis(password="pw")
        self.addCleanup(server.remove)
        service = Service(env={"SLUICE_RESP_PASSWORD": "pw"})
        self.addCleanup(service.remove)
        for login in self.LOGINS:
            sent = b"".join(command(*text.split(" ")) for text in login)
            self.assert_same(sent, service=service, server=server)

    def test_info_is_text_under_resp3(self):
        sent = command("HELLO", "3") + command("INFO", "nosuch") + b"QUIT\r\n"
        for port in (self.service.resp_port, self.redis.port):
            self.assertTrue(self.conversation(port, sent).endswith(b"=4\r\ntxt:\r\n+OK\r\n"))


class SharedState(unittest.TestCase):
    """Two instances on one Redis are one limiter; an outage is an error, not a denial."""

    def test_instances_share_and_an_outage_is_an_error(self):
        server = support.Redis()
        self.addCleanup(server.remove)
        clients = []
        for _ in range(2):
            service = Service(*server.patient_store(), "--resp-on-store-failure", "FAIL_CLOSED")
            self.addCleanup(service.remove)
            clients.append(redis.Redis(port=service.resp_port))
            self.addCleanup(clients[-1].close)
        remaining = []
        for i in range(10):
            pipeline = clients[i % 2].pipeline(transaction=False)
            for _ in range(5):
                pipeline.execute_command("CL.THROTTLE", "shared", 49, 1, 36000)
            remaining += [reply[2] for reply in pipeline.execute()]
        self.assertEqual(remaining, list(range(49, -1, -1)))
        throttle = ("CL.THROTTLE", "shared", 49, 1, 36000)
        self.assertEqual(clients[0].execute_command(*throttle)[0], 1)
        self.assertEqual(clients[1].delete("shared"), 1)
        support.eventually(lambda: clients[0].execute_command(*throttle)[0] == 0,
                           "the reset at the other instance")
        server.kill()
        with self.assertRaisesRegex(redis.ResponseError, "UNAVAILABLE|OUTCOME_UNKNOWN"):
            clients[0].execute_command(*throttle)
        self.assertTrue(clients[0].ping())


if __name__ == "__main__":
    support.main()
