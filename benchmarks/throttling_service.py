"""An HTTP service for `benchmarks.throttling`: it has its pace, and says 429 beyond it.

Run as a program of its own it prints its port, and ends with its standard input. Each
path is a server of its own. A call takes 20 ms, and 50 us for each item, of which 400
fit at a time: those above take four times as long. Eight calls run side by side at that
pace; with twice as many each takes four times as long. A `PUT` sets limits: larger
calls are refused, or more at a time; and how many times as long all calls take.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import Mapping

from aiohttp import web

from benchmarks.call_service import serve

CALL, ITEM = 0.02, 5e-5
COMFORTABLE_SIZE, COMFORTABLE_CALLS = 400, 8
PAUSE = 0.1


class Pace:
    """Takes calls of so many items, without looking at them."""

    def __init__(self) -> None:
        self._most_items = self._most_calls = sys.maxsize
        self._calls = 0
        self._refused = 0
        self._slower = 1

    async def take(self, items: int) -> bool:
        """Take a moment, or refuse."""
        if items > self._most_items or self._calls >= self._most_calls:
            self._refused += 1
            return False
        self._calls += 1
        try:
            await asyncio.sleep(self._seconds(items))
        finally:
            self._calls -= 1
        return True

    def limit(self, limits: Mapping[str, int]) -> int:
        """Set what is refused from now on; returns how many calls were up to now."""
        self._most_items = limits.get("items", sys.maxsize)
        self._most_calls = limits.get("calls", sys.maxsize)
        self._slower = limits.get("slower", 1)
        refused, self._refused = self._refused, 0
        return refused

    def _seconds(self, items: int) -> float:
        seconds = CALL + ITEM * items + 3 * ITEM * max(0, items - COMFORTABLE_SIZE)
        crowd = max(1.0, self._calls / COMFORTABLE_CALLS) ** 2
        return self._slower * seconds * crowd


class Service:
    """The same over HTTP: one for each path."""

    def __init__(self) -> None:
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)

    async def take(self, request: web.Request) -> web.Response:
        """Answer a call."""
        if await self._paces[request.path].take(int(request.query["items"])):
            return web.Response(status=204)
        return web.Response(status=429, headers={"Retry-After": str(PAUSE)})

    async def limit(self, request: web.Request) -> web.Response:
        """Set the limits."""
        limits = await request.json()
        return web.json_response(self._paces[request.path].limit(limits))


if __name__ == "__main__":
    application, service = web.Application(), Service()
    application.router.add_post("/{server}", service.take)
    application.router.add_put("/{server}", service.limit)
    asyncio.run(serve(application))
