# SPDX-License-Identifier: Apache-2.0
"""The service behind proxies: whom it trusts, and real ones: nginx, Caddy and Traefik, with the
files of deploy/.

Usage: service_proxy_test.py PROGRAM
"""

import http.server
import os
import pathlib
import shutil
import subprocess
import threading
import unittest

import support
from support import AGES, RawConnection, eventually, free_port, parse_field, target

CHECK = "/api/v1/rate-limit/check"
TRAEFIK = pathlib.Path(__file__).with_name("traefik") / "site" / "bin" / "traefik"

RULES = f"""ruleSets:
  - id: api
    rules:
      - id: orders
        scope: PER_IP
        match: {{methods: [POST], paths: ["/orders/**"]}}
        bands: [{{label: few, algorithm: FIXED_WINDOW, limit: 2, window: {AGES}}}]
      - id: puts
        scope: GLOBAL
        match: {{methods: [PUT], paths: ["/**"]}}
        bands: [{{label: few, algorithm: FIXED_WINDOW, limit: 2, window: {AGES}}}]
      - id: login
        scope: GLOBAL
        match: {{paths: ["/login"]}}
        bands: [{{label: once, algorithm: FIXED_WINDOW, limit: 1, window: {AGES}}}]
      - id: mall
        scope: GLOBAL
        match: {{attributes: {{host: mall.example}}}}
        bands: [{{label: once, algorithm: FIXED_WINDOW, limit: 1, window: {AGES}}}]
      - id: users
        scope: PER_USER
        bands: [{{label: u, algorithm: FIXED_WINDOW, limit: 2, window: {AGES}}}]
      - id: keys
        scope: PER_API_KEY
        bands: [{{label: k, algorithm: FIXED_WINDOW, limit: 2, window: {AGES}}}]
  - id: closed
    rules:
      - {{id: all, scope: GLOBAL, bands: [{{label: one, algorithm: FIXED_WINDOW, limit: 1,
                                           window: {AGES}}}]}}
"""


class KeyTest(support.SharedServiceTest):
    RULES = RULES

    def key(self, *headers):
        """The key that a request with these headers is counted under."""
        with RawConnection(self.service.port) as connection:
            lines = "".join(f"{line}\r\n" for line in headers)
            connection.send(f"GET {CHECK} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode("latin-1"))
            answer = connection.read_answer()
        self.assertEqual(answer.status, 200)
        return answer.json["key"]

    def authorize(self, **headers):
        return self.service.request("GET", "/api/v1/authorize/api",
                                    headers=support.header_names(headers))


class UntrustedPeer(KeyTest):
    ARGUMENTS = ("--trusted-proxies", "192.0.2.0/24,2001:db8::/32", "--trusted-headers",
                 "X-Forwarded-For,X-Real-IP,Forwarded,X-User-Id,X-API-Key")

    def test_forwarded_addresses_are_ignored(self):
        for line in ("X-Forwarded-For: 203.0.113.1", "X-Real-IP: 203.0.113.1",
                     "Forwarded: for=203.0.113.1", "X-Forwarded-For: 192.0.2.1",
                     "X-Client-IP: 203.0.113.1", "True-Client-IP: 203.0.113.1"):
            self.assertEqual(self.key(line), "127.0.0.1", line)

    def test_identities_are_ignored(self):
        for _ in range(5):
            answer = self.authorize(X_User_Id="victim", X_API_Key="victim")
            self.assertEqual(answer.json["message"], "No rule applied")
        self.assertEqual(self.service.check("api", permits=0, userId="victim").json["remaining"], 2)

    def test_an_explicit_key_is_the_callers_choice(self):
        answer = self.service.get(target(CHECK, key="mine"), X_Forwarded_For="203.0.113.1")
        self.assertEqual(answer.json["key"], "mine")


class NobodyIsTrusted(KeyTest):
    def test_by_default(self):
        self.assertEqual(self.key("X-Forwarded-For: 203.0.113.1", "X-Real-IP: 203.0.113.2"),
                         "127.0.0.1")
        self.assertEqual(self.authorize(X_User_Id="u").json["message"], "No rule applied")


class TrustedPeer(KeyTest):
    ARGUMENTS = ("--trusted-proxies", "127.0.0.0/8, 10.0.0.0/8, 2001:db8::/32")

    def test_the_walk_from_the_right(self):
        for value, client in (
                ("203.0.113.1", "203.0.113.1"),
                ("203.0.113.1, 10.0.0.1", "203.0.113.1"),
                ("203.0.113.1, 10.0.0.1, 127.0.0.1", "203.0.113.1"),
                ("6.6.6.6, 203.0.113.1", "203.0.113.1"),             # The left one is forged.
                ("6.6.6.6, 10.0.0.9, 203.0.113.1, 10.0.0.1", "203.0.113.1"),
                ("10.0.0.2, 10.0.0.1", "10.0.0.2"),
                ("203.0.113.1:4711", "203.0.113.1"),
                ("  203.0.113.1  ,, ", "203.0.113.1"),
                ("203.0.113.1, unknown", "127.0.0.1"),
                ("203.0.113.1, 10.0.0.1, garbage", "127.0.0.1"),
                ("203.0.113.1, garbage, 10.0.0.7", "10.0.0.7"),
                ("", "127.0.0.1"),
                ("::ffff:203.0.113.1", "203.0.113.1")):
            with self.subTest(value):
                self.assertEqual(self.key(f"X-Forwarded-For: {value}"), client)

    def test_several_lines_are_one(self):
        self.assertEqual(self.key("X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 203.0.113.5",
                                  "x-forwarded-for: 10.0.0.1"), "203.0.113.5")

    def test_ipv6_clients_are_networks(self):
        one = self.key("X-Forwarded-For: 2001:0DC8:1:2:3:4:5:6")
        self.assertEqual(one, self.key('X-Forwarded-For: [2001:dc8:1:2:ffff::1]:443'))
        self.assertNotEqual(one, self.key("X-Forwarded-For: 2001:dc8:1:3::1"))
        self.assertEqual(self.key("X-Forwarded-For: 203.0.113.1, 2001:db8::7"), "203.0.113.1")

    def test_x_real_ip(self):
        self.assertEqual(self.key("X-Real-IP: 203.0.113.9"), "203.0.113.9")
        self.assertEqual(self.key("X-Real-IP: garbage"), "127.0.0.1")
        self.assertEqual(self.key("X-Real-IP: 6.6.6.6", "X-Forwarded-For: 203.0.113.1"),
                         "203.0.113.1")

    def test_addresses_alone_are_believed(self):
        for _ in range(5):
            answer = self.authorize(X_User_Id="victim", X_API_Key="victim")
            self.assertEqual(answer.json["message"], "No rule applied")
        self.assertEqual(self.service.check("api", permits=0, userId="victim").json["remaining"], 2)
        self.assertEqual(self.service.check("api", permits=0, apiKey="victim").json["remaining"], 2)
        self.assertEqual(self.key("Forwarded: for=203.0.113.1"), "127.0.0.1")

    def test_a_request_that_is_described_twice_is_refused(self):
        for first, second in (("X-Forwarded-Uri", "X-Original-URI"),
                              ("X-Original-URL", "X-Forwarded-Uri"),
                              ("X-Forwarded-Method", "X-Original-Method")):
            answer = self.service.request("GET", "/api/v1/authorize/api",
                                          headers={first: "/a", second: "/b"})
            self.assertEqual((answer.status, answer.json["error"]["code"]),
                             (400, "INVALID_REQUEST"))

    def test_many_lines_are_bounded(self):
        forged = ["X-Forwarded-For: 6.6.6.6"] * 80
        self.assertEqual(self.key(*forged, "X-Forwarded-For: 203.0.113.1"), "203.0.113.1")

    def test_hostile_lines_do_no_harm(self):
        for value in ("," * 4000, "1" * 4000, "\xff\xfe", '"', "[", "[::1", "::::", "999.1.1.1",
                      "0x7f.1", "127.1", "203.0.113.1\t"):
            self.assertIn(self.key(f"X-Forwarded-For: {value}"), ("127.0.0.1", "203.0.113.1"))


class TrustedHeaders(KeyTest):
    ARGUMENTS = ("--trusted-proxies", "127.0.0.1", "--trusted-headers", "x-real-ip, X-User-Id")

    def test_each_is_believed_on_its_own(self):
        self.assertEqual(self.key("X-Forwarded-For: 203.0.113.1"), "127.0.0.1")
        self.assertEqual(self.key("X-Forwarded-For: 6.6.6.6", "X-Real-IP: 203.0.113.9"),
                         "203.0.113.9")
        statuses = [self.authorize(X_User_Id="ann").status for _ in range(3)]
        self.assertEqual(statuses, [200, 200, 429])
        statuses = [self.authorize(X_API_Key="key").status for _ in range(3)]
        self.assertEqual(statuses, [200, 200, 200])

    def test_two_users_are_refused(self):
        with RawConnection(self.service.port) as connection:
            connection.send(b"GET /api/v1/authorize/api HTTP/1.1\r\nHost: x\r\n"
                            b"X-User-Id: mine\r\nX-User-Id: yours\r\n\r\n")
            answer = connection.read_answer()
        self.assertEqual((answer.status, answer.json["error"]["code"]), (400, "INVALID_REQUEST"))

    def test_names_that_are_not_known_are_refused(self):
        done = support.sluice("serve", "--trusted-headers", "X-Client-IP")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("X-Client-IP", done.stderr)


class TrustedApiKey(KeyTest):
    ARGUMENTS = ("--trusted-proxies", "127.0.0.1", "--trusted-headers", "X-API-Key")

    def test_it_counts_and_users_do_not(self):
        statuses = [self.authorize(X_API_Key="key").status for _ in range(3)]
        self.assertEqual(statuses, [200, 200, 429])
        statuses = [self.authorize(X_User_Id="ann").status for _ in range(3)]
        self.assertEqual(statuses, [200, 200, 200])


class Ipv6Prefix(KeyTest):
    ARGUMENTS = ("--trusted-proxies", "127.0.0.1", "--ipv6-prefix", "128")

    def test_it_can_be_the_address_itself(self):
        self.assertNotEqual(self.key("X-Forwarded-For: 2001:dc8::1"),
                            self.key("X-Forwarded-For: 2001:dc8::2"))


class Application(http.server.ThreadingHTTPServer):
    """The application behind the proxy: reports what it got, and counts."""

    def __init__(self):
        self.requests = []
        self.headers = []  # Of each.

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.server.requests.append((self.command, self.path, body))
                self.server.headers.append(self.headers)
                status = 403 if self.path == "/own-403" else 200
                self.send_response(status)
                text = b"app:" + body
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = answer

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    def stop(self):
        self.shutdown()
        self.thread.join()
        self.server_close()


class BehindProxy:
    """The same expectations of every real proxy. It removes what clients write, so that all headers
    can be trusted."""

    SHOWS_LIMITS = True  # To clients that pass.

    def setUp(self):
        folder = self.folder()
        self.service = self.start("--rules", folder.write("rules.yaml", RULES),
                                  "--trusted-proxies", "127.0.0.1/32", "--trusted-headers",
                                  "X-Forwarded-For,X-Real-IP,Forwarded,X-User-Id,X-API-Key")
        self.application = Application()
        self.addCleanup(self.application.stop)
        self.port = free_port()
        self.proxy = self.start_proxy(folder)
        self.addCleanup(self.proxy.remove)
        eventually(self.proxy_answers, "the proxy answers")
        self.application.requests.clear()

    def proxy_answers(self):
        if not self.proxy.running():
            raise AssertionError(f"the proxy ended: {self.proxy.log()}")
        try:
            return self.ask("GET", "/up").status == 200
        except OSError:
            return False

    def ask(self, method, path, body=None, headers=None):
        client = support.Client(self.port)
        try:
            return client.request(method, path, body, headers)
        finally:
            client.close()

    def test_requests_pass_until_the_limit(self):
        answers = [self.ask("POST", "/orders/1?x=y", "body") for _ in range(4)]
        self.assertEqual([answer.status for answer in answers], [200, 200, 429, 429])
        # The application saw all of what passed, once, and nothing of the rest.
        self.assertEqual(self.application.requests, [("POST", "/orders/1?x=y", b"body")] * 2)
        self.assertEqual(answers[2].header("X-RateLimit-Remaining"), "0")
        if self.SHOWS_LIMITS:
            self.assertEqual([answer.header("X-RateLimit-Remaining") for answer in answers],
                             ["1", "0", "0", "0"])
        for answer in answers if self.SHOWS_LIMITS else answers[2:]:
            self.assertEqual(answer.header("X-RateLimit-Limit"), "2")
            self.assertEqual(list(parse_field(answer.header("RateLimit-Policy"))),
                             ["api/orders/few"])
            self.assertIn("r", parse_field(answer.header("RateLimit"))["api/orders/few"])
        self.assertIsNone(answers[0].header("Retry-After"))
        self.assertGreater(int(answers[2].header("Retry-After")), 0)
        self.assertIs(answers[2].json["allowed"], False)
        self.assertEqual(answers[2].json["message"], "Rate limit exceeded")

    def test_other_requests_pass_without_a_limit(self):
        for _ in range(5):
            answer = self.ask("GET", "/orders/1")
            self.assertEqual((answer.status, answer.body), (200, b"app:"))
            self.assertIn(answer.header("RateLimit"), (None, ""))

    def test_the_client_is_the_proxys_peer_whatever_it_writes(self):
        forged = {"X-Forwarded-For": "6.6.6.6", "X-Real-IP": "6.6.6.6", "X-User-Id": "victim",
                  "X-API-Key": "victim", "X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/free",
                  "X-Original-URI": "/free", "X-Original-Method": "GET",
                  "X-Original-URL": "http://x/free", "X-Forwarded-Host": "elsewhere",
                  "Forwarded": "for=6.6.6.6"}
        statuses = []
        for number in range(4):
            forged["X-Forwarded-For"] = f"6.6.6.{number}"
            statuses.append(self.ask("POST", "/orders/2", "", forged).status)
        self.assertEqual(statuses, [200, 200, 429, 429])
        for key in ("user:victim", "apikey:victim"):
            inspected = self.service.admin("GET", f"/admin/v1/rule-sets/api/keys?key={key}").json
            self.assertEqual(inspected["bands"][0]["remaining"], 2, key)

    def ask_raw(self, method, target):
        """The status of a request for exactly this target."""
        with RawConnection(self.port) as connection:
            connection.send(f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
                            "Content-Length: 0\r\nConnection: close\r\n\r\n".encode("latin-1"))
            return int(connection.read_until_closed().split(b" ", 2)[1])

    def test_a_target_without_a_path_has_one(self):
        host = f"http://127.0.0.1:{self.port}"
        targets = (f"{host}?x", f"{host}?/..", host, "/?x", f"{host}?x", "//?x", f"{host}/a", "/b#c")
        statuses = [self.ask_raw("PUT", target) for target in targets]
        # A fragment is not part of a target: a proxy may refuse it by itself.
        self.assertIn(statuses.pop(), (400, 429))
        self.assertEqual(statuses, [200, 200] + [429] * (len(targets) - 3))
        self.assertEqual(len(self.application.requests), 2)

    def test_other_spellings_of_a_path_are_that_path(self):
        targets = ("/login;1%2Fb", "/login;2%2Fb", "/login;%5C", "/login%3B3", "/x/..;/login",
                   "/x/%2e%2e/login", "/%6cogin", "/%256cogin", "/log%FFin", "/login%0A", "//login", "/login/?x",
                   "/login")
        statuses = [self.ask_raw("GET", target) for target in targets]
        self.assertEqual(statuses, [200] + [429] * (len(targets) - 1))
        self.assertEqual(len(self.application.requests), 1)

    def test_a_path_that_nobody_can_read_does_not_pass(self):
        self.assertIn(self.ask_raw("GET", "/%" + "25" * 500), (400, 500))
        self.assertEqual(self.application.requests, [])

    def test_sluice_does_not_see_what_clients_show_the_application(self):
        recorder = Application()
        self.addCleanup(recorder.stop)
        self.put_to(recorder.server_port)
        secrets = {"Authorization": "Bearer mine", "Cookie": "session=mine", "X-API-Key": "mine"}
        self.assertEqual(self.ask("GET", "/x", headers=secrets).status, 200)
        self.assertNotIn("mine", str(recorder.headers[-1]))
        self.assertEqual(self.application.headers[-1]["Authorization"], "Bearer mine")

    def put_to(self, port):
        """Restarts the proxy with another Sluice."""
        self.proxy.remove()
        self.service.port = port
        self.port = free_port()
        self.proxy = self.start_proxy(self.folder())
        self.addCleanup(self.proxy.remove)
        eventually(self.proxy_answers, "the proxy answers")

    def test_the_application_keeps_its_own_403(self):
        answer = self.ask("GET", "/own-403")
        self.assertEqual((answer.status, answer.body), (403, b"app:"))

    def test_many_at_once(self):
        statuses = support.in_threads(20, lambda _: self.ask("POST", "/orders/x", "b").status)
        self.assertEqual((statuses.count(200), statuses.count(429)), (2, 18))
        self.assertEqual(len(self.application.requests), 2)


class Nginx(BehindProxy, support.ServiceTest):
    conf = support.REPOSITORY / "deploy" / "nginx" / "sluice.conf"

    def start_proxy(self, folder):
        for name in ("body", "proxy", "fastcgi", "uwsgi", "scgi"):
            os.mkdir(folder / name)
        config = folder.write("nginx.conf", f"""
daemon off;
# One process: a worker would outlive a killed master.
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream sluice {{ server 127.0.0.1:{self.service.port}; keepalive 32; }}
  upstream app {{ server 127.0.0.1:{self.application.server_port}; }}
  server {{
    listen 127.0.0.1:{self.port};
    set $sluice_rule_set api;
    include {self.conf};
    location / {{ proxy_pass http://app; }}
    location /free/ {{ auth_request off; proxy_pass http://app; }}
  }}
}}
""")
        return support.Process([shutil.which("nginx") or "/usr/sbin/nginx", "-p", str(folder),
                                "-e", folder / "error.log", "-c", config])

    def test_the_inner_location_is_not_for_clients(self):
        self.assertEqual(self.ask("GET", "/_sluice").status, 404)

    def test_it_shows_its_own_token(self):
        folder = self.folder()
        tokens = folder.write("tokens", "nginx of-nginx\n")
        guarded = self.start("--rules", folder.write("rules.yaml", RULES), "--http-token-file", tokens,
                             "--trusted-proxies", "127.0.0.1/32", token="of-nginx")
        shown = replace_once((support.REPOSITORY / "deploy/nginx/sluice.conf").read_text(),
                             'Authorization      ""', 'Authorization      "Bearer of-nginx"')
        self.conf = folder.write("sluice.conf", shown)
        self.put_to(guarded.port)
        statuses = [self.ask("POST", "/orders/4", "", {"Authorization": "Bearer of-client"}).status
                    for _ in range(3)]
        self.assertEqual(statuses, [200, 200, 429])

    def test_a_long_head_does_not_fail(self):
        head = {f"X-{i}": "a" * 7_000 for i in range(3)}
        self.assertEqual([self.ask("POST", "/orders/5", "", head).status for _ in range(3)],
                         [200, 200, 429])

    def test_a_location_can_be_left_out(self):
        self.assertEqual(self.ask("GET", "/free/x").status, 200)
        self.assertIsNone(self.ask("GET", "/free/x").header("RateLimit"))

    def test_requests_pass_while_sluice_is_not_there(self):
        self.service.kill()
        for _ in range(3):
            self.assertEqual(self.ask("POST", "/orders/3", "b").status, 200)


class Caddy(BehindProxy, support.ServiceTest):
    def start_proxy(self, folder):
        config = folder.write("Caddyfile", f"""
{{
	admin off
	auto_https off
}}
import {support.REPOSITORY}/deploy/caddy/Caddyfile
http://127.0.0.1:{self.port} {{
	import sluice 127.0.0.1:{self.service.port} api
	reverse_proxy 127.0.0.1:{self.application.server_port}
}}
""")
        return support.Process(["caddy", "run", "--config", config, "--adapter", "caddyfile"],
                               env={"HOME": str(folder), "XDG_DATA_HOME": str(folder),
                                    "XDG_CONFIG_HOME": str(folder)})


def replace_once(text, old, new):
    if text.count(old) != 1:
        raise AssertionError(f"{old!r} is there {text.count(old)} times")
    return text.replace(old, new)


@unittest.skipUnless(os.access(TRAEFIK, os.X_OK),
                     f"there is no {TRAEFIK}; tools/setup_proxies installs it")
class Traefik(BehindProxy, support.ServiceTest):
    SHOWS_LIMITS = False

    def start_proxy(self, folder):
        deploy = support.REPOSITORY / "deploy" / "traefik"
        routes = (deploy / "routes.yaml").read_text()
        routes = replace_once(routes, "127.0.0.1:8080", f"127.0.0.1:{self.service.port}")
        routes = replace_once(routes, "127.0.0.1:3000",
                              f"127.0.0.1:{self.application.server_port}")
        config = (deploy / "traefik.yaml").read_text()
        config = replace_once(config, "address: 127.0.0.1:8000", f"address: 127.0.0.1:{self.port}")
        config = replace_once(config, "filename: deploy/traefik/routes.yaml",
                              f"filename: {folder.write('routes.yaml', routes)}")
        return support.Process([str(TRAEFIK),
                                f"--configFile={folder.write('traefik.yaml', config)}"])

    def test_the_application_learns_of_no_identity_that_a_client_claims(self):
        self.application.headers.clear()
        self.ask("GET", "/x", headers={"X-User-Id": "victim", "x-api-key": "victim",
                                       "X-Forwarded-For": "6.6.6.6", "X-Own": "kept"})
        (headers,) = self.application.headers
        self.assertIsNone(headers["X-User-Id"])
        self.assertIsNone(headers["X-API-Key"])
        self.assertEqual((headers["X-Own"], headers["X-Forwarded-For"]), ("kept", "127.0.0.1"))

    def test_requests_fail_while_sluice_is_not_there(self):
        self.service.kill()
        self.assertEqual(self.ask("GET", "/x").status, 500)
        self.assertEqual(self.application.requests, [])


class TraefikHeaders(support.ServiceTest):
    """Its ForwardAuth: a GET with these headers; 2xx passes, any other answer goes to the
    client."""

    def test_headers_as_it_sends_them(self):
        service = self.start("--rules", self.folder().write("rules.yaml", RULES),
                             "--trusted-proxies", "127.0.0.1/32")
        headers = {"X-Forwarded-Method": "POST", "X-Forwarded-Proto": "http",
                   "X-Forwarded-Host": "shop.example", "X-Forwarded-Uri": "/orders/7?a=b",
                   "X-Forwarded-For": "203.0.113.77", "User-Agent": "curl", "Accept": "*/*"}
        answers = [service.request("GET", "/api/v1/authorize/api", headers=headers)
                   for _ in range(3)]
        self.assertEqual([answer.status for answer in answers], [200, 200, 429])
        self.assertGreater(int(answers[2].header("Retry-After")), 0)
        for name in ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
                     "RateLimit", "RateLimit-Policy"):
            self.assertIsNotNone(answers[2].header(name), name)


class Spellings(support.SharedServiceTest):
    """The same path at every door that takes one."""
    RULES = RULES
    ARGUMENTS = ("--trusted-proxies", "127.0.0.0/8", "--resp", "127.0.0.1:0")

    def applied(self, path):
        """The rules that apply to a PUT for this path, according to each door."""
        check = self.service.check("api", permits=0, method="PUT", path=path)
        by_check = [rule["rule"] for rule in check.json["rules"]]
        headers = {"X-Forwarded-Method": "PUT", "X-Forwarded-Uri": path}
        answer = self.service.request("GET", "/api/v1/authorize/api?permits=0", headers=headers)
        policies = parse_field(answer.header("RateLimit-Policy"))
        self.assertEqual([policy.split("/")[1] for policy in policies], by_check, path)
        peek = subprocess.run(["redis-cli", "-p", str(self.service.resp_port), "SLUICE.PEEK",
                               "RULESET", "api", "METHOD", "PUT", "PATH", path, "DETAIL"],
                              capture_output=True, text=True, timeout=support.PATIENCE, check=True)
        lines = peek.stdout.splitlines()
        by_peek = [value for name, value in zip(lines, lines[1:]) if name == "rule"]
        self.assertEqual(by_peek, by_check, path)
        return by_check

    def test_targets_without_a_path(self):
        for path in ("?x", "http://h?x", "http://h?/..", "//h?x", "", "*", "http://h#x", "h:443",
                     "http://[::1]:80", "HTTPS://u:p@h", "garbage", "/"):
            self.assertEqual(self.applied(path), ["puts"], path)

    def test_spellings(self):
        for path in ("/login;1%2Fb", "/login;%5C", "http://h/login;1%2Fb", "login", "/%256Cogin",
                     "/log%FFin", "/login%0A", "/(S(x))/login"):
            self.assertEqual(self.applied(path), ["puts", "login"], path)

    def test_hosts(self):
        for header in ("X-Forwarded-Host", "Host"):
            for host in ("mall.example", "MALL.Example", "mall.example:80", "Mall.example.:8443"):
                answer = self.service.request("GET", "/api/v1/authorize/api?permits=0",
                                              headers={header: host})
                policies = parse_field(answer.header("RateLimit-Policy") or '"none"')
                self.assertEqual(list(policies), ["api/mall/once"], (header, host))

    def test_an_empty_header_is_a_path(self):
        headers = {"X-Forwarded-Method": "PUT", "X-Forwarded-Uri": ""}
        path = "/api/v1/authorize/api?permits=0"
        answer = self.service.request("GET", path, headers=headers)
        self.assertEqual(list(parse_field(answer.header("RateLimit-Policy"))), ["api/puts/few"])
        # Beside another header, it may be the client's own, or that other one.
        headers["X-Original-URI"] = "/login"
        self.assertEqual(self.service.request("GET", path, headers=headers).status, 400)


if __name__ == "__main__":
    support.main()
