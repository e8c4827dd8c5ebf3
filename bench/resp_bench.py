#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CL.THROTTLE on the RESP door against INCR on redis-server, both on random keys.

  resp_bench.py [options] PROGRAM

PROGRAM is sluice; it serves from memory with one thread, as redis-server does without persistence.
Both get the same redis-benchmark, in turns, once without pipelining and once 16 deep; each figure is
the median of the ratios of the rounds. The last line of output is
resp1_vs_redis=RATIO resp16_vs_redis=RATIO.
"""
import argparse
import csv
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

THROTTLE = ["CL.THROTTLE", "key:__rand_int__", "100", "1000", "60"]
INCR = ["INCR", "key:__rand_int__"]
# With a tenth of them, redis-server is so fast that redis-benchmark itself is measured, since it
# has more to write and read for CL.THROTTLE.
KEYS = 1_000_000


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_redis(folder):
    port = free_port()
    process = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly",
         "no", "--dir", folder], stdout=subprocess.DEVNULL)
    for _ in range(500):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process, port
        time.sleep(0.01)
    process.kill()
    sys.exit("resp_bench: redis-server does not listen")


def start_sluice(program):
    process = subprocess.Popen(
        [program, "serve", "--http", "", "--admin", "", "--resp", "127.0.0.1:0", "--threads", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        found = re.search(r"resp listening on \S+?:(\d+)", line)
        if found:
            return process, int(found.group(1))
    sys.exit("resp_bench: the RESP door was not announced")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(process, port, depth, requests, command):
    """Requests per second, and microseconds of the server's processor time per request."""
    before = cpu_seconds(process.pid)
    done = subprocess.run(
        ["redis-benchmark", "-p", str(port), "-c", "50", "-n", str(requests), "-r", str(KEYS), "-P",
         str(depth), "--csv", *command], capture_output=True, text=True, check=True)
    used = cpu_seconds(process.pid) - before
    rows = [row for row in csv.reader(done.stdout.splitlines()) if row]
    if "rror" in done.stdout + done.stderr:
        sys.exit(f"resp_bench: {done.stdout}{done.stderr}")
    return float(rows[-1][1]), 1e6 * used / requests


def compare(servers, depth, requests, rounds):
    ratios, costs = [], []
    for number in range(rounds):
        # The machine may behave differently for whoever goes first.
        order = [("redis", INCR), ("sluice", THROTTLE)]
        if number % 2:
            order.reverse()
        rate, cost = {}, {}
        for name, command in order:
            process, port = servers[name]
            rate[name], cost[name] = measure(process, port, depth, requests, command)
        ratios.append(rate["sluice"] / rate["redis"])
        costs.append(cost["redis"] / cost["sluice"])
        print(f"  {depth:2} deep: redis {rate['redis']:9.0f}/s {cost['redis']:5.2f} us, "
              f"sluice {rate['sluice']:9.0f}/s {cost['sluice']:5.2f} us", flush=True)
    print(f"  {depth:2} deep: {statistics.median(costs):.2f} times the commands per second of "
          "processor time")
    return statistics.median(ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--requests", type=int, default=200_000, help="of a round; pipelined: 5x")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        servers = {"redis": start_redis(folder), "sluice": start_sluice(options.program)}
        try:
            one = compare(servers, 1, options.requests, options.rounds)
            sixteen = compare(servers, 16, 5 * options.requests, options.rounds)
        finally:
            for process, _ in servers.values():
                process.terminate()
                process.wait()
    print(f"resp1_vs_redis={one:.2f} resp16_vs_redis={sixteen:.2f}")


if __name__ == "__main__":
    main()
