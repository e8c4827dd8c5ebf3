# SPDX-License-Identifier: Apache-2.0
"""Clients that take slots of a concurrency limit, keep them for a moment, and release them. They
write down what they hold before they do anything else, so that it is known even of those that are
killed."""

import asyncio
import collections
import json
import os
import random
import time

from worker import Worker

HOLDS = "/api/v1/holds"

# On average; how long a client keeps a slot, and how long it waits before it asks again.
KEEPS_S = 0.2
PAUSES_S = 5.0


class Holders:
    """This many clients in a process of their own, each with a connection of its own."""

    def __init__(self, ports, name, count, log_path, rule_set, seed):
        self.log_path = log_path
        self.worker = Worker(lambda: _Crowd(ports, name, count, log_path, rule_set, seed))

    def set_ports(self, ports):
        self.worker.call("set_ports", ports)

    def outcomes(self):
        return self.worker.call("count")

    def stop(self):
        """Releases what they hold; returns how often each outcome occurred."""
        return self.worker.call("stop")

    def kill(self):
        self.worker.process.kill()
        self.worker.process.join()

    def remove(self):
        self.worker.remove()

    def held(self):
        """All intervals in which one of them surely held a slot: from when it knew until it began
        to release it, or until it expired. By the clock that Redis has, too."""
        begun, until = {}, {}
        with open(self.log_path, encoding="ascii") as file:
            for line in file:
                hold, told, holds_until = line.split()
                begun.setdefault(hold, float(told))
                until[hold] = float(holds_until)
        return [(begun[hold], until[hold]) for hold in begun if begun[hold] < until[hold]]


class _Crowd:
    def __init__(self, ports, name, count, log_path, rule_set, seed):
        self.random = random.Random(seed)
        self.ports = list(ports)
        self.log_file = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.rule_set = rule_set
        self.outcomes = collections.Counter()
        self.stopping = asyncio.Event()
        self.tasks = [asyncio.ensure_future(self.live(f"{name}-{number}"))
                      for number in range(count)]

    def set_ports(self, ports):
        self.ports = list(ports)

    def count(self):
        return self.outcomes

    async def stop(self):
        self.stopping.set()
        await asyncio.gather(*self.tasks)
        return self.outcomes

    def log(self, hold, until):
        os.write(self.log_file, f"{hold} {time.time():.6f} {until:.6f}\n".encode())

    async def pause(self, average):
        """Shorter if all is over."""
        try:
            await asyncio.wait_for(self.stopping.wait(), self.random.uniform(0, 2 * average))
        except TimeoutError:
            pass

    async def live(self, name):
        client = _Client(self)
        number = 0
        await self.pause(PAUSES_S / 2)
        while not self.stopping.is_set():
            number += 1
            await self.hold(client, f"{name}-{number}")
            if self.random.random() < 0.2:
                client.close()  # The next request may go to another instance.
            await self.pause(PAUSES_S)
        client.close()

    async def hold(self, client, name):
        status, made = await client.ask(
            "POST", HOLDS, {"ruleSet": self.rule_set, "id": name, "context": {"userId": "all"}})
        self.outcomes[{201: "granted", 429: "denied"}.get(status) or made["error"]["code"]] += 1
        if status != 201:
            return
        expires = made["expiresAtMicros"] / 1e6
        self.log(name, expires)
        await self.pause(KEEPS_S)
        if self.random.random() < 0.2:
            status, extended = await client.ask("POST", f"{HOLDS}/{made['id']}/extend", {})
            if status == 200:
                expires = extended["expiresAtMicros"] / 1e6
                self.log(name, expires)
            await self.pause(KEEPS_S)
        self.log(name, min(expires, time.time()))
        if self.random.random() < 0.2:
            client.close()
        status, released = await client.ask("DELETE", f"{HOLDS}/{made['id']}")
        if status != 200:
            self.outcomes[released["error"]["code"]] += 1


class _Client:
    """One connection at a time, to any of the instances. Ids make it safe to ask again."""

    def __init__(self, crowd):
        self.crowd = crowd
        self.reader = self.writer = None

    async def ask(self, method, path, document=None):
        body = json.dumps(document).encode() if document is not None else b""
        request = (f"{method} {path} HTTP/1.1\r\nHost: chaos\r\nContent-Type: application/json\r\n"
                   f"Content-Length: {len(body)}\r\n\r\n").encode() + body
        while True:
            try:
                if not self.writer:
                    self.reader, self.writer = await asyncio.open_connection(
                        "127.0.0.1", self.crowd.random.choice(self.crowd.ports))
                self.writer.write(request)
                head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
                answer = json.loads(await self.reader.readexactly(length))
                if b"connection: close" in head:
                    self.close()
                return int(head[9:12]), answer
            except (OSError, EOFError):
                self.crowd.outcomes["broken"] += 1
                self.close()
                await asyncio.sleep(0.1)

    def close(self):
        if self.writer:
            self.writer.close()
        self.reader = self.writer = None
