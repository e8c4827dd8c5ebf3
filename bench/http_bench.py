#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An HTTP server compared with nginx, which answers the same bytes.

  http_bench.py [options] -- COMMAND...

COMMAND starts the server; {port} in it, and in --path, stands for a free port. nginx runs with one
worker in a temporary folder and answers `return 200` with the body and the headers that the server
gave to one request. Both get the same requests from wrk, in turns, over 32 connections and over one;
figures are medians of the ratios of the rounds. The line before the last compares the processor time
of a request, which says more than the rate when the machine has other things to do. The last line is
NAME_vs_nginx=RATE NAME1_vs_nginx=RATE_OF_ONE_CONNECTION NAME_tail=P99.
"""
import argparse
import http.client
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import typing

MANY = 32  # Connections that keep a server busy.

# Sent by nginx itself.
OWN_HEADERS = {"date", "server", "connection", "content-length", "content-type", "keep-alive"}

WRK_SCRIPT = """
-- Requests are made beforehand, so that wrk has as little to do for each as without a script.
local keys, path = %d, "%s"
local made, at = {}, 0
function init(args)
  math.randomseed(1)
  for i = 1, keys do
    local key = "user:" .. i
    made[i] = wrk.format("GET", (path:gsub("{key}", key)))
  end
  for i = keys, 2, -1 do
    local j = math.random(i)
    made[i], made[j] = made[j], made[i]
  end
end
function request()
  at = at %% keys + 1
  return made[at]
end
"""

NGINX = """
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      default_type "{content_type}";
{headers}
      return 200 '{body}';
    }}
  }}
}}
"""


class Seen(typing.NamedTuple):
    rate: float
    processor: float
    tail: float


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, process, name):
    for _ in range(500):
        if process.poll() is not None:
            sys.exit(f"http_bench: {name} ended with {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    sys.exit(f"http_bench: {name} does not listen on port {port}")


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def start_nginx(folder, response, body):
    binary = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    if binary is None:
        sys.exit("http_bench: nginx is not installed")
    for unsafe in ("'", "$", "\\"):
        if unsafe in body.decode():
            sys.exit(f"http_bench: the body has a {unsafe}, which nginx would not return as it is")
    port = free_port()
    headers = "\n".join(
        f"      add_header {name} '{value}';"
        for name, value in response.getheaders()
        if name.lower() not in OWN_HEADERS
    )
    config = os.path.join(folder, "nginx.conf")
    with open(config, "w", encoding="utf-8") as file:
        file.write(
            NGINX.format(
                folder=folder,
                port=port,
                content_type=response.getheader("Content-Type", "text/plain"),
                headers=headers,
                body=body.decode(),
            )
        )
    command = [binary, "-p", folder, "-e", f"{folder}/error.log", "-c", config]
    process = subprocess.Popen(command)
    wait_for(port, process, "nginx")
    return process, port


def processor_seconds(process):
    """Processor seconds of the process and its children, such as nginx's worker."""
    pids = [str(process.pid)]
    with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
        pids += file.read().split()
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def microseconds(text):
    number, unit = re.fullmatch(r"([0-9.]+)(us|ms|s)", text).groups()
    return float(number) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]


def measure(process, port, path, connections, seconds, script):
    """Requests per second, and in microseconds their processor time and the 99th percentile."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
    if script:
        command += ["-s", script]
    command.append(f"http://127.0.0.1:{port}{path}")
    before = processor_seconds(process)
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    used = processor_seconds(process) - before
    if "Socket errors" in output or "Non-2xx" in output:
        sys.exit(f"http_bench: wrk saw errors\n{output}")
    requests = int(re.search(r"(\d+) requests in", output).group(1))
    rate = float(re.search(r"Requests/sec:\s+([0-9.]+)", output).group(1))
    tail = microseconds(re.search(r"99%\s+(\S+)", output).group(1))
    return Seen(rate, used / requests * 1e6, tail)


def compare(sides, connections, path, options, script):
    """Medians of the rounds' ratios: the server's rate, processor time and tail over nginx's."""
    print(f"{connections} connection{'s' if connections > 1 else ''}")
    ratios = []
    for turn in range(options.rounds):
        seen = {}
        for name in sides if turn % 2 == 0 else reversed(sides):
            seen[name] = measure(*sides[name], path, connections, options.seconds, script)
        server, nginx = seen["server"], seen["nginx"]
        ratios.append(Seen(*(ours / theirs for ours, theirs in zip(server, nginx))))
        for name in sides:
            rate, processor, tail = seen[name]
            print(f"{name} {rate:>8.0f}/s {processor:6.2f} us, p99 {tail:6.0f} us", end="   ")
        print(f"ratio {ratios[-1].rate:.3f}", flush=True)
    return Seen(*(statistics.median(figures) for figures in zip(*ratios)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", default="/", help="the path of requests; {key} is one of --keys")
    parser.add_argument("--keys", type=int, default=0, help="how many different keys to ask for")
    parser.add_argument("--name", default="server", help="what the figures' names begin with")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=2, help="of a measurement")
    parser.add_argument("command", nargs="+", help="starts the server; {port} is a free port")
    options = parser.parse_args()

    # So that nothing is left running or lying around.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("http_bench: terminated"))
    folder = tempfile.mkdtemp(prefix="sluice-http-bench-")
    port = free_port()
    processes = []
    try:
        command = [part.replace("{port}", str(port)) for part in options.command]
        processes.append(subprocess.Popen(command))
        wait_for(port, processes[0], command[0])
        sample_path = options.path.replace("{key}", "user:1")
        response, body = get(port, sample_path)
        if response.status != 200:
            sys.exit(f"http_bench: the server answers {response.status} to GET {sample_path}")
        nginx, nginx_port = start_nginx(folder, response, body)
        processes.append(nginx)
        if get(nginx_port, sample_path)[1] != body:
            sys.exit("http_bench: nginx does not answer the same")

        script = None
        if options.keys:
            script = os.path.join(folder, "requests.lua")
            with open(script, "w", encoding="utf-8") as file:
                file.write(WRK_SCRIPT % (options.keys, options.path))
        sides = {"server": (processes[0], port), "nginx": (nginx, nginx_port)}
        many = compare(sides, MANY, sample_path, options, script)
        one = compare(sides, 1, sample_path, options, script)
        print(f"processor time of a request over nginx's: {many.processor:.3f} with {MANY} "
              f"connections, {one.processor:.3f} with one")
        print(f"{options.name}_vs_nginx={many.rate:.3f} {options.name}1_vs_nginx={one.rate:.3f} "
              f"{options.name}_tail={many.tail:.2f}")
    finally:
        for process in processes:
            process.terminate()
            process.wait()
        shutil.rmtree(folder)


main()
