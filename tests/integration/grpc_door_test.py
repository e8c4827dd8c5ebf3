# SPDX-License-Identifier: Apache-2.0
"""`sluice serve --grpc` with a gRPC client that is not ours: Debian's python3-grpcio.

Usage: grpc_door_test.py PROGRAM
"""

import importlib
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import support

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
RLS = "envoy.service.ratelimit.v3.RateLimitService"
CONFIG = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 3}
  - key: crowd
    rate_limit: {unit: year, requests_per_unit: 1000}
  - key: free
    rate_limit: {unlimited: true}
"""
TIMEOUT = support.PATIENCE


def load_messages(folder):
    """What protoc makes of proto/, as Python modules."""
    protos = [str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto")]
    subprocess.run(["protoc", f"--proto_path={PROTO}", f"--python_out={folder}", *protos],
                   check=True)
    # `grpc` is the client library; its health and reflection messages are found beside it.
    sys.path.insert(0, folder)
    grpc.__path__.append(f"{folder}/grpc")
    return [importlib.import_module(name) for name in
            ("envoy.service.ratelimit.v3.rls_pb2", "grpc.health.v1.health_pb2",
             "grpc.reflection.v1.reflection_pb2", "grpc.reflection.v1alpha.reflection_pb2")]


FOLDER = tempfile.TemporaryDirectory()
rls_pb2, health_pb2, reflection_pb2, reflection_alpha_pb2 = load_messages(FOLDER.name)


class Server(support.Service):
    """A service with a gRPC door."""

    def __init__(self, *options):
        self.config = support.Folder()
        self.config.write("rls/edge.yaml", CONFIG)
        super().__init__("--grpc", "127.0.0.1:0", *options, "--rls-config", self.config / "rls")

    def channel(self, credentials=None):
        # Channels to one address share a connection unless told not to.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        target = f"localhost:{self.grpc_port}"
        if credentials:
            return grpc.secure_channel(target, credentials, options)
        return grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}", options)

    def remove(self):
        super().remove()
        self.config.remove()


def method(channel, kind, path, request, response):
    return getattr(channel, kind)(path, request_serializer=request.SerializeToString,
                                  response_deserializer=response.FromString)


def should_rate_limit(channel):
    return method(channel, "unary_unary", f"/{RLS}/ShouldRateLimit", rls_pb2.RateLimitRequest,
                  rls_pb2.RateLimitResponse)


def ask(key, value, domain="edge", hits=0):
    request = rls_pb2.RateLimitRequest(domain=domain, hits_addend=hits)
    entry = request.descriptors.add().entries.add()
    entry.key, entry.value = key, value
    return request


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
        large = ask("free", "x" * ((4 << 20) - 100))
        self.assertEqual(call(large, timeout=TIMEOUT).overall_code, OK)
        self.assertFails(grpc.StatusCode.RESOURCE_EXHAUSTED, call, ask("free", "x" * (5 << 20)))
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
        for service in ("", RLS):
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
            self.assertIn(RLS, names)
            answers = list(reflect(iter([
                messages.ServerReflectionRequest(file_containing_symbol=RLS),
                messages.ServerReflectionRequest(file_containing_symbol="no.such.Symbol"),
            ]), timeout=TIMEOUT))
            self.assertEqual(answers[1].error_response.error_code, 5)
            self.call_by_description(answers[0].file_descriptor_response.file_descriptor_proto)

    def call_by_description(self, files):
        """Calls with nothing but what reflection gave, as a tool would."""
        files = [descriptor_pb2.FileDescriptorProto.FromString(file) for file in files]
        pool = descriptor_pool.DescriptorPool()
        while files:
            ready = [file for file in files
                     if not any(other.name in file.dependency for other in files)]
            self.assertTrue(ready)
            for file in ready:
                pool.Add(file)
                files.remove(file)
        described = pool.FindServiceByName(RLS).methods[0]
        factory = message_factory.MessageFactory(pool)
        request = factory.GetPrototype(described.input_type)
        response = factory.GetPrototype(described.output_type)
        call = method(self.channel, "unary_unary", f"/{RLS}/{described.name}", request, response)
        sent = request.FromString(ask("free", "x").SerializeToString())
        self.assertEqual(call(sent, timeout=TIMEOUT).overall_code, OK)

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
            large = ask("free", "x" * (3 << 20))
            self.assertEqual(call(large, timeout=TIMEOUT).overall_code, OK)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    support.main()
