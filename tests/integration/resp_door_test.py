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
  - id: llm
    rules:
      - id: tokens
        scope: PER_USER
        cost: {attribute: tokens, default: 1}
        hold: {ttl: 10m}
        bands:
          - {label: month, algorithm: fixed_window, limit: 1000, window: 30d}
      - id: streams
        scope: PER_USER
        bands:
          - {label: open, algorithm: concurrency, limit: 2, ttl: 10m}
"""

SLOTS = "algorithm=concurrency,limit=2,ttl=10m"


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


def fields(reply):
    """A map as RESP2 writes it."""
    return dict(zip(reply[::2], reply[1::2]))


class Holds:
    """Holds made, extended and ended at this door and at that for HTTP. `a` and `b` are instances
    on one store."""

    def setUp(self):
        self.a, self.b = self.instances()
        self.at_a, self.at_b = self.client(self.a), self.client(self.b)

    def client(self, service):
        client = redis.Redis(port=service.resp_port, decode_responses=True,
                             socket_timeout=support.PATIENCE)
        self.addCleanup(client.close)
        return client

    def serve(self, *arguments):
        service = Service(*arguments)
        self.addCleanup(service.remove)
        return service

    @staticmethod
    def ask(client, *command):
        return fields(client.execute_command(*command))

    def peek(self, client, *what):
        answer = self.ask(client, "SLUICE.PEEK", *what)
        return answer["remaining"], answer.get("held", 0)

    def hold_tokens(self, client, user, tokens=800):
        return self.ask(client, "SLUICE.HOLD", "RULESET", "llm", "USER", user,
                        "ATTR", "tokens", tokens)

    def test_a_hold_is_settled_for_what_was_used(self):
        made = self.ask(self.at_a, "SLUICE.HOLD", "LIMIT", "login", "ann", "COST", 4, "TTL", "10m")
        self.assertEqual(list(made), [
            "allowed", "limit", "remaining", "retry_after_us", "reset_after_us", "delay_us",
            "denied_by", "source", "id", "holds", "expires_at_us", "held"])
        self.assertEqual((made["allowed"], made["remaining"], made["holds"], made["held"]),
                         (1, 1, 1, 4))
        self.assertEqual(self.peek(self.at_b, "LIMIT", "login", "ann"), (1, 4))
        denied = self.ask(self.at_b, "SLUICE.HOLD", "LIMIT", "login", "ann", "COST", 2,
                          "TTL", "10m")
        self.assertEqual((denied["allowed"], denied["id"], denied["expires_at_us"]), (0, None, None))
        for _ in range(2):
            settled = self.ask(self.at_b, "SLUICE.SETTLE", made["id"], "COST", 1)
            self.assertEqual((settled["late"], settled["overdrawn"], settled["remaining"],
                              settled["held"]), (0, 0, 4, 0))
        self.assertEqual(self.peek(self.at_a, "LIMIT", "login", "ann"), (4, 0))

    def test_rules_are_settled_one_by_one(self):
        made = self.hold_tokens(self.at_a, "rules")
        denied = self.hold_tokens(self.at_b, "rules")
        self.assertEqual((denied["allowed"], denied["denied_by"]), (0, "tokens/month"))
        settled = self.ask(self.at_b, "SLUICE.SETTLE", made["id"], "RULE", "tokens", 250)
        self.assertEqual([(limit["name"], limit["cost"], limit["remaining"], limit["held"])
                          for limit in map(fields, settled["limits"])],
                         [("llm/tokens/month", 250, 750, 0), ("llm/streams/open", None, 2, 0)])

    def test_each_door_ends_what_the_other_has_made(self):
        holds = "/api/v1/holds"
        made = self.hold_tokens(self.at_a, "doors")["id"]
        extended = self.b.request("POST", f"{holds}/{made}/extend", {"ttl": "1h"})
        self.assertEqual(extended.status, 200, extended)
        settled = self.b.request("POST", f"{holds}/{made}/settle", {"permits": {"tokens": 250}})
        self.assertEqual([limit["remaining"] for limit in settled.json["limits"]], [750, 2])
        again = self.ask(self.at_a, "SLUICE.SETTLE", made, "COST", 999)
        self.assertEqual(fields(again["limits"][0])["remaining"], 750, "it was settled already")

        document = {"ruleSet": "llm", "context": {"userId": "doors", "attributes": {"tokens": 700}}}
        made = self.a.request("POST", holds, document)
        self.assertEqual(made.status, 201, made)
        extended = self.ask(self.at_b, "SLUICE.EXTEND", made.json["id"], "TTL", "1h")
        self.assertGreater(extended["expires_at_us"], made.json["expiresAtMicros"] + 2990 * 10**6)
        released = self.ask(self.at_b, "SLUICE.RELEASE", made.json["id"])
        self.assertEqual(released["late"], 0)
        self.assertEqual(self.a.check("llm", permits=0, userId="doors").json["rules"][0]["bands"][0]
                         ["remaining"], 750)
        made = self.a.request("POST", holds, {"limit": SLOTS, "key": "jobs"}).json["id"]
        self.assertEqual(self.peek(self.at_b, "LIMIT", SLOTS, "jobs"), (1, 1))
        self.ask(self.at_b, "SLUICE.SETTLE", made)
        self.assertEqual(self.peek(self.at_b, "LIMIT", SLOTS, "jobs"), (2, 0))

    def test_a_hold_that_nobody_ends_expires(self):
        for on_expiry, left in (("CHARGE", 1), ("RELEASE", 5)):
            made = self.ask(self.at_a, "SLUICE.HOLD", "LIMIT", "login", on_expiry, "COST", 4,
                            "TTL", "1ms", "ONEXPIRY", on_expiry)
            support.eventually(
                lambda: self.peek(self.at_b, "LIMIT", "login", on_expiry) == (left, 0),
                "it has expired")
            late = self.ask(self.at_b, "SLUICE.SETTLE", made["id"], "COST", 2)
            self.assertEqual((late["late"], late["remaining"]), (1, 3))

    def test_errors_have_codes(self):
        hold = ("SLUICE.HOLD", "LIMIT", SLOTS, "codes", "ID", "mine")
        made = self.ask(self.at_a, *hold)
        self.assertEqual(self.ask(self.at_b, *hold)["id"], made["id"])
        for code, *command in (
                ("HOLD_CONFLICT", *hold, "COST", 2),
                ("NEEDS_HOLD", "SLUICE.CHECK", "LIMIT", SLOTS, "codes"),
                ("NEEDS_HOLD", "SLUICE.GIVE", "RULESET", "llm", "USER", "codes")):
            with self.assertRaisesRegex(redis.ResponseError, f"^{code} "):
                self.at_b.execute_command(*command)
        self.ask(self.at_b, "SLUICE.RELEASE", made["id"])
        with self.assertRaisesRegex(redis.ResponseError, "^HOLD_LOST "):
            self.at_a.execute_command("SLUICE.EXTEND", made["id"])
        with self.assertRaisesRegex(redis.ResponseError, "not the id of a hold"):
            self.at_a.execute_command("SLUICE.SETTLE", made["id"][1:])

    def test_a_pipeline_takes_effect_in_its_order(self):
        made = self.ask(self.at_a, "SLUICE.HOLD", "LIMIT", SLOTS, "pipe", "COST", 2)["id"]
        pipeline = self.at_b.pipeline(transaction=False)
        hold = ("SLUICE.HOLD", "LIMIT", SLOTS, "pipe", "COST", 2)
        pipeline.execute_command(*hold)
        pipeline.execute_command("SLUICE.SETTLE", made)
        pipeline.execute_command(*hold)
        pipeline.execute_command(*hold)
        pipeline.execute_command("SLUICE.PEEK", "LIMIT", SLOTS, "pipe")
        denied, settled, allowed, *rest = map(fields, pipeline.execute())
        self.assertEqual((denied["allowed"], settled["remaining"], allowed["allowed"]), (0, 2, 1))
        self.assertEqual([answer["allowed"] for answer in rest], [0, 0])

    def test_giving_back_reaches_what_comes_next(self):
        check = ("SLUICE.CHECK", "LIMIT", "login", "give")
        self.assertEqual([self.ask(self.at_a, *check)["allowed"] for _ in range(7)],
                         [1, 1, 1, 1, 1, 0, 0])
        pipeline = self.at_a.pipeline(transaction=False)
        pipeline.execute_command("SLUICE.GIVE", "LIMIT", "login", "give", "COST", 2)
        for _ in range(3):
            pipeline.execute_command(*check)
        given, *checked = map(fields, pipeline.execute())
        self.assertEqual((given["remaining"], given["held"]), (2, 0))
        self.assertEqual([answer["allowed"] for answer in checked], [1, 1, 0])

        check = ("RULESET", "api", "USER", "give")
        self.ask(self.at_a, "SLUICE.CHECK", *check, "COST", 2)
        self.assertEqual(self.ask(self.at_b, "SLUICE.GIVE", *check)["remaining"], 1)
        self.assertEqual(self.ask(self.at_b, "SLUICE.GIVE", *check, "COST", 9)["remaining"], 2)


class HoldsInMemory(Holds, unittest.TestCase):
    def instances(self):
        service = self.serve()
        return service, service

    def test_events_are_counted(self):
        made = self.hold_tokens(self.at_a, "events")["id"]
        self.assertEqual(self.a.metric("sluice_holds_live"), 1)
        self.ask(self.at_a, "SLUICE.SETTLE", made, "RULE", "tokens", 900)
        self.assertEqual(self.a.metric("sluice_holds_live"), 0)
        for event, count in (("made", 1), ("settled", 1), ("overdrawn", 1), ("late", 0)):
            self.assertEqual(self.a.metric("sluice_holds_total", event=event), count)
            self.assertEqual(self.a.metric("sluice_rule_holds_total", rule_set="llm",
                                           rule="tokens", event=event), count)


class HoldsOnRedis(Holds, unittest.TestCase):
    def instances(self):
        self.redis = support.Redis()
        self.addCleanup(self.redis.remove)
        return [self.serve(*self.redis.patient_store(), "--instances", "2") for _ in range(2)]

    def test_memory_answers_as_redis_does(self):
        times = {"id", "expires_at_us", "retry_after_us", "reset_after_us"}

        def shape(reply):
            if not isinstance(reply, list):
                return reply
            if reply and isinstance(reply[0], list):
                return [shape(part) for part in reply]
            return [(name, name if name in times else shape(value))
                    for name, value in fields(reply).items()]

        answers = []
        for client in (self.at_a, self.client(self.serve())):
            seen = [client.execute_command(*command) for command in (
                ("SLUICE.HOLD", "RULESET", "llm", "USER", "u", "DETAIL"),
                ("SLUICE.HOLD", "LIMIT", SLOTS, "k"),
                ("SLUICE.HOLD", "LIMIT", SLOTS, "k", "COST", 2),
                ("SLUICE.CHECK", "LIMIT", "login", "k", "COST", 3),
                ("SLUICE.GIVE", "LIMIT", "login", "k"),
                ("SLUICE.PEEK", "RULESET", "llm", "USER", "u", "DETAIL"))]
            hold = fields(seen[0])["id"]
            seen += [client.execute_command(*command) for command in (
                ("SLUICE.EXTEND", hold), ("SLUICE.SETTLE", hold, "COST", 3),
                ("SLUICE.RELEASE", hold))]
            answers.append([shape(reply) for reply in seen])
        self.assertEqual(*answers)

    def test_an_outage_is_an_error(self):
        service = self.serve(*self.redis.patient_store(), "--resp-on-store-failure", "FAIL_CLOSED")
        client = self.client(service)
        made = self.ask(client, "SLUICE.HOLD", "LIMIT", SLOTS, "k")["id"]
        self.redis.kill()
        for command in (("SLUICE.HOLD", "LIMIT", SLOTS, "k"), ("SLUICE.EXTEND", made),
                        ("SLUICE.GIVE", "LIMIT", "login", "k")):
            with self.assertRaisesRegex(redis.ResponseError, "UNAVAILABLE|OUTCOME_UNKNOWN"):
                client.execute_command(*command)


if __name__ == "__main__":
    support.main()
