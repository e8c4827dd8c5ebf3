#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How the cost of a decision grows, from the smallest to the largest size of each series.

  growth_bench.py [--svg FILE] PROGRAM GROWTH_BENCH

GROWTH_BENCH measures what is within the process. Connections are measured here, by the processor
time of PROGRAM, which is sluice, for a check over HTTP, whatever number of other connections are
open; sizes are interleaved, and figures are medians. --svg draws all of it. The last line has each
series' largest size over its smallest.
"""
import argparse
import contextlib
import html
import math
import os
import re
import resource
import socket
import statistics
import subprocess
import sys

CONNECTIONS = [10, 100, 1000, 10000]
ROUNDS = 5
ACTIVE = 10  # Of the connections, those that ask.
REQUESTS = 20000
CHECK = "/api/v1/rate-limit/check?key=user:%d&algorithm=TOKEN_BUCKET"

TITLES = {
    "keys": ("a check in memory", "live keys"),
    "rules": ("POST /api/v1/check", "rules, each with its path"),
    "overrides": ("POST /api/v1/check", "overrides of a rule"),
    "descriptors": ("ShouldRateLimit", "descriptors configured"),
    "charges": ("each charge of a request", "charges in the request"),
    "log_entries": ("a check of a sliding log", "requests in its window"),
    "connections": ("a check over HTTP", "open connections"),
}


def start(program, connections):
    process = subprocess.Popen(
        [program, "serve", "--threads", "1", "--http", "127.0.0.1:0", "--admin", "",
         "--http-connections-max", str(connections + ACTIVE)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        found = re.search(r"http listening on \S+?:(\d+)", line)
        if found:
            return process, int(found.group(1))
    sys.exit("growth_bench: the HTTP door was not announced")


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(sockets, first):
    """One request on each, and their answers."""
    for number, sock in enumerate(sockets):
        sock.sendall(f"GET {CHECK % (first + number)} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    for sock in sockets:
        answer = b""
        while not answer.endswith(b"}"):
            some = sock.recv(65536)
            if not some:
                sys.exit("growth_bench: the server closed a connection")
            answer += some
        if not answer.startswith(b"HTTP/1.1 200 "):
            sys.exit(f"growth_bench: {answer[:100]}")


def connections_series(program):
    """Nanoseconds of processor time for a request, by the number of connections."""
    with contextlib.ExitStack() as stack:
        servers = []
        for size in CONNECTIONS:
            process, port = start(program, size)
            stack.callback(lambda p=process: (p.terminate(), p.wait()))
            sockets = []
            for number in range(size):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sockets.append(sock)
                ask(sockets[-1:], number)
            servers.append((process, sockets, []))
        for _ in range(ROUNDS):
            for process, sockets, costs in servers:
                before = processor_seconds(process.pid)
                # All of them in turn, ten at a time.
                for turn in range(0, REQUESTS, ACTIVE):
                    at = turn % len(sockets)
                    ask(sockets[at:at + ACTIVE], turn)
                costs.append((processor_seconds(process.pid) - before) / REQUESTS * 1e9)
        return [(size, statistics.median(costs))
                for size, (_, _, costs) in zip(CONNECTIONS, servers)]


def power(number):
    """1000 is 10^3, as SVG."""
    exponent = round(math.log10(number))
    if number == 10 ** exponent and number >= 1000:
        return f'10<tspan dy="-4" font-size="8">{exponent}</tspan>'
    return f"{number:,}".replace(",", " ")


def duration(nanos):
    return f"{nanos:.0f} ns" if nanos < 1000 else f"{nanos / 1000:.3g} µs"


def draw(series):
    width, height, columns, left, top = 240, 170, 4, 46, 44
    plot_width, plot_height = width - left - 16, height - top - 40
    rows = math.ceil(len(series) / columns)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * width}" '
           f'height="{rows * height}" font-family="sans-serif" font-size="11" fill="#222">',
           '<rect width="100%" height="100%" fill="#fff"/>']
    for number, (name, points) in enumerate(series.items()):
        x0 = number % columns * width + left
        y0 = number // columns * height + top
        what, by = TITLES[name]
        sizes = [math.log10(size) for size, _ in points]
        # All panels have the same scale: two powers of ten, from the one below the least.
        floor = math.floor(math.log10(min(cost for _, cost in points)))

        def place(size, cost, x0=x0, y0=y0, sizes=sizes, floor=floor):
            x = x0 + (size - sizes[0]) / (sizes[-1] - sizes[0]) * plot_width
            return x, y0 + plot_height - (math.log10(cost) - floor) / 2 * plot_height

        out.append(f'<text x="{x0}" y="{y0 - 26}" font-weight="bold">{html.escape(what)}</text>')
        out.append(f'<text x="{x0}" y="{y0 - 12}" fill="#666">by {html.escape(by)}</text>')
        for step in range(3):
            y = y0 + plot_height - step / 2 * plot_height
            out.append(f'<path d="M{x0} {y:.1f}h{plot_width}" stroke="#ddd"/>')
            out.append(f'<text x="{x0 - 5}" y="{y + 4:.1f}" text-anchor="end" fill="#666">'
                       f'{duration(10 ** (floor + step))}</text>')
        line = [place(math.log10(size), cost) for size, cost in points]
        out.append('<polyline fill="none" stroke="#0b63a5" stroke-width="2" points="'
                   + " ".join(f"{x:.1f},{y:.1f}" for x, y in line) + '"/>')
        for x, y in line:
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="#0b63a5"/>')
        for (x, y), (size, cost), anchor in ((line[0], points[0], "start"),
                                             (line[-1], points[-1], "end")):
            out.append(f'<text x="{x:.1f}" y="{y - 7:.1f}" text-anchor="{anchor}">'
                       f'{duration(cost)}</text>')
            out.append(f'<text x="{x:.1f}" y="{y0 + plot_height + 15:.1f}" text-anchor="{anchor}" '
                       f'fill="#666">{power(size)}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--svg", metavar="FILE", help="draw the series")
    parser.add_argument("program")
    parser.add_argument("growth_bench")
    options = parser.parse_args()

    files = 2 * sum(CONNECTIONS) + 100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, hard), hard))

    series = {}
    with subprocess.Popen([options.growth_bench], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            name, size, nanos = line.split()
            series.setdefault(name, []).append((int(size), float(nanos)))
    if process.returncode != 0:
        sys.exit(f"growth_bench: {options.growth_bench} ended with {process.returncode}")
    series["connections"] = connections_series(options.program)

    for name, points in series.items():
        what, by = TITLES[name]
        print(f"{what} by {by}: "
              + ", ".join(f"{size:,} {duration(cost)}" for size, cost in points))
    if options.svg:
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(draw(series))
    print(" ".join(f"{name}={points[-1][1] / points[0][1]:.2f}" for name, points in series.items()))


if __name__ == "__main__":
    main()
