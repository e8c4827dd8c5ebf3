# SPDX-License-Identifier: Apache-2.0
"""Who may ask: tokens, client certificates, public doors, and the budget of a client's own address.

Usage: service_access_test.py PROGRAM
"""

import http.client
import os
import signal
import socket
import ssl

import support
from support import eventually, target

CHECK = "/api/v1/rate-limit/check"
REMAINING = "/api/v1/rate-limit/remaining"
RESET = "/api/v1/rate-limit/reset"
HEALTH = ("/health", "/health/live", "/health/ready", "/actuator/health",
          "/actuator/health/liveness", "/actuator/health/readiness")
OWN = "127.0.0.1"
RULES = f"""
ruleSets:
  - id: shop
    rules:
      - id: clients
        scope: PER_IP
        bands: [{{algorithm: FIXED_WINDOW, limit: 3, window: {support.AGES}}}]
"""


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


class Resp:
    """A connection to the RESP door, for answers of one line."""

    def __init__(self, test, port, context=None):
        plain = socket.create_connection(("127.0.0.1", port), support.PATIENCE)
        test.addCleanup(plain.close)
        self.socket = context.wrap_socket(plain, server_hostname="127.0.0.1") if context else plain
        test.addCleanup(self.socket.close)
        self.reader = self.socket.makefile("rb")
        test.addCleanup(self.reader.close)

    def ask(self, *words):
        parts = b"".join(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words)
        self.socket.sendall(b"*%d\r\n" % len(words) + parts)
        return self.reader.readline().decode().rstrip("\r\n")


class OwnBudget(support.ServiceTest):
    """The budget of a client's address is not that of a key with the same name."""

    def exercise(self, service):
        def left(**parameters):
            answer = service.get(target(REMAINING, algorithm="FIXED_WINDOW", **parameters))
            return answer.json["remaining"]

        def check(**parameters):
            return service.get(target(CHECK, algorithm="FIXED_WINDOW", **parameters))

        def reset(**parameters):
            return service.request("DELETE", target(RESET, algorithm="FIXED_WINDOW", **parameters))

        for _ in range(3):
            self.assertEqual(check().json["key"], OWN)
        self.assertEqual((left(), left(key=OWN)), (7, 10))
        # Nobody can use it up, or reset it, by its name.
        self.assertEqual(check(key=OWN, permits=10).status, 200)
        self.assertEqual(check(key=OWN).status, 429)
        self.assertEqual((left(), left(key=OWN)), (7, 0))
        self.assertEqual(check().status, 200)
        self.assertEqual(reset(key=OWN).status, 200)
        self.assertEqual((left(), left(key=OWN)), (6, 10))
        self.assertEqual(check(permits=6).status, 200)
        self.assertEqual(check().status, 429)
        self.assertEqual(check(key=OWN).status, 200)
        # Its owner can.
        self.assertEqual(reset().json["key"], OWN)
        self.assertEqual(left(), 10)

    def test_is_apart_in_memory(self):
        config = self.folder().write("a.yaml", f"defaults: {{fixed_window: "
                                               f"'limit=10,window={support.AGES}'}}")
        self.exercise(self.start("--config", config))

    def test_is_apart_in_redis(self):
        config = self.folder().write("a.yaml", f"defaults: {{fixed_window: "
                                               f"'limit=10,window={support.AGES}'}}")
        redis = self.redis()
        self.exercise(self.start("--config", config, "--store", f"redis://127.0.0.1:{redis.port}"))


class Tokens(support.ServiceTest):
    def setUp(self):
        self.files = self.folder()
        self.path = self.files.write("tokens", "# Who may ask.\n\nplain-secret\nci named-secret\n")
        os.chmod(self.path, 0o600)

    def serve(self, *arguments):
        return self.start("--http-token-file", self.path, *arguments, token="plain-secret")

    def test_are_asked_for(self):
        service = self.serve()
        for headers in ({}, bearer("wrong"), bearer("ci"), bearer(""), bearer("plain-secret2"),
                        {"Authorization": "Basic plain-secret"}, {"Authorization": "plain-secret"}):
            for method, path in (("GET", CHECK), ("DELETE", RESET), ("GET", "/metrics"),
                                 ("GET", "/info"), ("POST", "/json"), ("POST", "/api/v1/check"),
                                 ("PUT", "/api/v1/authorize/shop"), ("GET", "/docs")):
                answer = service.request(method, path, headers=headers)
                self.assert_error(answer, 401, "UNAUTHORIZED")
                self.assertEqual(answer.header("WWW-Authenticate"), "Bearer")
        problem = service.get(CHECK, Accept="application/problem+json")
        self.assertEqual((problem.status, problem.json["code"]), (401, "UNAUTHORIZED"))
        for token in ("plain-secret", "named-secret"):
            self.assertEqual(service.get(target(CHECK, key="k"), **bearer(token)).status, 200)
            self.assertEqual(service.get(CHECK, Authorization=f"bEARER  {token} ").status, 200)
            self.assertEqual(service.request("DELETE", RESET, headers=bearer(token)).status, 200)
            self.assertEqual(service.get("/metrics", **bearer(token)).status, 200)
        for path in HEALTH:
            self.assertEqual(service.get(path).status, 200, path)

    def reload(self, service, by_signal):
        lines = len(service.logged("tokens"))
        if by_signal:
            answer = service.send(signal.SIGHUP)
        else:
            answer = service.admin("POST", "/admin/v1/reload")
        service.logged("tokens", count=lines + 1)
        return answer

    def test_are_read_again_while_connections_stay(self):
        for by_signal in (False, True):
            with self.subTest(by_signal=by_signal):
                self.files.write("tokens", "plain-secret")
                service = self.serve("--resp", "127.0.0.1:0", "--resp-token-file", self.path)
                http_client = service.client()
                self.addCleanup(http_client.close)
                resp = Resp(self, service.resp_port)
                self.assertEqual(http_client.request("GET", CHECK, headers=bearer("plain-secret"))
                                 .status, 200)
                self.assertEqual(resp.ask("AUTH", "plain-secret"), "+OK")

                self.files.write("tokens", "plain-secret\nnew-secret")
                self.reload(service, by_signal)
                eventually(lambda: http_client.request("GET", CHECK, headers=bearer("new-secret"))
                           .status == 200, "the new token is known")
                self.assertEqual(resp.ask("PING"), "+PONG")

                self.files.write("tokens", "new-secret")
                self.reload(service, by_signal)
                eventually(lambda: http_client.request("GET", CHECK, headers=bearer("plain-secret"))
                           .status == 401, "the old token is forgotten")
                # The same connections still, but revoked tokens no longer count.
                eventually(lambda: resp.ask("PING").startswith("-NOAUTH"), "RESP has forgotten it")
                self.assertEqual(resp.ask("AUTH", "new-secret"), "+OK")
                self.assertEqual(resp.ask("PING"), "+PONG")

    def test_a_file_that_is_no_good_leaves_the_old_ones(self):
        service = self.serve("--log-format", "json")
        for content in ("", "# none\n", "name sec ret\n", "twice\ntwice\n", "s\u00e9cret\n", None):
            if content is None:
                os.remove(self.path)
            else:
                self.files.write("tokens", content)
            answer = self.reload(service, by_signal=False)
            self.assertEqual(answer.status, 400, content)
            problem, = answer.json["error"]["problems"]
            self.assertEqual(problem["file"], "http")
            self.assertIn(self.path, problem["message"])
            self.assertEqual(service.get(CHECK, **bearer("plain-secret")).status, 200)
        self.assertEqual(len(service.logged("the old ones stay", '"door":"http"', count=6)), 6)
        samples = support.parse_metrics(
            service.get("/metrics", **bearer("plain-secret")).body.decode())
        reloads = {result: samples["sluice_token_reloads_total", frozenset({("result", result)})]
                   for result in ("ok", "invalid")}
        self.assertEqual(reloads, {"ok": 0, "invalid": 6})

    def test_are_never_shown(self):
        service = self.serve("--log-level", "debug", "--resp", "127.0.0.1:0", "--resp-token-file",
                             self.path)
        service.get(CHECK, **bearer("plain-secret"))
        Resp(self, service.resp_port).ask("AUTH", "ci", "named-secret")
        self.files.write("tokens", "broken named-secret plain-secret")
        self.reload(service, by_signal=False)
        service.logged("the old ones stay")
        shown = service.log() + service.output()
        shown += support.sluice("config", "--http-token-file", self.path).stdout
        self.assertIn("the old ones stay", shown)
        self.assertNotIn("secret", shown.replace("tokens", ""))

    def test_a_file_that_all_can_read_is_complained_about(self):
        self.assertEqual(self.serve().log_lines("can read the tokens"), [])
        os.chmod(self.path, 0o644)
        self.assertEqual(len(self.serve().logged("WARN", "can read the tokens", self.path)), 1)

    def test_of_the_admin_door_are_the_same_kind(self):
        service = self.start("--admin-token-file", self.path)

        def status(token):
            return service.admin("GET", "/admin/v1/status", headers=bearer(token)).status

        self.assertEqual([status(token) for token in ("plain-secret", "named-secret", "ci", "")],
                         [200, 200, 401, 401])
        self.files.write("tokens", "ci new-secret")
        self.assertEqual(service.admin("POST", "/admin/v1/reload",
                                       headers=bearer("plain-secret")).status, 200)
        self.assertEqual([status(token) for token in ("plain-secret", "new-secret")], [401, 200])

    def test_of_a_pipe_are_read_once(self):
        pipe = self.files / "pipe"
        os.mkfifo(pipe)
        # The service opens it once; if it opened it again, it would wait forever.
        feeder = support.Process(["sh", "-c", f"echo plain-secret > '{pipe}'"])
        self.addCleanup(feeder.remove)
        service = self.start("--http-token-file", pipe, token="plain-secret")
        self.assertEqual(service.admin("POST", "/admin/v1/reload").status, 200)
        self.assertEqual(service.get(CHECK, **bearer("plain-secret")).status, 200)

    def test_at_the_resp_door(self):
        service = self.start("--resp", "127.0.0.1:0", "--resp-token-file", self.path,
                             "--resp-password", "pass word")
        resp = Resp(self, service.resp_port)
        self.assertTrue(resp.ask("PING").startswith("-NOAUTH"))
        self.assertTrue(resp.ask("CL.THROTTLE", "k", "1", "1", "1").startswith("-NOAUTH"))
        self.assertTrue(resp.ask("AUTH", "secret").startswith("-WRONGPASS"))
        self.assertTrue(resp.ask("AUTH", "other", "named-secret").startswith("-WRONGPASS"))
        for words in (["plain-secret"], ["named-secret"], ["ci", "named-secret"], ["pass word"],
                      ["default", "plain-secret"], ["default", "pass word"]):
            resp = Resp(self, service.resp_port)
            self.assertEqual(resp.ask("AUTH", *words), "+OK", words)
            self.assertEqual(resp.ask("PING"), "+PONG")
        self.assertTrue(Resp(self, service.resp_port).ask("HELLO", "3", "AUTH", "ci",
                                                          "named-secret").startswith("%"))


class PublicDoor(support.ServiceTest):
    """Callers without a token ask about themselves, and about nobody else."""

    def setUp(self):
        self.files = self.folder()
        self.files.write("tokens", "secret")
        self.files.write("rules.yaml", RULES)

    def serve(self, *arguments):
        return self.start("--http-public", "true", "--rules", self.files / "rules.yaml", *arguments)

    def assert_own_only(self, service, headers):
        def ask(method, path, body=None, **parameters):
            return service.request(method, target(path, **parameters), body, headers)

        answer = ask("GET", CHECK)
        self.assertEqual((answer.status, answer.json["key"]), (200, OWN))
        self.assertEqual(ask("GET", REMAINING).status, 200)
        for answer in (ask("GET", CHECK, key="k"), ask("GET", CHECK, key=OWN),
                       ask("GET", REMAINING, key="k"), ask("DELETE", RESET),
                       ask("DELETE", RESET, key=OWN), ask("GET", "/metrics"), ask("GET", "/info"),
                       ask("POST", "/json", {"domain": "d"})):
            self.assert_error(answer, 403, "FORBIDDEN")
            self.assertIn("Authorization: Bearer", answer.json["error"]["message"])
        for path in HEALTH:
            self.assertEqual(ask("GET", path).status, 200)

        # Whatever the request claims, the client's own address is charged.
        for context in ({"ip": "192.0.2.1"}, {"userId": "alice"}, {"apiKey": "k"},
                        {"attributes": {"plan": "free"}}, {"ip": OWN, "userId": "alice"}):
            check = {"ruleSet": "shop", "context": context}
            self.assert_error(ask("POST", "/api/v1/check", check), 403, "FORBIDDEN")
            batch = {"checks": [{"ruleSet": "shop"}, check]}
            self.assert_error(ask("POST", "/api/v1/check/batch", batch), 403, "FORBIDDEN")
        remaining = []
        for check in ({"ruleSet": "shop"},
                      {"ruleSet": "shop", "context": {"ip": OWN, "path": "/", "method": "GET"}}):
            answer = ask("POST", "/api/v1/check", check)
            self.assertEqual(answer.json["rules"][0]["key"], f"ip:{OWN}")
            remaining.append(answer.json["remaining"])
        batch = ask("POST", "/api/v1/check/batch", {"checks": [{"ruleSet": "shop"}]})
        remaining.append(batch.json["results"][0]["remaining"])
        self.assertEqual(remaining, [2, 1, 0])
        self.assertEqual(ask("GET", "/api/v1/authorize/shop").status, 429)

    def test_without_tokens(self):
        self.assert_own_only(self.serve(), {})

    def test_with_tokens(self):
        service = self.serve("--http-token-file", self.files / "tokens")
        # As passed on by a proxy whose clients have their own tokens.
        self.assert_own_only(service, bearer("of-somebody-else"))
        headers = bearer("secret")
        self.assertEqual(service.get(target(CHECK, key="k"), **headers).json["key"], "k")
        self.assertEqual(service.request("DELETE", target(RESET, key="k"), headers=headers).status,
                         200)
        self.assertEqual(service.get("/metrics", **headers).status, 200)
        answer = service.check("shop", headers=headers, ip="192.0.2.1", userId="alice")
        self.assertEqual(answer.json["remaining"], 2)


class Exposed(support.ServiceTest):
    """A door that listens beyond loopback and authenticates nobody warns when it starts."""

    NOBODY_ASKED = "whoever reaches this door may use it"
    IN_CLEAR = "tokens travel in clear"

    def warnings(self, *arguments):
        service = self.start("--log-format", "json", "--admin", "", *arguments, wait=False)
        eventually(lambda: service.log_lines("serving"), "it serves")
        found = {}
        for text in (self.NOBODY_ASKED, self.IN_CLEAR):
            found[text] = [door for door in ("http", "admin", "resp", "grpc")
                           for _ in service.log_lines('"level":"warn"', text, f'"door":"{door}"')]
        self.assertEqual(service.stop(), 0)
        return found

    def test_doors(self):
        files = self.folder()
        tokens = files.write("tokens", "secret")
        support.make_certificate(files, "ca")
        doors = ("http", "resp", "grpc")

        def each(host, *parts):
            for door in doors:
                yield from (f"--{door}", f"{host}:0")
                for flag, value in zip(parts[::2], parts[1::2]):
                    yield from (f"--{door}-{flag}", value)

        tls = ("tls-certificate", files / "ca.pem", "tls-key", files / "ca.key")
        nothing = {self.NOBODY_ASKED: [], self.IN_CLEAR: []}
        self.assertEqual(self.warnings(*each("127.0.0.1")), nothing)
        self.assertEqual(self.warnings(*each("127.0.0.1", "token-file", tokens)), nothing)
        self.assertEqual(self.warnings(*each("0.0.0.0")),
                         {self.NOBODY_ASKED: list(doors), self.IN_CLEAR: []})
        self.assertEqual(self.warnings(*each("0.0.0.0", *tls)),
                         {self.NOBODY_ASKED: list(doors), self.IN_CLEAR: []})
        self.assertEqual(self.warnings(*each("0.0.0.0", "token-file", tokens)),
                         {self.NOBODY_ASKED: [], self.IN_CLEAR: list(doors)})
        self.assertEqual(self.warnings(*each("0.0.0.0", "token-file", tokens, *tls)), nothing)
        self.assertEqual(self.warnings(*each("0.0.0.0", "tls-client-ca", files / "ca.pem", *tls)),
                         nothing)
        self.assertEqual(self.warnings("--http", "0.0.0.0:0", "--http-public", "true"), nothing)


class ClientCertificates(support.ServiceTest):
    """At the HTTP and RESP doors; that of gRPC is tested with its own client."""

    def setUp(self):
        self.files = self.folder()
        for name in ("server", "ca", "other"):
            support.make_certificate(self.files, name)
        support.make_client_certificate(self.files, "client", "ca")
        support.make_client_certificate(self.files, "stranger", "other")

    def serve(self, *arguments):
        flags = []
        for door in ("http", "resp"):
            flags += [f"--{door}-tls-certificate", self.files / "server.pem",
                      f"--{door}-tls-key", self.files / "server.key",
                      f"--{door}-tls-client-ca", self.files / "ca.pem"]
        service = self.start("--resp", "127.0.0.1:0", *flags, *arguments, wait=False)
        eventually(lambda: service.log_lines("serving"), "it serves")
        self.ports = service.announced()
        return service

    def context(self, name=None, newest=ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cafile=self.files / "server.pem")
        context.maximum_version = newest
        if name:
            context.load_cert_chain(self.files / f"{name}.pem", self.files / f"{name}.key")
        return context

    def get(self, path, name=None, headers=None):
        """The status; None if the connection is refused."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.ports["http"],
                                                 context=self.context(name),
                                                 timeout=support.PATIENCE)
        try:
            connection.request("GET", path, headers=headers or {})
            return connection.getresponse().status
        except (ssl.SSLError, ConnectionError):
            return None
        finally:
            connection.close()

    def ping(self, name=None, *login):
        """RESP's reply to PING; None if the connection is refused."""
        try:
            resp = Resp(self, self.ports["resp"], self.context(name))
            if login:
                resp.ask(*login)
            return resp.ask("PING")[:5] or None
        except (ssl.SSLError, ConnectionError):
            return None

    def test_are_needed_where_there_is_nothing_else(self):
        self.serve()
        self.assertEqual([self.get(CHECK, name) for name in (None, "stranger", "client")],
                         [None, None, 200])
        self.assertEqual([self.ping(name) for name in (None, "stranger", "client")],
                         [None, None, "+PONG"])

    def test_are_as_good_as_a_token(self):
        tokens = self.files.write("tokens", "secret")
        self.serve("--http-token-file", tokens, "--resp-token-file", tokens)
        self.assertEqual([self.get(CHECK, name) for name in (None, "stranger", "client")],
                         [401, None, 200])
        self.assertEqual(self.get(CHECK, headers=bearer("secret")), 200)
        self.assertEqual(self.get("/health"), 200)
        self.assertEqual([self.ping(name) for name in (None, "stranger", "client")],
                         ["-NOAU", None, "+PONG"])
        self.assertEqual(self.ping(None, "AUTH", "secret"), "+PONG")

    def test_at_a_public_door(self):
        self.serve("--http-public", "true")
        keyed = target(CHECK, key="k")
        self.assertEqual([self.get(CHECK), self.get(keyed), self.get(keyed, "client")],
                         [200, 403, 200])

    def test_sessions_are_resumed(self):
        self.serve()
        for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = self.context("client", newest)
            session = None
            for resumed in (False, True):
                with socket.create_connection(("127.0.0.1", self.ports["http"]),
                                              support.PATIENCE) as plain:
                    with context.wrap_socket(plain, server_hostname="127.0.0.1",
                                             session=session) as secure:
                        secure.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                        self.assertTrue(secure.recv(65536).startswith(b"HTTP/1.1 200"))
                        self.assertEqual(secure.session_reused, resumed, newest)
                        session = secure.session

    def test_their_authority_is_read_again(self):
        service = self.serve()
        os.replace(self.files / "other.pem", self.files / "ca.pem")
        self.assertEqual(service.admin_at(self.ports["admin"], "POST", "/admin/v1/reload").status,
                         200)
        self.assertEqual([self.get(CHECK, name) for name in ("client", "stranger")], [None, 200])
        self.assertEqual([self.ping(name) for name in ("client", "stranger")], [None, "+PONG"])
        self.files.write("ca.pem", "none")
        answer = service.admin_at(self.ports["admin"], "POST", "/admin/v1/reload")
        self.assertEqual(answer.status, 400)
        self.assertIn("no certificate in PEM format", answer.json["error"]["problems"][0]["message"])
        self.assertEqual(self.get(CHECK, "stranger"), 200)


class Validate(support.ServiceTest):
    def test_reports_tokens_and_authorities(self):
        files = self.folder()
        files.write("tokens", "name secret\nname sec ret")
        support.make_certificate(files, "own")
        files.write("ca.pem", "none")
        config = files.write("main.yaml", f"""http:
  tokenFile: {files / "tokens"}
  tlsCertificate: {files / "own.pem"}
  tlsKey: {files / "own.key"}
  tlsClientCa: {files / "ca.pem"}
grpc: {{tokenFile: {files / "missing"}}}
resp: {{tlsClientCa: {files / "own.pem"}}}
admin: {{tokenFile: {files / "tokens"}}}
""")
        done = support.sluice("validate", config)
        self.assertEqual(done.returncode, 2)
        for line in (":2:14: http.tokenFile: .*tokens: line 2: expected a token",
                     ":5:16: http.tlsClientCa: .*no certificate in PEM format",
                     ":6:19: grpc.tokenFile: .*No such file",
                     ":7:21: resp.tlsClientCa: expected resp.tlsCertificate, too",
                     ":8:20: admin.tokenFile: .*line 2"):
            self.assertRegex(done.stdout + done.stderr, line)
        self.assertNotIn("sec ret", done.stdout + done.stderr)
        for arguments in (("--http-token-file", files / "tokens"),
                          ("--resp-token-file", files / "missing", "--resp", "127.0.0.1:0")):
            done = support.sluice("serve", "--http", "127.0.0.1:0", "--admin", "", *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(".tokenFile", done.stdout + done.stderr)


if __name__ == "__main__":
    support.main()
