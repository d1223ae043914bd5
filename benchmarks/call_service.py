"""An HTTP service for `benchmarks.spark_calls`: 20 ms away, and not always well.

Run as a program of its own it prints its port, and ends with its standard input. One
answer in a hundred is an error, one a 429; with `?slow=1` one in a hundred takes ten
times as long.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from aiohttp import web

LATENCY = 0.02
PAUSE = 0.02
_ONE_IN = 100
_TIMES = 10


class Service:
    """Answers twice the number that it is sent, or twice each of a list's."""

    def __init__(self) -> None:
        self._calls = count()

    async def answer(self, request: web.Request) -> web.Response:
        """Take a moment, and fail from time to time."""
        numbers = await request.json()
        call = next(self._calls) % _ONE_IN
        is_slow = call == _ONE_IN // 2 and "slow" in request.query
        await asyncio.sleep(LATENCY * (_TIMES if is_slow else 1))
        if call == 1:
            return web.Response(status=500)
        if call == _ONE_IN // 3:
            return web.Response(status=429, headers={"Retry-After": str(PAUSE)})
        if isinstance(numbers, list):
            return web.json_response([2 * number for number in numbers])
        return web.json_response(2 * numbers)


async def serve(application: web.Application) -> None:
    """Serve until standard input ends."""
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


@contextmanager
def running_service(module: str = "benchmarks.call_service") -> Iterator[int]:
    """Run one in a process of its own; returns its port."""
    command = [sys.executable, "-m", module]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate()


if __name__ == "__main__":
    answering = web.Application()
    answering.router.add_post("/", Service().answer)
    asyncio.run(serve(answering))
