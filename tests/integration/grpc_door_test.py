# SPDX-License-Identifier: Apache-2.0
"""`sluice serve --grpc` with a foreign gRPC client: Debian's python3-grpcio.

Usage: grpc_door_test.py PROGRAM
"""

import importlib
import json
import os
import pathlib
import random
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import support
from support import eventually

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
RLS = "envoy.service.ratelimit.v3.RateLimitService"
LIMITER = "sluice.v1.Limiter"
CONFIG = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 3}
  - key: crowd
    rate_limit: {unit: year, requests_per_unit: 1000}
  - key: free
    rate_limit: {unlimited: true}
  - key: path
    value: /api/*
    share_threshold: true
    rate_limit: {unit: year, requests_per_unit: 5, name: api}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: region
    quota_mode: true
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: tenant
    rate_limit: {unit: year, requests_per_unit: 2, replaces: [{name: api}]}
    descriptors:
      - key: plan
        value: trial
        rate_limit: {unit: year, requests_per_unit: 1}
"""
STRICT = """
domain: strict
all_or_nothing: true
descriptors:
  - key: wide
    rate_limit: {unit: year, requests_per_unit: 10}
  - key: narrow
    rate_limit: {algorithm: GCRA, burst: 0, count: 1, period: 10000h}
"""
TIMEOUT = support.PATIENCE


def load_messages(folder):
    """The output of protoc for proto/, as Python modules."""
    protos = [str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto")]
    subprocess.run(["protoc", f"--proto_path={PROTO}", f"--python_out={folder}", *protos],
                   check=True)
    # `grpc` is the client library; its health and reflection messages are beside it.
    sys.path.insert(0, folder)
    grpc.__path__.append(f"{folder}/grpc")
    return [importlib.import_module(name) for name in
            ("envoy.service.ratelimit.v3.rls_pb2", "grpc.health.v1.health_pb2",
             "grpc.reflection.v1.reflection_pb2", "grpc.reflection.v1alpha.reflection_pb2",
             "sluice.v1.limiter_pb2")]


FOLDER = tempfile.TemporaryDirectory()
rls_pb2, health_pb2, reflection_pb2, reflection_alpha_pb2, limiter_pb2 = load_messages(FOLDER.name)


class Server(support.Service):
    """A service with a gRPC door."""

    def __init__(self, *options):
        self.config = support.Folder()
        self.config.write("rls/edge.yaml", CONFIG)
        self.config.write("rls/strict.yaml", STRICT)
        super().__init__("--grpc", "127.0.0.1:0", *options, "--rls-config", self.config / "rls")

    def channel(self, credentials=None):
        # Channels to one address share a connection unless configured otherwise.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        target = f"localhost:{self.grpc_port}"
        if credentials:
            return grpc.secure_channel(target, credentials, options)
        return grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}", options)

    def post_json(self, document):
        return self.request("POST", "/json", document)

    def remove(self):
        super().remove()
        self.config.remove()


def method(channel, kind, path, request, response):
    return getattr(channel, kind)(path, request_serializer=request.SerializeToString,
                                  response_deserializer=response.FromString)


def should_rate_limit(channel):
    return method(channel, "unary_unary", f"/{RLS}/ShouldRateLimit", rls_pb2.RateLimitRequest,
                  rls_pb2.RateLimitResponse)


def ask(*entries, domain="edge", hits=0):
    """A request with one descriptor: key, value, and perhaps more of them."""
    request = rls_pb2.RateLimitRequest(domain=domain, hits_addend=hits)
    add_descriptor(request, *entries)
    return request


def ask_much(size):
    """A request of about this many bytes, in entries of the maximum size."""
    return ask(*("free", "x" * 16_000) * (size // 16_000))


def add_descriptor(request, *entries):
    descriptor = request.descriptors.add()
    for key, value in zip(entries[::2], entries[1::2]):
        entry = descriptor.entries.add()
        entry.key, entry.value = key, value
    return descriptor


OK = rls_pb2.RateLimitResponse.OK
OVER_LIMIT = rls_pb2.RateLimitResponse.OVER_LIMIT


class DoorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.remove)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def setUp(self):
        self.channel = self.server.channel()
        self.addCleanup(self.channel.close)
        self.user = f"{self.id()}-{random.random()}"

    def assertFails(self, code, call, *arguments, **named):
        with self.assertRaises(grpc.RpcError) as caught:
            call(*arguments, timeout=named.pop("timeout", TIMEOUT), **named)
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        return caught.exception

    def test_decides(self):
        call = should_rate_limit(self.channel)
        answers = [call(ask("user", self.user), timeout=TIMEOUT) for _ in range(4)]
        self.assertEqual([answer.overall_code for answer in answers], [OK, OK, OK, OVER_LIMIT])
        self.assertEqual([answer.statuses[0].limit_remaining for answer in answers], [2, 1, 0, 0])
        limit = answers[0].statuses[0].current_limit
        self.assertEqual((limit.requests_per_unit, limit.unit), (3, limit.YEAR))
        self.assertGreater(answers[0].statuses[0].duration_until_reset.seconds, 0)
        self.assertEqual(answers[3].dynamic_metadata["denied_by"], "edge.user")

    def test_matches_as_the_files_say(self):
        call = should_rate_limit(self.channel)

        def limit_of(*entries, domain="edge"):
            status = call(ask(*entries, domain=domain), timeout=TIMEOUT).statuses[0]
            known = status.HasField("current_limit")
            return status.current_limit.requests_per_unit if known else None

        self.assertEqual(limit_of("user", self.user), 3)
        self.assertEqual(limit_of("path", f"/api/{self.user}"), 5)
        self.assertEqual(limit_of("tenant", self.user, "plan", "trial"), 1)
        for unmatched in (("tenant", self.user, "plan", "gold"), ("plan", "trial"),
                          ("user", self.user, "more", "x"), ("nobody", "x"), ("path", "/other")):
            self.assertIsNone(limit_of(*unmatched), unmatched)
        self.assertIsNone(limit_of("user", self.user, domain="elsewhere"))
        self.assertEqual(limit_of("wide", self.user, domain="strict"), 10)
        free = call(ask("free", "x"), timeout=TIMEOUT).statuses[0]
        self.assertEqual((free.limit_remaining, free.HasField("current_limit")), (2**32 - 1, False))

    def test_shadows_and_quotas(self):
        call = should_rate_limit(self.channel)
        shadow = [call(ask("shadow", self.user), timeout=TIMEOUT) for _ in range(3)]
        self.assertEqual([answer.overall_code for answer in shadow], [OK] * 3)
        self.assertEqual([answer.statuses[0].limit_remaining for answer in shadow], [0] * 3)
        near, far = f"near-{self.user}", f"far-{self.user}"
        call(ask("region", near), timeout=TIMEOUT)
        both = ask("region", near)
        add_descriptor(both, "region", far)
        passed = call(both, timeout=TIMEOUT)
        self.assertEqual(passed.overall_code, OK)
        self.assertEqual([status.code for status in passed.statuses], [OVER_LIMIT, OK])
        self.assertEqual(list(passed.dynamic_metadata["quotaModeViolations"]), [0])
        self.assertEqual(call(both, timeout=TIMEOUT).overall_code, OVER_LIMIT)

    def test_replaced_limits_are_not_charged(self):
        call = should_rate_limit(self.channel)
        path = f"/api/{self.user}"
        both = ask("path", path)
        add_descriptor(both, "tenant", self.user)
        before = call(ask("path", path, hits=1), timeout=TIMEOUT).statuses[0].limit_remaining
        replaced = call(both, timeout=TIMEOUT)
        self.assertFalse(replaced.statuses[0].HasField("current_limit"))
        self.assertEqual(replaced.statuses[1].limit_remaining, 1)
        look = ask("path", path)
        look.descriptors[0].hits_addend.value = 0
        self.assertEqual(call(look, timeout=TIMEOUT).statuses[0].limit_remaining, before)

    def test_takes_hits(self):
        call = should_rate_limit(self.channel)

        def remaining(hits=0, own=None):
            request = ask("user", self.user, hits=hits)
            if own is not None:
                request.descriptors[0].hits_addend.value = own
            answer = call(request, timeout=TIMEOUT)
            return answer.overall_code, answer.statuses[0].limit_remaining

        self.assertEqual(remaining(own=0), (OK, 3))
        self.assertEqual(remaining(hits=2, own=0), (OK, 3))
        self.assertEqual(remaining(hits=3, own=1), (OK, 2))
        self.assertEqual(remaining(hits=0), (OK, 1))
        self.assertEqual(remaining(hits=2), (OVER_LIMIT, 1))
        self.assertEqual(remaining(own=2**64 - 1), (OVER_LIMIT, 1))
        self.assertEqual(remaining(hits=1), (OK, 0))
        self.assertEqual(remaining(own=0), (OK, 0))

    def test_takes_limits_that_a_request_brings(self):
        call = should_rate_limit(self.channel)
        request = ask("user", self.user)
        own = request.descriptors[0].limit
        own.requests_per_unit, own.unit = 1, 6  # A year.
        answers = [call(request, timeout=TIMEOUT) for _ in range(2)]
        self.assertEqual([answer.overall_code for answer in answers], [OK, OVER_LIMIT])
        self.assertEqual(answers[0].statuses[0].current_limit.requests_per_unit, 1)
        self.assertEqual(answers[1].dynamic_metadata["denied_by"], "override")
        # The configured one was not charged.
        self.assertEqual(call(ask("user", self.user), timeout=TIMEOUT).statuses[0].limit_remaining,
                         2)
        own.unit = 0
        self.assertFails(grpc.StatusCode.INVALID_ARGUMENT, call, request)

    def test_charges_each_or_all_or_nothing(self):
        call = should_rate_limit(self.channel)
        both = ask("wide", self.user, domain="strict")
        add_descriptor(both, "narrow", self.user)
        passed, denied = [call(both, timeout=TIMEOUT) for _ in range(2)]
        self.assertEqual((passed.overall_code, denied.overall_code), (OK, OVER_LIMIT))
        self.assertEqual([status.code for status in denied.statuses], [OK, OVER_LIMIT])
        self.assertEqual(denied.statuses[0].limit_remaining, 9)
        self.assertEqual(denied.dynamic_metadata["denied_by"], "strict.narrow")
        self.assertEqual(denied.dynamic_metadata["denied_descriptor"], 1)
        each = ask("crowd", self.user)
        add_descriptor(each, "shadow", self.user)
        add_descriptor(each, "user", self.user).hits_addend.value = 4
        denied = call(each, timeout=TIMEOUT)
        self.assertEqual(denied.overall_code, OVER_LIMIT)
        self.assertEqual(denied.statuses[0].limit_remaining, 999)
        self.assertFalse(denied.statuses[2].HasField("duration_until_reset"))

    def test_answers_json_on_the_http_door(self):
        document = {"domain": "edge", "descriptors":
                    [{"entries": [{"key": "user", "value": self.user}], "hitsAddend": "2"}]}
        passed = self.server.post_json(document)
        self.assertEqual((passed.status, passed.json["overallCode"]), (200, "OK"))
        status = passed.json["statuses"][0]
        self.assertEqual(status["limitRemaining"], 1)
        self.assertEqual(status["currentLimit"]["unit"], "YEAR")
        self.assertRegex(status["durationUntilReset"], r"^\d+s$")
        denied = self.server.post_json(document)
        self.assertEqual((denied.status, denied.json["overallCode"]), (429, "OVER_LIMIT"))
        # One limit behind both doors.
        self.assertEqual(should_rate_limit(self.channel)(ask("user", self.user), timeout=TIMEOUT)
                         .statuses[0].limit_remaining, 0)
        for bad in ("", "{", "[]", '{"domain": ""}', '{"domain": "edge"}',
                    '{"domain": "edge", "descriptors": 7}'):
            refused = self.server.post_json(bad)
            self.assertEqual(refused.status, 400, bad)
            self.assertTrue(refused.json["error"], bad)

    def test_h2load(self):
        request = ask("free", "x").SerializeToString()
        with tempfile.NamedTemporaryFile() as body:
            body.write(b"\0" + len(request).to_bytes(4, "big") + request)
            body.flush()
            done = subprocess.run(
                ["h2load", "-n", "20000", "-c", "8", "-m", "16", "-d", body.name,
                 "-H", "content-type: application/grpc", "-H", "te: trailers",
                 f"http://127.0.0.1:{self.server.grpc_port}/{RLS}/ShouldRateLimit"],
                capture_output=True, text=True, timeout=TIMEOUT, check=False)
        self.assertIn("20000 succeeded, 0 failed, 0 errored, 0 timeout", done.stdout, done.stderr)

    def test_says_what_is_wrong(self):
        call = should_rate_limit(self.channel)
        self.assertFails(grpc.StatusCode.INVALID_ARGUMENT, call, ask("user", "x", domain=""))
        self.assertFails(grpc.StatusCode.INVALID_ARGUMENT, call,
                         rls_pb2.RateLimitRequest(domain="edge"))
        for path in (f"/{RLS}/Other", "/other.Service/ShouldRateLimit"):
            other = method(self.channel, "unary_unary", path, rls_pb2.RateLimitRequest,
                           rls_pb2.RateLimitResponse)
            error = self.assertFails(grpc.StatusCode.UNIMPLEMENTED, other, ask("user", "x"))
            self.assertIn("unknown method", error.details())
        raw = self.channel.unary_unary(f"/{RLS}/ShouldRateLimit")
        self.assertFails(grpc.StatusCode.INTERNAL, raw, b"\x0a\xff\xff")

    def test_takes_what_is_compressed(self):
        channel = grpc.insecure_channel(f"127.0.0.1:{self.server.grpc_port}",
                                        compression=grpc.Compression.Gzip)
        self.addCleanup(channel.close)
        call = should_rate_limit(channel)
        self.assertEqual(call(ask("user", self.user * 20), timeout=TIMEOUT).overall_code, OK)
        self.assertFails(grpc.StatusCode.RESOURCE_EXHAUSTED, call,
                         ask("free", "0" * (64 << 20)))
        deflate = grpc.insecure_channel(f"127.0.0.1:{self.server.grpc_port}",
                                        compression=grpc.Compression.Deflate)
        self.addCleanup(deflate.close)
        self.assertFails(grpc.StatusCode.UNIMPLEMENTED, should_rate_limit(deflate),
                         ask("user", self.user * 20))

    def test_bounds_messages(self):
        call = should_rate_limit(self.channel)
        large = ask_much((4 << 20) - 30_000)
        self.assertEqual(call(large, timeout=TIMEOUT).overall_code, OK)
        self.assertFails(grpc.StatusCode.RESOURCE_EXHAUSTED, call, ask_much(5 << 20))
        self.assertEqual(call(ask("free", "x"), timeout=TIMEOUT).overall_code, OK)

    def test_ends_calls_at_their_deadline(self):
        watch = method(self.channel, "unary_stream", "/grpc.health.v1.Health/Watch",
                       health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse)
        self.assertFails(grpc.StatusCode.DEADLINE_EXCEEDED,
                         lambda timeout: list(watch(health_pb2.HealthCheckRequest(),
                                                    timeout=timeout)), timeout=0.3)
        self.assertEqual(should_rate_limit(self.channel)(ask("free", "x"), timeout=TIMEOUT)
                         .overall_code, OK)

    def test_survives_cancellation(self):
        call = should_rate_limit(self.channel)
        for _ in range(5):
            futures = [call.future(ask("free", "x"), timeout=TIMEOUT) for _ in range(100)]
            for future in futures[::2]:
                future.cancel()
            for future in futures[1::2]:
                self.assertEqual(future.result().overall_code, OK)
        watch = method(self.channel, "unary_stream", "/grpc.health.v1.Health/Watch",
                       health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse)
        for _ in range(20):
            stream = watch(health_pb2.HealthCheckRequest(), timeout=TIMEOUT)
            next(stream)
            stream.cancel()
        self.assertEqual(call(ask("free", "x"), timeout=TIMEOUT).overall_code, OK)

    def test_counts_exactly_over_many_streams_and_connections(self):
        codes = []
        lock = threading.Lock()

        def client():
            with self.server.channel() as channel:
                call = should_rate_limit(channel)
                futures = [call.future(ask("crowd", self.user), timeout=TIMEOUT)
                           for _ in range(500)]
                answers = [future.result().overall_code for future in futures]
            with lock:
                codes.extend(answers)

        threads = [threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(codes), 2000)
        self.assertEqual(codes.count(OK), 1000)

    def test_says_how_it_is(self):
        check = method(self.channel, "unary_unary", "/grpc.health.v1.Health/Check",
                       health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse)
        for service in ("", RLS, LIMITER):
            answer = check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT)
            self.assertEqual(answer.status, health_pb2.HealthCheckResponse.SERVING)
        self.assertFails(grpc.StatusCode.NOT_FOUND, check,
                         health_pb2.HealthCheckRequest(service="other"))
        watch = method(self.channel, "unary_stream", "/grpc.health.v1.Health/Watch",
                       health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse)
        stream = watch(health_pb2.HealthCheckRequest(service="other"), timeout=TIMEOUT)
        self.assertEqual(next(stream).status, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
        stream.cancel()

    def test_describes_itself(self):
        for messages in (reflection_pb2, reflection_alpha_pb2):
            package = messages.DESCRIPTOR.package
            reflect = method(self.channel, "stream_stream",
                             f"/{package}.ServerReflection/ServerReflectionInfo",
                             messages.ServerReflectionRequest, messages.ServerReflectionResponse)
            names = [service.name for answer in
                     reflect(iter([messages.ServerReflectionRequest(list_services="")]),
                             timeout=TIMEOUT)
                     for service in answer.list_services_response.service]
            self.assertLessEqual({RLS, LIMITER}, set(names))
            rls, limiter, unknown = reflect(iter([
                messages.ServerReflectionRequest(file_containing_symbol=name)
                for name in (RLS, LIMITER, "no.such.Symbol")]), timeout=TIMEOUT)
            self.assertEqual(unknown.error_response.error_code, 5)
            answer = self.call_by_description(rls, RLS, ask("free", "x"))
            self.assertEqual(answer.overall_code, OK)
            answer = self.call_by_description(
                limiter, LIMITER, limiter_pb2.CheckRequest(limit="limit=5,window=1h", key=package))
            self.assertTrue(answer.allowed)
            self.assertEqual(answer.remaining, 4)

    def call_by_description(self, reflected, service, message):
        """Calls the first method with nothing but what reflection gave, as a tool would."""
        files = reflected.file_descriptor_response.file_descriptor_proto
        files = [descriptor_pb2.FileDescriptorProto.FromString(file) for file in files]
        pool = descriptor_pool.DescriptorPool()
        while files:
            ready = [file for file in files
                     if not any(other.name in file.dependency for other in files)]
            self.assertTrue(ready)
            for file in ready:
                pool.Add(file)
                files.remove(file)
        described = pool.FindServiceByName(service).methods[0]
        factory = message_factory.MessageFactory(pool)
        request = factory.GetPrototype(described.input_type)
        response = factory.GetPrototype(described.output_type)
        call = method(self.channel, "unary_unary", f"/{service}/{described.name}", request,
                      response)
        return call(request.FromString(message.SerializeToString()), timeout=TIMEOUT)

    def test_serves_others_beside_those_who_misbehave(self):
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        settings = b"\0\0\0\4\0\0\0\0\0"
        ping = b"\0\0\x08\6\0\0\0\0\0" + b"x" * 8
        seed = random.randrange(1 << 32)
        print(f"seed {seed}", file=sys.stderr)
        noise = random.Random(seed)
        manners = [
            lambda: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            lambda: noise.randbytes(1000),
            lambda: preface + noise.randbytes(1000),
            lambda: preface[:10],
            lambda: preface + settings + ping * 5000,
            lambda: preface + settings * 5000,
            lambda: preface + settings + b"\0\0\1\1\0\0\0\0\1\x83" + b"\0\0\1\x09\0\0\0\0\1\x86" * 1000,
            lambda: preface + settings + b"\xff\xff\xff\0\0\0\0\0\1",
        ]
        sockets = []
        call = should_rate_limit(self.channel)
        for i in range(100):
            peer = socket.create_connection(("127.0.0.1", self.server.grpc_port))
            peer.setblocking(False)
            sockets.append(peer)
            try:
                peer.send(manners[i % len(manners)]())
            except OSError:
                pass
            self.assertEqual(call(ask("free", "x"), timeout=TIMEOUT).overall_code, OK)
        for peer in sockets:
            peer.close()
        self.assertEqual(call(ask("free", "x"), timeout=TIMEOUT).overall_code, OK)


class LogTest(unittest.TestCase):
    def test_denials_name_descriptor_and_request(self):
        server = Server("--log-level", "debug", "--log-format", "json")
        self.addCleanup(server.remove)
        with server.channel() as channel:
            call = should_rate_limit(channel)
            trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
            call(ask("user", "ann", hits=3), timeout=TIMEOUT)
            for metadata in ((("x-request-id", "mine"), ("traceparent", trace)),
                             (("traceparent", trace),), ()):
                answer = call(ask("user", "ann"), timeout=TIMEOUT, metadata=metadata)
                self.assertEqual(answer.overall_code, OVER_LIMIT)
        server.stop()
        lines = map(json.loads, server.log().splitlines())
        self.assertEqual([(line["level"], line["descriptor"], line["key"], line["request_id"])
                          for line in lines if line["message"] == "denied by a descriptor"],
                         [("debug", "edge.user", "edge|user=ann", name)
                          for name in ("mine", trace, "")])


class HeaderTest(unittest.TestCase):
    def test_hands_out_headers_where_told_to(self):
        server = Server("--grpc-headers=true")
        self.addCleanup(server.remove)
        with server.channel() as channel:
            call = should_rate_limit(channel)
            answers = [call(ask("user", "ann"), timeout=TIMEOUT) for _ in range(4)]
        first, *_, denied = [{header.key: header.value for header in
                              answer.response_headers_to_add} for answer in answers]
        self.assertEqual((first["X-RateLimit-Limit"], first["X-RateLimit-Remaining"]), ("3", "2"))
        # A year ends where years of 365 days since the epoch do.
        self.assertEqual(int(first["X-RateLimit-Reset"]) % (365 * 86400), 0)
        self.assertEqual(first["RateLimit-Policy"], '"edge.user";q=3;w=31536000')
        self.assertRegex(first["RateLimit"], r'^"edge.user";r=2;t=\d+$')
        self.assertNotIn("Retry-After", first)
        self.assertEqual(denied["X-RateLimit-Remaining"], "0")
        self.assertEqual(int(denied["Retry-After"]),
                         answers[3].statuses[0].duration_until_reset.seconds)


class ReloadTest(unittest.TestCase):
    def test_follows_the_files_and_keeps_what_was_used(self):
        server = Server()
        self.addCleanup(server.remove)
        channel = server.channel()
        self.addCleanup(channel.close)
        call = should_rate_limit(channel)

        def remaining(key, domain="edge"):
            """Without taking."""
            request = ask(key, "ann", domain=domain)
            request.descriptors[0].hits_addend.value = 0
            status = call(request, timeout=TIMEOUT).statuses[0]
            return status.limit_remaining if status.HasField("current_limit") else None

        def write(name, content):
            os.rename(server.config.write(name, content), server.config / f"rls/{name}")

        call(ask("user", "ann", hits=2), timeout=TIMEOUT)
        write("edge.yaml", CONFIG.replace("unit: 3}", "unit: 5}"))
        eventually(lambda: remaining("user") == 3, "the limit is raised")
        # Invalid files change nothing.
        write("new.yaml", STRICT)  # A domain that already exists.
        eventually(lambda: server.metric("sluice_reloads_total", result="invalid") > 0,
                   "it is refused")
        self.assertEqual(remaining("user"), 3)
        write("new.yaml", STRICT.replace("domain: strict", "domain: new"))
        eventually(lambda: remaining("wide", domain="new") == 10, "there is a new domain")
        write("edge.yaml", CONFIG)
        eventually(lambda: remaining("user") == 1, "the limit is lowered")
        os.remove(server.config / "rls/new.yaml")
        eventually(lambda: remaining("wide", domain="new") is None, "it is gone")


class RedisTest(unittest.TestCase):
    """Two instances on one Redis are one limiter; in an outage the policy decides."""

    def test_instances_share_and_an_outage_follows_the_policy(self):
        redis = support.Redis()
        self.addCleanup(redis.remove)
        calls = []
        for _ in range(2):
            server = Server(*redis.patient_store(), "--grpc-on-store-failure", "FAIL_CLOSED")
            self.addCleanup(server.remove)
            channel = server.channel()
            self.addCleanup(channel.close)
            calls.append(should_rate_limit(channel))
        futures = [calls[i % 2].future(ask("crowd", "ann"), timeout=TIMEOUT) for i in range(1200)]
        codes = [future.result().overall_code for future in futures]
        self.assertEqual((codes.count(OK), codes.count(OVER_LIMIT)), (1000, 200))
        redis.kill()
        with self.assertRaises(grpc.RpcError) as caught:
            calls[0](ask("user", "ann"), timeout=TIMEOUT)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(calls[0](ask("free", "ann"), timeout=TIMEOUT).overall_code, OK)
        answer = server.post_json(
            {"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]})
        self.assertEqual(answer.status, 503)


LIMITER_RULES = f"""
ruleSets:
  - id: llm
    rules:
      - id: requests
        scope: PER_USER
        onStoreFailure: FAIL_CLOSED
        hold: {{ttl: 10m}}
        bands: [{{label: rpm, algorithm: FIXED_WINDOW, limit: 5, window: {support.AGES}}}]
      - id: tokens
        scope: PER_USER
        onStoreFailure: FAIL_CLOSED
        cost: {{attribute: tokens, default: 1}}
        bands: [{{label: tpm, algorithm: FIXED_WINDOW, limit: 1000, window: {support.AGES}}}]
  - {{id: jobs, rules: [{{id: slots, scope: PER_USER, bands: [{{label: open, algorithm: CONCURRENCY, limit: 2, ttl: 10m}}]}}]}}
"""


class Limiter:
    """A client of sluice.v1.Limiter, as protoc's own would be."""

    def __init__(self, channel, metadata=()):
        def call(name, request, response):
            stub = method(channel, "unary_unary", f"/{LIMITER}/{name}", request, response)
            return lambda message: stub(message, timeout=TIMEOUT, metadata=metadata)

        messages = limiter_pb2
        self.check = call("Check", messages.CheckRequest, messages.CheckResponse)
        self.check_batch = call("CheckBatch", messages.CheckBatchRequest,
                                messages.CheckBatchResponse)
        self.hold = call("Hold", messages.HoldRequest, messages.HoldResponse)
        self.settle = call("Settle", messages.SettleRequest, messages.SettleResponse)
        self.release = call("Release", messages.ReleaseRequest, messages.SettleResponse)
        self.extend = call("Extend", messages.ExtendRequest, messages.ExtendResponse)
        self.give = call("Give", messages.GiveRequest, messages.GiveResponse)


def by_rules(rule_set, message=limiter_pb2.CheckRequest, user="ann", tokens=None, **fields):
    attributes = {"tokens": str(tokens)} if tokens is not None else {}
    context = limiter_pb2.Context(user_id=user, attributes=attributes)
    return message(rule_set=rule_set, context=context, **fields)


class LimiterTest(unittest.TestCase):
    """sluice.v1.Limiter: one limiter with the other doors, and over Redis with other instances."""

    def serve(self, *options):
        rules = support.Folder()
        self.addCleanup(rules.remove)
        server = Server("--rules", rules.write("rules.yaml", LIMITER_RULES), *options)
        self.addCleanup(server.remove)
        return server

    def limiter(self, server, metadata=()):
        channel = server.channel()
        self.addCleanup(channel.close)
        return Limiter(channel, metadata)

    def assertFails(self, code, text, call, message):
        with self.assertRaises(grpc.RpcError) as caught:
            call(message)
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        self.assertIn(text, caught.exception.details())

    def test_checks_and_gives_back(self):
        server = self.serve()
        limiter = self.limiter(server)
        answers = [limiter.check(limiter_pb2.CheckRequest(
            limit=f"algorithm=fixed_window,limit=3,window={support.AGES}", key="k", permits=2))
            for _ in range(2)]
        self.assertEqual([(answer.allowed, answer.limit, answer.remaining) for answer in answers],
                         [(True, 3, 1), (False, 3, 1)])
        self.assertGreater(answers[1].retry_after.ToTimedelta().days, 0)
        answer = limiter.check(by_rules("llm", tokens=400, detail=True))
        self.assertEqual([(band.rule, band.remaining) for band in answer.bands],
                         [("requests", 4), ("tokens", 600)])
        # One limiter with the other doors.
        self.assertEqual(server.check("llm", userId="ann").json["remaining"], 3)
        denied = limiter.check(by_rules("llm", tokens=900))
        self.assertEqual((denied.allowed, denied.denied_by.rule, denied.denied_by.band),
                         (False, "tokens", "tpm"))
        given = limiter.give(by_rules("llm", limiter_pb2.GiveRequest, tokens=100))
        self.assertEqual((given.limit, given.remaining), (5, 4))

    def test_checks_many(self):
        limiter = self.limiter(self.serve())
        checks = [by_rules("llm", tokens=700), by_rules("other"), by_rules("llm", tokens=700),
                  limiter_pb2.CheckRequest(limit="limit=1,window=1h", key="k")]
        answer = limiter.check_batch(limiter_pb2.CheckBatchRequest(checks=checks))
        self.assertEqual([result.WhichOneof("result") for result in answer.results],
                         ["check", "error", "check", "check"])
        self.assertEqual([result.check.allowed for result in answer.results],
                         [True, False, False, True])
        self.assertEqual(answer.results[1].error.code, grpc.StatusCode.NOT_FOUND.value[0])

    def test_a_hold_is_one_at_every_door(self):
        server = self.serve()
        limiter = self.limiter(server)
        request = by_rules("llm", limiter_pb2.HoldRequest, tokens=800, id="chat 1")
        made = limiter.hold(request)
        self.assertTrue(made.check.allowed and made.holds)
        self.assertGreater(made.expires_at.seconds, time.time() + 500)
        self.assertEqual(limiter.hold(request).id, made.id)
        self.assertFalse(limiter.hold(by_rules("llm", limiter_pb2.HoldRequest, tokens=800))
                         .check.allowed)
        extended = limiter.extend(limiter_pb2.ExtendRequest(id=made.id, ttl={"seconds": 3600}))
        self.assertGreater(extended.expires_at.seconds, made.expires_at.seconds)
        settled = limiter.settle(limiter_pb2.SettleRequest(id=made.id, rules={"tokens": 250}))
        self.assertEqual([(budget.name, budget.key, budget.cost, budget.remaining)
                          for budget in settled.budgets],
                         [("llm/requests/rpm", "user:ann", 1, 4),
                          ("llm/tokens/tpm", "user:ann", 250, 750)])
        self.assertFails(grpc.StatusCode.ALREADY_EXISTS, "HOLD_CONFLICT: ", limiter.hold, request)
        self.assertFails(grpc.StatusCode.FAILED_PRECONDITION, "HOLD_LOST: ", limiter.extend,
                         limiter_pb2.ExtendRequest(id=made.id))

        slot = limiter.hold(by_rules("jobs", limiter_pb2.HoldRequest))
        self.assertEqual(server.request("DELETE", f"/api/v1/holds/{slot.id}").json["released"],
                         True)
        made = server.request("POST", "/api/v1/holds",
                              {"ruleSet": "jobs", "context": {"userId": "ann"}})
        released = limiter.release(limiter_pb2.ReleaseRequest(id=made.json["id"]))
        self.assertEqual((released.late, released.budgets[0].remaining), (False, 2))

    def test_says_what_is_wrong(self):
        server = self.serve()
        limiter = self.limiter(server)
        self.assertFails(grpc.StatusCode.INVALID_ARGUMENT, "expected rule_set", limiter.check,
                         limiter_pb2.CheckRequest())
        self.assertFails(grpc.StatusCode.NOT_FOUND, '"other"', limiter.check, by_rules("other"))
        self.assertFails(grpc.StatusCode.FAILED_PRECONDITION, "NEEDS_HOLD: ", limiter.check,
                         by_rules("jobs"))
        self.assertFails(grpc.StatusCode.INVALID_ARGUMENT, "not the id of a hold", limiter.settle,
                         limiter_pb2.SettleRequest(id="chat 1"))
        self.assertEqual(server.metric("sluice_errors_total", code="FAILED_PRECONDITION"), 1)

    def test_is_for_callers_with_a_token(self):
        tokens = support.Folder()
        self.addCleanup(tokens.remove)
        server = self.serve("--grpc-token-file", tokens.write("tokens", "secret\n"))
        check = limiter_pb2.CheckRequest(limit="limit=1,window=1h", key="k")
        self.assertFails(grpc.StatusCode.UNAUTHENTICATED, "expected a token",
                         self.limiter(server).check, check)
        caller = self.limiter(server, (("authorization", "Bearer secret"),))
        self.assertTrue(caller.check(check).allowed)

    def test_denials_name_rule_and_request(self):
        server = self.serve("--log-level", "debug", "--log-format", "json")
        limiter = self.limiter(server, (("x-request-id", "mine"),))
        limiter.hold(by_rules("llm", limiter_pb2.HoldRequest, tokens=1000))
        limiter.check(by_rules("llm"))
        server.stop()
        lines = map(json.loads, server.log().splitlines())
        self.assertEqual([(line["rule"], line["band"], line["key"], line["request_id"])
                          for line in lines if line["message"] == "denied by a rule"],
                         [("tokens", "tpm", "user:ann", "mine")])

    def test_instances_share_holds_and_an_outage_is_an_error(self):
        redis = support.Redis()
        self.addCleanup(redis.remove)
        one, two = [self.limiter(self.serve(*redis.patient_store(), "--grpc-on-store-failure",
                                            "FAIL_CLOSED")) for _ in range(2)]
        made = one.hold(by_rules("llm", limiter_pb2.HoldRequest, tokens=800))
        look = two.check(by_rules("llm", permits=0, detail=True))
        self.assertEqual([band.held for band in look.bands], [1, 800])
        settled = two.settle(limiter_pb2.SettleRequest(id=made.id, rules={"tokens": 300}))
        self.assertEqual([budget.remaining for budget in settled.budgets], [4, 700])
        redis.kill()
        for check in (by_rules("llm", user="bob"),
                      limiter_pb2.CheckRequest(limit="limit=1,window=1h", key="k")):
            self.assertFails(grpc.StatusCode.UNAVAILABLE, ": ", one.check, check)
            answer = one.check_batch(limiter_pb2.CheckBatchRequest(checks=[check]))
            self.assertEqual(answer.results[0].error.code, grpc.StatusCode.UNAVAILABLE.value[0])


class ValidateTest(unittest.TestCase):
    def test_tells_every_problem_with_its_place(self):
        folder = support.Folder()
        self.addCleanup(folder.remove)
        done = support.sluice("validate", folder.write("edge.yaml", CONFIG))
        self.assertEqual((done.returncode, done.stdout),
                         (0, "valid: 0 rule sets, 0 limits, 1 domains\n"))
        file = folder.write("edge.yaml", CONFIG.replace("shadow_mode", "shade_mode")
                            .replace("unit: year", "unit: aeon", 1))
        done = support.sluice("validate", file)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f'{file}:5:24: unit is "aeon"', done.stderr)
        self.assertRegex(done.stderr, r'edge.yaml:15:5: .*"shade_mode".*shadow_mode')


class DrainTest(unittest.TestCase):
    def test_says_so_and_ends(self):
        server = Server()
        self.addCleanup(server.remove)
        with server.channel() as channel:
            watch = method(channel, "unary_stream", "/grpc.health.v1.Health/Watch",
                           health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse)
            stream = watch(health_pb2.HealthCheckRequest(), timeout=TIMEOUT)
            self.assertEqual(next(stream).status, health_pb2.HealthCheckResponse.SERVING)
            self.assertEqual(should_rate_limit(channel)(ask("free", "x"), timeout=TIMEOUT)
                             .overall_code, OK)
            server.send(signal.SIGTERM)
            self.assertEqual(next(stream).status, health_pb2.HealthCheckResponse.NOT_SERVING)
            with self.assertRaises(grpc.RpcError) as caught:
                next(stream)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertEqual(server.wait(), 0)


class TlsTest(unittest.TestCase):
    def test_speaks_h2_over_tls(self):
        folder = support.Folder()
        self.addCleanup(folder.remove)
        cert, key = folder / "cert.pem", folder / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
             "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
             "-keyout", key, "-out", cert], check=True, capture_output=True)
        server = Server("--grpc-tls-certificate", cert, "--grpc-tls-key", key)
        self.addCleanup(server.remove)
        roots = pathlib.Path(cert).read_bytes()
        with server.channel(grpc.ssl_channel_credentials(roots)) as channel:
            call = should_rate_limit(channel)
            futures = [call.future(ask("user", "x"), timeout=TIMEOUT) for _ in range(50)]
            codes = [future.result().overall_code for future in futures]
            self.assertEqual(codes.count(OK), 3)
            large = ask_much(3 << 20)
            self.assertEqual(call(large, timeout=TIMEOUT).overall_code, OK)
        self.assertEqual(self.negotiate(server, cert, ["http/1.1", "h2"]), "h2")
        with self.assertRaises(ssl.SSLError):
            self.negotiate(server, cert, ["http/1.1"])
        self.assertEqual(server.stop(), 0)

    @staticmethod
    def negotiate(server, roots, protocols):
        """What the server selects from these."""
        context = ssl.create_default_context(cafile=roots)
        context.set_alpn_protocols(protocols)
        with socket.create_connection(("127.0.0.1", server.grpc_port), timeout=TIMEOUT) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as secure:
                return secure.selected_alpn_protocol()


class AccessTest(unittest.TestCase):
    """Who may ask: callers with a token or a certificate. Health is public."""

    def setUp(self):
        self.folder = support.Folder()
        self.addCleanup(self.folder.remove)
        self.tokens = self.folder.write("tokens", "envoy first-secret\nsecond-secret\n")

    def serve(self, *options):
        server = Server(*options)
        self.addCleanup(server.remove)
        return server

    @staticmethod
    def code(call, request, token=None):
        """How a call ends, with whatever message it has by then."""
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        try:
            call(request, timeout=TIMEOUT, metadata=metadata)
            return grpc.StatusCode.OK
        except grpc.RpcError as error:
            return error.code()

    @staticmethod
    def list_services(channel, token=None):
        reflect = method(channel, "stream_stream",
                         "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                         reflection_pb2.ServerReflectionRequest,
                         reflection_pb2.ServerReflectionResponse)
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        answers = reflect(iter([question]), timeout=TIMEOUT, metadata=metadata)
        return [service.name for answer in answers
                for service in answer.list_services_response.service]

    @staticmethod
    def health(channel):
        return method(channel, "unary_unary", "/grpc.health.v1.Health/Check",
                      health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse)

    def test_tokens(self):
        server = self.serve("--grpc-token-file", self.tokens)
        with server.channel() as channel:
            call = should_rate_limit(channel)
            for token in (None, "wrong", "envoy", "first-secre", "first-secret2"):
                self.assertEqual(self.code(call, ask("user", "x"), token),
                                 grpc.StatusCode.UNAUTHENTICATED, token)
                with self.assertRaises(grpc.RpcError) as caught:
                    self.list_services(channel, token)
                self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
            self.assertEqual(server.metric("sluice_errors_total", code="UNAUTHENTICATED"), 10)
            for token in ("first-secret", "second-secret"):
                self.assertEqual(self.code(call, ask("user", "x"), token), grpc.StatusCode.OK)
                self.assertIn(RLS, self.list_services(channel, token))
            self.assertEqual(self.code(self.health(channel), health_pb2.HealthCheckRequest()),
                             grpc.StatusCode.OK)

            # They change while the connection stays.
            self.folder.write("tokens", "envoy third-secret")
            self.assertEqual(server.admin("POST", "/admin/v1/reload").status, 200)
            self.assertEqual([self.code(call, ask("user", "y"), token)
                              for token in ("first-secret", "third-secret")],
                             [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.OK])

    def test_client_certificates(self):
        for name in ("ca", "other"):
            support.make_certificate(self.folder, name)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
             "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
             "-keyout", self.folder / "own.key", "-out", self.folder / "own.pem"], check=True,
            capture_output=True)
        support.make_client_certificate(self.folder, "client", "ca")
        support.make_client_certificate(self.folder, "stranger", "other")

        def read(name):
            return pathlib.Path(self.folder / name).read_bytes()

        def codes(server, name=None):
            pair = (read(f"{name}.key"), read(f"{name}.pem")) if name else (None, None)
            with server.channel(grpc.ssl_channel_credentials(read("own.pem"), *pair)) as channel:
                return (self.code(should_rate_limit(channel), ask("free", "x")),
                        self.code(self.health(channel), health_pb2.HealthCheckRequest()))

        tls = ("--grpc-tls-certificate", self.folder / "own.pem", "--grpc-tls-key",
               self.folder / "own.key", "--grpc-tls-client-ca", self.folder / "ca.pem")
        ok, refused = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE
        server = self.serve(*tls)
        self.assertEqual([codes(server, name) for name in (None, "stranger", "client")],
                         [(refused, refused), (refused, refused), (ok, ok)])
        server = self.serve(*tls, "--grpc-token-file", self.tokens)
        self.assertEqual([codes(server, name) for name in (None, "stranger", "client")],
                         [(grpc.StatusCode.UNAUTHENTICATED, ok), (refused, refused), (ok, ok)])
        with server.channel(grpc.ssl_channel_credentials(read("own.pem"))) as channel:
            self.assertEqual(self.code(should_rate_limit(channel), ask("free", "x"),
                                       "first-secret"), ok)


if __name__ == "__main__":
    support.main()
