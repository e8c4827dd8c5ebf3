# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that makes the network worse: late, or silent."""

import asyncio
import time

from worker import Worker


class Proxy:
    """Sits between the service and a server. At first it only passes bytes on."""

    def __init__(self, target_port):
        self.worker = Worker(lambda: _Proxy(target_port))
        self.port = self.worker.call("listen")

    def delay(self, seconds):
        """Delays what the server sends by this much; 0: no delay."""
        self.worker.call("set_delay", seconds)

    def black_hole(self):
        """Nothing arrives any more, in either direction, and nothing reports that. Connections can
        still be made, and stay silent."""
        self.worker.call("set_silent", True)

    def heal(self):
        """Ends a black hole. What was sent meanwhile arrives now, as if TCP had resent it."""
        self.worker.call("set_silent", False)

    def remove(self):
        self.worker.remove()


class _Proxy:
    def __init__(self, target_port):
        self.target_port = target_port
        self.delay = 0.0
        self.passing = asyncio.Event()
        self.passing.set()
        self.server = None

    async def listen(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return self.server.sockets[0].getsockname()[1]

    def set_delay(self, seconds):
        self.delay = seconds

    def set_silent(self, silent):
        if silent:
            self.passing.clear()
        else:
            self.passing.set()

    async def serve(self, client_reader, client_writer):
        try:
            await self.passing.wait()
            server_reader, server_writer = await asyncio.open_connection(
                "127.0.0.1", self.target_port)
        except OSError:
            client_writer.transport.abort()
            return
        await asyncio.gather(self.carry(client_reader, server_writer, lambda: 0.0),
                             self.carry(server_reader, client_writer, lambda: self.delay))

    async def carry(self, reader, writer, delay):
        """Reads and writes separately, so that a delay makes answers late, not rare."""
        parts = asyncio.Queue()
        writing = asyncio.ensure_future(self.write(parts, writer))
        try:
            while data := await reader.read(65536):
                parts.put_nowait((time.monotonic() + delay(), data))
        except OSError:
            pass
        parts.put_nowait((time.monotonic() + delay(), b""))
        await writing

    async def write(self, parts, writer):
        try:
            while True:
                due, data = await parts.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await self.passing.wait()
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()
