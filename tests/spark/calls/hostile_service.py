"""An HTTP service that limits, fails, resets, hangs and dies: ten times each number.

Run: python -m tests.spark.calls.hostile_service PORT LOG LAST, where it kills itself in
the middle of its call number LAST; 0 for never. LOG gets a line for each answer.
"""

import asyncio
import os
import signal
import sys
from itertools import count
from pathlib import Path

from aiohttp import web

FAULTS = {3: "limited", 6: "failed", 9: "reset", 12: "hung"}
"""What becomes of some calls in each `EVERY`."""
EVERY = 17
PAUSE = 0.05
HANGS = 3.0
"""Seconds; more than a caller waits."""


def is_poison(number: int) -> bool:
    """Whether the service never takes it, where it is asked to be `strict`."""
    return number % 50 == 7


class HostileService:
    """Answers in its own way."""

    def __init__(self, log: Path, last: int) -> None:
        self._log = log
        self._last = last
        self._calls = count(1)

    async def answer(self, request: web.Request) -> web.Response:
        """Answer, or what the call's number says."""
        numbers = await request.json()
        call = next(self._calls)
        if call == self._last:
            self._note("killed")
            os.kill(os.getpid(), signal.SIGKILL)
        fault = FAULTS.get(call % EVERY)
        self._note(fault or "answered")
        if fault == "limited":
            return web.Response(status=429, headers={"Retry-After": str(PAUSE)})
        if fault == "failed":
            return web.Response(status=500)
        if fault == "reset" and request.transport is not None:
            request.transport.abort()
        await asyncio.sleep(HANGS if fault == "hung" else 0.01)
        if "strict" in request.query and any(map(is_poison, numbers)):
            return web.Response(status=400)
        return web.json_response([10 * number for number in numbers])

    def _note(self, what: str) -> None:
        with self._log.open("a") as log:
            log.write(f"{what}\n")


async def serve(port: int, log: Path, last: int) -> None:
    """Serve until the process is ended."""
    application = web.Application()
    application.router.add_post("/", HostileService(log, last).answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
