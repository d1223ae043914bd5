"""So many calls per second at most, whoever makes them."""

from __future__ import annotations

import asyncio


class CallRate:
    """A token bucket that holds one token: calls are spread, there are no bursts.

    In any `t` seconds no more than `1 + t * per_second` calls begin. Who waits has his
    moment already, so those who are woken late don't slow the others down.
    """

    def __init__(self, per_second: float) -> None:
        self._between = 1 / per_second
        self._next = 0.0

    async def turn(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        moment = max(now, self._next)
        self._next = moment + self._between
        # A timer may fire a clock tick early.
        while (left := moment - now) > 0:
            await asyncio.sleep(left)
            now = loop.time()
