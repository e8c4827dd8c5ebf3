#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gRPC door against a bare grpc++ callback server, under h2load.

Usage: grpc_bench.py SLUICE GRPCPP_SERVER. Both answer ShouldRateLimit with one descriptor; Sluice
decides on its memory store with one thread, grpc++ answers a constant OK with as many as it likes.
Rounds are interleaved; figures are medians. The last line is grpc_vs_grpcpp=….
"""
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROUNDS = 7
SECONDS = 3
WARM_UP_SECONDS = 1
CONNECTIONS = 8
STREAMS = 16
PATH = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
CONFIG = """
domain: bench
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
"""


def field(number, payload):
    return bytes([number << 3 | 2, len(payload)]) + payload


def request():
    """A framed RateLimitRequest for one descriptor of one entry."""
    entry = field(1, b"user") + field(2, b"user:0123456789")
    message = field(1, b"bench") + field(2, field(1, entry))
    return b"\0" + len(message).to_bytes(4, "big") + message


def start(command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        found = re.match(r"grpc listening on \S+:(\d+)$", line)
        if found:
            return process, int(found.group(1))
    raise SystemExit(f"{command[0]} did not start")


def load(port, body, seconds):
    """Calls per second; every call must have been answered."""
    out = subprocess.run(
        ["h2load", "-c", str(CONNECTIONS), "-m", str(STREAMS), "-t", "1", "-D", str(seconds),
         "-d", body, "-H", "content-type: application/grpc", "-H", "te: trailers",
         f"http://127.0.0.1:{port}{PATH}"],
        check=True, capture_output=True, text=True).stdout
    done, failed = map(int, re.search(r"(\d+) succeeded, (\d+) failed", out).groups())
    if done == 0 or failed > 0:
        raise SystemExit(f"not every call was answered:\n{out}")
    return float(re.search(r"finished in \S+, ([\d.]+) req/s", out).group(1))


def main():
    program, peer = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "rls").mkdir()
        (folder / "rls" / "bench.yaml").write_text(CONFIG)
        (folder / "request").write_bytes(request())
        servers = {}
        try:
            servers["sluice"] = start(
                [program, "serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0",
                 "--admin", "127.0.0.1:0", "--threads", "1", "--rls-config", str(folder / "rls")])
            servers["grpc++"] = start([peer])
            figures = {name: [] for name in servers}
            for name, (_, port) in servers.items():
                load(port, folder / "request", WARM_UP_SECONDS)
            for _ in range(ROUNDS):
                for name, (_, port) in servers.items():
                    figures[name].append(load(port, folder / "request", SECONDS))
        finally:
            for process, _ in servers.values():
                process.kill()
                process.wait()
    for name, rates in figures.items():
        print(f"{name:8} {statistics.median(rates):10.0f} calls/s "
              f"({min(rates):.0f} .. {max(rates):.0f})")
    ratio = statistics.median(a / b for a, b in zip(figures["sluice"], figures["grpc++"]))
    print(f"grpc_vs_grpcpp={ratio:.2f}")


main()
