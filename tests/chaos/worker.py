# SPDX-License-Identifier: Apache-2.0
"""A part of a scenario in a separate process, so that what the scenario does meanwhile (starting
servers, waiting for them) does not affect the measurements."""

import asyncio
import gc
import multiprocessing
import os
import signal

PROCESSES = multiprocessing.get_context("fork")


class Worker:
    """Runs an actor's methods in another process: `call("name", ...)` runs `actor.name(...)` in its
    event loop and returns what that returns. `make` builds the actor there, within the loop."""

    def __init__(self, make):
        self.pipe, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(target=_serve, args=(make, theirs, self.pipe), daemon=True)
        self.process.start()
        theirs.close()

    def call(self, name, *arguments):
        self.pipe.send((name, arguments))
        ok, result = self.pipe.recv()
        if not ok:
            raise RuntimeError(f"{name}: {result}")
        return result

    def remove(self):
        self.pipe.close()
        self.process.kill()
        self.process.join()


def _serve(make, pipe, parents_pipe):
    # The parent's handlers would clean up the parent's resources.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    parents_pipe.close()
    # A collection in the middle of a measurement would look like a slow answer.
    gc.disable()
    asyncio.run(_answer_calls(make, pipe))


async def _answer_calls(make, pipe):
    loop = asyncio.get_running_loop()
    actor = make()
    while True:
        readable = asyncio.Event()
        loop.add_reader(pipe.fileno(), readable.set)
        await readable.wait()
        loop.remove_reader(pipe.fileno())
        try:
            name, arguments = pipe.recv()
        except EOFError:
            os._exit(0)  # The scenario is gone.
        try:
            result = getattr(actor, name)(*arguments)
            pipe.send((True, await result if asyncio.iscoroutine(result) else result))
        except Exception as error:  # pylint: disable=broad-except
            pipe.send((False, repr(error)))
