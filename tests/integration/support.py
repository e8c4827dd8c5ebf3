# SPDX-License-Identifier: Apache-2.0
"""What the tests of the running service share: the service itself, the servers around it, and a
client that checks every answer against the service's own description.

Every test program is called with the path of `sluice` as its argument. Servers listen on ports that
the system chose, keep their files in folders of their own, and are ended by their process id.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

import openapi

PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "sluice"
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

# Long enough for a busy machine; nothing waits for it to pass.
PATIENCE = 60.0

# A window that no test run sees the end of.
AGES = "10000d"


def main():
    # Tests with a thousand connections need that many descriptors, here and in the service.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 16_384)), hard))
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])


def eventually(condition, what, timeout=PATIENCE):
    """Waits until `condition` returns something true, and returns that."""
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {timeout:.0f} s: {what}")
        time.sleep(0.01)


def eventually_get(get, accept, what):
    """Waits until `accept` accepts what `get` returns, and returns that."""
    return eventually(lambda: [value for value in [get()] if accept(value)], what)[0]


HELD_PORTS = []


def free_port():
    """A free port, reserved until the server that is given it takes it. It stays bound until this
    process ends, though nobody listens: others that ask for any port get another one, and servers
    set SO_REUSEADDR."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    HELD_PORTS.append(held)
    return held.getsockname()[1]


def sluice(*arguments, env=None, stdin=""):
    """Runs a command of the program to its end."""
    # With sanitizers, a long replay takes a good part of a minute beside other tests.
    return subprocess.run([PROGRAM, *arguments], input=stdin, capture_output=True, text=True,
                          timeout=2 * PATIENCE, check=False, env=clean_environment(env))


def clean_environment(extra=None):
    """Without settings from the environment of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    return kept | (extra or {})


class Folder:
    """A folder that is removed afterwards, and files in it."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="sluice-test-")

    def __str__(self):
        return self.path

    def __truediv__(self, name):
        return os.path.join(self.path, name)

    def write(self, name, content):
        path = self / name
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        return path

    def replace(self, name, content):
        """Like editors and deployments: a reader sees the old file or the new one."""
        os.rename(self.write(f".{name}.new", content), self / name)

    def remove(self):
        """Reads all of it, even while somebody writes into it."""
        gone = f"{self.path}.gone"
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.path, gone)
        shutil.rmtree(gone, ignore_errors=True)


class Process:
    """A program that runs in the background, its output in files."""

    def __init__(self, arguments, env=None):
        self.arguments = arguments
        self.env = clean_environment(env)
        self.folder = Folder()
        self.stdout_path = self.folder / "stdout"
        self.stderr_path = self.folder / "stderr"
        self.run()

    def run(self):
        """Starts it, or restarts it if it has ended; its output is then that of the new run."""
        with open(self.stdout_path, "wb") as stdout, open(self.stderr_path, "wb") as stderr:
            self.process = subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL,
                                            stdout=stdout, stderr=stderr, env=self.env)

    @property
    def pid(self):
        return self.process.pid

    def output(self):
        return pathlib.Path(self.stdout_path).read_text("utf-8", "replace")

    def log(self):
        return pathlib.Path(self.stderr_path).read_text("utf-8", "replace")

    def running(self):
        return self.process.poll() is None

    def send(self, signal_number):
        self.process.send_signal(signal_number)

    def wait(self, timeout=PATIENCE):
        return self.process.wait(timeout)

    def kill(self):
        """Ends it at once; what it printed can still be read."""
        if self.running():
            self.process.kill()
        self.process.wait()

    def remove(self):
        self.kill()
        self.folder.remove()


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def __repr__(self):
        return f"<{self.status} {self.body[:400]!r}>"

    def header(self, name):
        return self.headers.get(name)

    @property
    def json(self):
        # Strict: no NaN, and nothing that is not UTF-8.
        def refuse(constant):
            raise ValueError(constant)
        return json.loads(self.body.decode("utf-8"), parse_constant=refuse)


class Client:
    """One connection to a service. Never resends a request."""

    def __init__(self, port, description=None, host="127.0.0.1", timeout=PATIENCE):
        self.description = description
        self.connection = http.client.HTTPConnection(host, port, timeout=timeout)

    def request(self, method, target, body=None, headers=None):
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        self.connection.request(method, target, body=body, headers=headers or {})
        response = self.connection.getresponse()
        answer = Answer(response.status, response.headers, response.read())
        if self.description:
            self.description.check(method, target, answer)
        return answer

    def close(self):
        self.connection.close()


class Service(Process):
    """The running service. Its doors are at the ports that it reported."""

    def __init__(self, *arguments, env=None, wait=True, token=None):
        """The token is only for the first request, which shows that it is up."""
        listeners = [part for flag in ("--http", "--admin") if flag not in arguments
                     for part in (flag, "127.0.0.1:0")]
        super().__init__([PROGRAM, "serve", *listeners, *arguments], env)
        self.description = self.admin_description = None
        self.token = token
        self.doors = {"http", "admin"} | {name for name in ("resp", "grpc")
                                          if f"--{name}" in arguments}
        self.port = self.admin_port = self.resp_port = self.grpc_port = None
        if wait:
            try:
                self.wait_until_up()
            except BaseException:
                self.remove()
                raise

    def announced(self):
        """The ports of the doors that already listen."""
        if not self.running():
            raise AssertionError(f"the service ended: {self.log()}")
        # As a line of its own, or as the message of a JSON line.
        lines = re.findall(r'(?:^|")(\w+) listening on \S*:(\d+)(?:"}$|$)', self.output(), re.M)
        return {door: int(port) for door, port in lines}

    def wait_until_up(self):
        ports = eventually_get(self.announced, lambda ports: self.doors <= ports.keys(),
                               "the service listens")
        self.port, self.admin_port = ports["http"], ports["admin"]
        self.resp_port, self.grpc_port = ports.get("resp"), ports.get("grpc")
        # It is announced before its loops run; the first answer proves that they do.
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        document = self.request("GET", "/openapi.json", headers=headers).json
        self.description = openapi.Description(document)
        self.admin_description = openapi.Description(document, admin=True)

    def client(self):
        return Client(self.port, self.description)

    def request(self, method, target, body=None, headers=None):
        client = self.client()
        try:
            return client.request(method, target, body, headers)
        finally:
            client.close()

    def get(self, target, **headers):
        return self.request("GET", target, headers=header_names(headers))

    def check(self, rule_set, permits=None, headers=None, **context):
        document = {"ruleSet": rule_set, "context": context}
        if permits is not None:
            document["permits"] = permits
        return self.request("POST", "/api/v1/check", document, headers)

    def admin(self, method, target, body=None, headers=None):
        return self.admin_at(self.admin_port, method, target, body, headers,
                             self.admin_description)

    @staticmethod
    def admin_at(port, method, target, body=None, headers=None, description=None):
        client = Client(port, description)
        try:
            return client.request(method, target, body, headers)
        finally:
            client.close()

    def metrics(self):
        return parse_metrics(self.get("/metrics").body.decode())

    def metric(self, name, **labels):
        return self.metrics()[name, frozenset(labels.items())]

    def generation(self):
        return self.get("/info").json["generation"]

    def log_lines(self, *parts):
        """The lines with all of `parts` that are already written."""
        return [line for line in self.log().splitlines() if all(part in line for part in parts)]

    def logged(self, *parts, count=1):
        """The lines with all of `parts`, once there are `count`: lines are written a moment after
        the event."""
        return eventually_get(lambda: self.log_lines(*parts), lambda lines: len(lines) >= count,
                              f"it logs {parts}")

    def stop(self):
        """Asks it to end, and returns its exit status."""
        self.send(signal.SIGTERM)
        return self.wait()


def verdicts(answer):
    """The entry of each rule that applied to a check."""
    return [rule["verdict"] for rule in answer.json["rules"]]


def header_names(keywords):
    return {name.replace("_", "-"): value for name, value in keywords.items()}


def target(path, **parameters):
    return f"{path}?{urllib.parse.urlencode(parameters)}" if parameters else path


METRIC = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def parse_metrics(text):
    """The samples by name and labels."""
    samples = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = METRIC.match(line)
        if not match:
            raise AssertionError(f"not a sample: {line!r}")
        name, labels, value = match.groups()
        key = (name, frozenset(LABEL.findall(labels or "")))
        if key in samples:
            raise AssertionError(f"twice: {line!r}")
        samples[key] = float(value)
    return samples


FIELD_ITEM = re.compile(
    r'"((?:[ !#-\[\]-~]|\\["\\])*)"((?:;[a-z*][a-z0-9_.*-]*=-?\d{1,15})*)')


def parse_field(value):
    """A list of the Structured Fields of RFC 9651 whose items are Strings with integer parameters,
    as name -> parameters, in order."""
    items = {}
    at = 0
    while True:
        match = FIELD_ITEM.match(value, at)
        if not match:
            raise AssertionError(f"not such a field: {value!r} at {at}")
        parameters = {name: int(number) for name, number in
                      re.findall(r";([^=;]+)=(-?\d+)", match[2])}
        items[re.sub(r"\\(.)", r"\1", match[1])] = parameters
        at = match.end()
        if at == len(value):
            return items
        comma = re.compile(r"[ \t]*,[ \t]*").match(value, at)
        if not comma:
            raise AssertionError(f"not such a field: {value!r} at {at}")
        at = comma.end()


def make_certificate(folder, name, days=2):
    """A self-signed one for 127.0.0.1: NAME.pem and NAME.key in the folder."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(days), "-subj",
                    f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                    folder / f"{name}.key", "-out", folder / f"{name}.pem"], check=True,
                   capture_output=True)


def make_client_certificate(folder, name, authority):
    """NAME.pem and NAME.key for a client, signed by a certificate of make_certificate."""
    subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}", "-keyout",
                    folder / f"{name}.key", "-out", folder / f"{name}.csr"], check=True,
                   capture_output=True)
    subprocess.run(["openssl", "x509", "-req", "-in", folder / f"{name}.csr", "-CA",
                    folder / f"{authority}.pem", "-CAkey", folder / f"{authority}.key",
                    "-CAcreateserial", "-days", "2", "-out", folder / f"{name}.pem"], check=True,
                   capture_output=True)


class Redis(Process):
    """A real redis-server; it can be killed and come back at the same port, with its data."""

    def __init__(self, *arguments, port=None, password=None, env=None):
        self.port = port or free_port()
        self.password = password
        self.data = tempfile.mkdtemp(prefix="sluice-test-redis-")
        super().__init__(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1",
                          "--save", "", "--dir", self.data,
                          *(["--requirepass", password] if password else []), *arguments], env)
        try:
            self.wait_until_up()
        except BaseException:
            self.remove()
            raise

    def wait_until_up(self):
        eventually(lambda: not self.running() or self.cli("ping").strip() == "PONG",
                   "redis-server answers")
        if not self.running():
            raise AssertionError(f"redis-server ended: {self.output()}")

    def restart(self):
        self.run()
        self.wait_until_up()

    @property
    def uri(self):
        credentials = f":{self.password}@" if self.password else ""
        return f"redis://{credentials}127.0.0.1:{self.port}"

    @property
    def patient_uri(self):
        """For clients that must succeed, however busy the machine is."""
        return f"{self.uri}?timeout=60s&connect_timeout=60s"

    def patient_store(self):
        """Flags for a service that uses it and waits: for tests of exactness, in which a busy
        machine must not trigger the policy for outages."""
        return ("--store", self.patient_uri, "--deadline", "60s",
                "--breaker-slow-after", "60s", "--breaker-slow-percent", "100")

    def cli(self, *command):
        arguments = ["redis-cli", "-p", str(self.port)]
        if self.password:
            arguments += ["-a", self.password, "--no-auth-warning"]
        return subprocess.run([*arguments, *command], capture_output=True, text=True, check=False,
                              timeout=PATIENCE).stdout

    def remove(self):
        super().remove()
        shutil.rmtree(self.data, ignore_errors=True)


class RedisCluster:
    """Three masters without replicas: the data of one is gone with it. They declare one dead after
    the given time; a busy machine must not make them do so."""

    def __init__(self, node_timeout_ms=15_000):
        self.nodes = []
        try:
            for number in range(3):
                bus = free_port()
                node = Redis("--cluster-enabled", "yes", "--cluster-port", str(bus),
                             "--cluster-node-timeout", str(node_timeout_ms))
                self.nodes.append(node)
                node.cli("cluster", "set-config-epoch", str(number + 1))
                node.cli("cluster", "addslotsrange", str(16384 * number // 3),
                         str(16384 * (number + 1) // 3 - 1))
                self.nodes[0].cli("cluster", "meet", "127.0.0.1", str(node.port), str(bus))
            eventually(lambda: all("cluster_state:ok" in node.cli("cluster", "info") and
                                   "cluster_known_nodes:3" in node.cli("cluster", "info")
                                   for node in self.nodes), "the Cluster is formed")
        except BaseException:
            self.remove()
            raise

    @property
    def uri(self):
        return "redis://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    patient_uri = Redis.patient_uri
    patient_store = Redis.patient_store

    def remove(self):
        for node in self.nodes:
            node.remove()


class Sentinel(Process):
    """A Sentinel that watches one master under the name `main`."""

    def __init__(self, master):
        self.port = free_port()
        self.settings = Folder()
        path = self.settings.write("sentinel.conf", f"""port {self.port}
bind 127.0.0.1
sentinel monitor main 127.0.0.1 {master.port} 1
""")
        super().__init__(["redis-server", path, "--sentinel"])

    @property
    def uri(self):
        return f"redis-sentinel://127.0.0.1:{self.port}/main"

    def remove(self):
        super().remove()
        self.settings.remove()


class RawConnection:
    """Bytes to and from a port, for what no proper client would send."""

    def __init__(self, port, timeout=PATIENCE):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.reader = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data)

    def read_until_closed(self):
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while part := self.reader.read1(65536):
                data += part
        return data

    def read_answer(self):
        """One answer with a Content-Length; what follows it is kept for the next call."""
        line = self.reader.readline()
        match = re.match(rb"HTTP/1\.1 (\d{3}) [^\r]*\r\n$", line)
        if not match:
            raise ConnectionError(f"not a status line: {line!r}")
        headers = http.client.parse_headers(self.reader)
        length = int(headers["Content-Length"])
        body = self.reader.read(length)
        if len(body) < length:
            raise ConnectionError("the connection ended within a body")
        return Answer(int(match[1]), headers, body)

    def close(self):
        self.reader.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def in_threads(count, work):
    """Runs `work(number)` in that many threads, which start together; returns the results."""
    barrier = threading.Barrier(count)
    results = [None] * count
    errors = []

    def run(number):
        try:
            barrier.wait(PATIENCE)
            results[number] = work(number)
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


class ServiceTest(unittest.TestCase):
    """A test case that ends its services and servers when it is over."""

    def start(self, *arguments, **keywords):
        service = Service(*arguments, **keywords)
        self.addCleanup(service.remove)
        return service

    def folder(self):
        folder = Folder()
        self.addCleanup(folder.remove)
        return folder

    def redis(self, *arguments, **keywords):
        redis = Redis(*arguments, **keywords)
        self.addCleanup(redis.remove)
        return redis

    def assert_error(self, answer, status, code):
        self.assertEqual(answer.status, status, answer)
        self.assertEqual(answer.header("Content-Type"), "application/json")
        self.assertEqual(answer.json["error"]["code"], code)
        self.assertNotEqual(answer.json["error"]["message"], "")

    def serve_rules(self, rules, *arguments):
        """A service with these rule sets, for the whole class."""
        folder = self.folder()
        return self.start("--rules", folder.write("rules.yaml", rules), *arguments)


class SharedServiceTest(ServiceTest):
    """Shares one service among the tests of a class, to start it once."""

    RULES = None
    ARGUMENTS = ()

    @classmethod
    def setUpClass(cls):
        folder = Folder()
        cls.addClassCleanup(folder.remove)
        arguments = list(cls.ARGUMENTS)
        if cls.RULES:
            arguments += ["--rules", folder.write("rules.yaml", cls.RULES)]
        cls.service = Service(*arguments)
        cls.addClassCleanup(cls.service.remove)
