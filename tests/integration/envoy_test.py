# SPDX-License-Identifier: Apache-2.0
"""The gRPC door behind a real Envoy, with the files of deploy/envoy.

Usage: envoy_test.py PROGRAM
"""

import http.client
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

import support
from support import PATIENCE, Process, eventually, free_port

ENVOY = pathlib.Path(__file__).with_name("envoy") / "site" / "envoy" / "_bin" / "envoy"
DEPLOY = support.REPOSITORY / "deploy" / "envoy"
SKIPPED = 77  # As tests/CMakeLists.txt has it.


class Application(http.server.BaseHTTPRequestHandler):
    """Answers "ok" or, like a language model, with as many tokens as it is told to use."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body, used = b"ok", self.headers.get("x-use-tokens")
        self.send_response(200)
        if used:
            body = json.dumps({"choices": [], "usage": {"total_tokens": int(used)}}).encode()
            self.send_header("Content-Type", "application/json")
            if allowed := self.headers.get("x-max-tokens"):
                self.send_header("x-tokens-unused", str(int(allowed) - int(used)))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_):
        pass


def replace_once(text, old, new):
    if text.count(old) != 1:
        raise AssertionError(f"{old!r} is there {text.count(old)} times")
    return text.replace(old, new)


def yearly(limits):
    """The same limits with a window that no test run sees the end of."""
    return re.sub(r"\bunit: \w+", "unit: year", limits)


class BehindEnvoy(support.ServiceTest):
    def setUp(self):
        super().setUp()
        self.files = self.folder()
        self.application = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Application)
        threading.Thread(target=self.application.serve_forever).start()
        self.addCleanup(self.application.server_close)
        self.addCleanup(self.application.shutdown)
        self.grpc_port = free_port()
        for path in (DEPLOY / "limits").iterdir():
            self.files.write(f"limits/{path.name}", yearly(path.read_text()))

    def start_sluice(self, *arguments):
        return self.start("--grpc", f"127.0.0.1:{self.grpc_port}", "--grpc-headers=true",
                          "--rls-config", self.files / "limits", *arguments)

    def start_envoy(self, sluice_tls="", metadata="", config="envoy.yaml", change=lambda text: text):
        """Starts Envoy, and waits until it considers Sluice healthy."""
        self.front, admin = free_port(), free_port()
        config = change((DEPLOY / config).read_text())
        config = replace_once(config, "port_value: 10000", f"port_value: {self.front}")
        config = replace_once(config, "port_value: 3000",
                              f"port_value: {self.application.server_port}")
        config = replace_once(config, "port_value: 8081", f"port_value: {self.grpc_port}")
        # The machine may be busy, and failures should be visible.
        for timeout in ("timeout: 0.02s", "timeout: 1s"):
            config = replace_once(config, timeout, f"timeout: {PATIENCE:.0f}s")
        config = replace_once(config, "failure_mode_deny: false", "failure_mode_deny: true")
        config = replace_once(config, "      health_checks:", sluice_tls + "      health_checks:")
        config = replace_once(config, "{envoy_grpc: {cluster_name: sluice}",
                              "{envoy_grpc: {cluster_name: sluice}" + metadata)
        config += f"admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {admin}}}}}}}\n"
        envoy = Process([str(ENVOY), "--use-dynamic-base-id", "--concurrency", "1",
                         "-c", self.files.write("envoy.yaml", config)])
        self.addCleanup(envoy.remove)
        self.admin_port = admin

        def is_up():
            self.assertTrue(envoy.running(), envoy.log())
            try:
                return "::health_flags::healthy" in self.sluice_in_envoy()
            except OSError:
                return False
        eventually(is_up, "Envoy finds Sluice healthy")

    def sluice_in_envoy(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=PATIENCE)
        try:
            connection.request("GET", "/clusters")
            lines = connection.getresponse().read().decode().splitlines()
        finally:
            connection.close()
        return "\n".join(line for line in lines if line.startswith("sluice::"))

    def ask(self, path="/", method="GET", **headers):
        """What a client gets: the status, and the headers by lower-case name."""
        connection = http.client.HTTPConnection("127.0.0.1", self.front, timeout=PATIENCE)
        try:
            connection.request(method, path, headers=support.header_names(headers))
            response = connection.getresponse()
            response.read()
            return response.status, {name.lower(): value for name, value in response.getheaders()}
        finally:
            connection.close()

    def statuses(self, count, *arguments, **named):
        return [self.ask(*arguments, **named)[0] for _ in range(count)]


class Edge(BehindEnvoy):
    def test_limits_what_envoy_describes(self):
        self.start_sluice()
        self.start_envoy()
        self.assertEqual(self.statuses(3, "/free"), [200] * 3)

        # Three entries, and only for POST.
        self.assertEqual(self.statuses(5, "/login", "POST"), [200] * 5)
        status, headers = self.ask("/login", "POST")
        self.assertEqual(status, 429)
        self.assertEqual(headers["x-envoy-ratelimited"], "true")
        self.assertEqual(headers["x-ratelimit-limit"], "5")
        self.assertEqual(headers["x-ratelimit-remaining"], "0")
        self.assertEqual(headers["ratelimit-policy"], '"login";q=5;w=31536000')
        self.assertRegex(headers["ratelimit"], r'^"login";r=0;t=\d+$')
        self.assertGreater(int(headers["retry-after"]), 0)
        self.assertEqual(self.ask("/login")[0], 200)

        # A budget for each value.
        status, headers = self.ask(x_api_key="ann")
        self.assertEqual((status, headers["x-ratelimit-remaining"]), (200, "599"))
        self.assertEqual(self.ask(x_api_key="bob")[1]["x-ratelimit-remaining"], "599")
        self.assertEqual(self.ask(x_api_key="ann")[1]["x-ratelimit-remaining"], "598")

        # Five at once.
        self.assertEqual(self.statuses(11, "/search?q=x"), [200] * 10 + [429])

        # Several descriptors in one request: the tightest is reported.
        status, headers = self.ask("/search?q=x", x_api_key="ann")
        self.assertEqual((status, headers["x-ratelimit-limit"]), (429, "50"))

    def test_follows_the_files(self):
        sluice = self.start_sluice()
        self.start_envoy()
        self.assertEqual(self.statuses(6, "/login", "POST"), [200] * 5 + [429])
        limits = yearly((DEPLOY / "limits" / "edge.yaml").read_text())
        self.files.replace("limits/edge.yaml",
                            replace_once(limits, "requests_per_unit: 5}",
                                         "requests_per_unit: 7}"))
        eventually(lambda: sluice.generation() == 2, "the change is in force")
        self.assertEqual(self.statuses(3, "/login", "POST"), [200] * 2 + [429])

    def test_hears_of_its_end_and_of_its_return(self):
        sluice = self.start_sluice()
        self.start_envoy()
        self.assertEqual(self.ask(x_api_key="ann")[0], 200)
        self.assertEqual(sluice.stop(), 0)
        eventually(lambda: "failed_active_hc" in self.sluice_in_envoy(), "Envoy has noticed")
        self.assertEqual(self.ask(x_api_key="ann")[0], 500)
        self.start_sluice()
        eventually(lambda: "::health_flags::healthy" in self.sluice_in_envoy(), "it is back")
        self.assertEqual(self.ask(x_api_key="ann")[0], 200)

    def test_a_store_that_fails_is_an_error_and_no_denial(self):
        store = ("--store", f"redis://127.0.0.1:{free_port()}")
        closed = self.start_sluice(*store, "--grpc-on-store-failure", "FAIL_CLOSED")
        self.start_envoy()
        self.assertEqual(self.ask(x_api_key="ann")[0], 500)
        self.assertEqual(self.ask("/free")[0], 200)
        closed.stop()
        self.start_sluice(*store, "--grpc-on-store-failure", "FAIL_OPEN")
        eventually(lambda: self.ask(x_api_key="ann")[0] == 200, "it passes")

    def test_speaks_tls_with_envoy(self):
        certificate, key = self.files / "cert.pem", self.files / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
             "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out",
             certificate], check=True, capture_output=True)
        self.start_sluice("--grpc-tls-certificate", certificate, "--grpc-tls-key", key)
        self.start_envoy(f"""      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          sni: localhost
          common_tls_context:
            validation_context: {{trusted_ca: {{filename: {certificate}}}}}
""")
        self.assertEqual(self.statuses(6, "/login", "POST"), [200] * 5 + [429])

    def test_shows_a_token(self):
        self.start_sluice("--grpc-token-file", self.files.write("tokens", "envoy secret"))
        self.start_envoy(metadata=", initial_metadata: "
                                  "[{key: authorization, value: 'Bearer secret'}]")
        self.assertEqual(self.statuses(6, "/login", "POST"), [200] * 5 + [429])

    def test_is_refused_without_its_token(self):
        self.start_sluice("--grpc-token-file", self.files.write("tokens", "envoy secret"))
        self.start_envoy()
        self.assertEqual(self.statuses(1, "/login", "POST"), [500])


class LanguageModel(BehindEnvoy):
    """Costs that only the answer tells."""

    def left(self, user):
        answer = self.sluice.admin("GET", f"/admin/v1/domains/llm/descriptor?user={user}")
        return answer.json["remaining"]

    def use(self, user, tokens, **headers):
        return self.ask(x_user=user, x_use_tokens=str(tokens), **headers)[0]

    def test_what_was_used_is_charged_when_the_answer_has_been_sent(self):
        self.sluice = self.start_sluice()
        self.start_envoy(config="llm.yaml")
        self.assertEqual(self.use("ann", 3000), 200)
        eventually(lambda: self.left("ann") == 7000, "ann's tokens are charged")
        # An answer that does not tell costs nothing, and nobody else is charged.
        self.assertEqual(self.ask(x_user="ann")[0], 200)
        self.assertEqual(self.use("bob", 1), 200)
        eventually(lambda: self.left("bob") == 9999, "bob's token is charged")
        self.assertEqual(self.left("ann"), 7000)
        # The last answer may use more than is left. After it, the next one waits.
        self.assertEqual(self.use("ann", 9000), 200)
        eventually(lambda: self.left("ann") == 0, "all that is left is charged")
        status, headers = self.ask(x_user="ann", x_use_tokens="1")
        self.assertEqual((status, headers["x-ratelimit-remaining"]), (429, "0"))
        self.assertGreater(int(headers["retry-after"]), 0)
        self.assertEqual(self.use("bob", 1), 200)

    def test_what_was_reserved_and_not_used_is_given_back(self):
        self.files.write("limits/llm.yaml", replace_once(
            yearly((DEPLOY / "limits" / "llm.yaml").read_text()), "    postpaid: true\n", ""))
        self.sluice = self.start_sluice()

        def reserve(config):
            config = replace_once(config, "hits_addend: {number: 0}",
                                  'hits_addend: {format: "%REQ(x-max-tokens)%"}')
            return replace_once(config, 'format: "%DYNAMIC_METADATA(llm:total_tokens)%"',
                                'format: "%RESP(x-tokens-unused)%", is_negative_hits: true')
        self.start_envoy(config="llm.yaml", change=reserve)
        self.assertEqual(self.use("ann", 1000, x_max_tokens="8000"), 200)
        eventually(lambda: self.left("ann") == 9000, "7000 of 8000 are given back")
        # Of a request that is denied there is nothing to give back.
        self.assertEqual(self.use("ann", 1, x_max_tokens="9001"), 429)
        self.assertEqual(self.use("ann", 9000, x_max_tokens="9000"), 200)
        self.assertEqual(self.use("ann", 1, x_max_tokens="1"), 429)
        self.assertEqual(self.left("ann"), 0)


if __name__ == "__main__":
    if not os.access(ENVOY, os.X_OK):
        print(f"skipped: there is no {ENVOY}; tools/setup_proxies installs it")
        sys.exit(SKIPPED)
    support.main()
