"""A handler with every fault that a real one has, by chance."""

import asyncio
import random

from tests.stress.tally import Item, Tally

TIMEOUT = 0.2
"""The queue's `handler_timeout`; some calls hang for longer."""


class Failed(Exception):
    """A handler failed by chance."""


class FaultyHandler:
    """Mostly quick; fails, is slow, hangs, cancels itself, or won't be cancelled.

    Args:
        tally: Learns what was handled, and what should never be.
        name: Stands in what it tells.
        seed: Of the handler's chance.
        hangs: Whether the queue has a timeout that ends calls which hang.
        most_inside: How many drain tasks may be in `consume` at once.
    """

    def __init__(
        self, tally: Tally, name: str, seed: int, *, hangs: bool, most_inside: int = 1
    ) -> None:
        self._tally = tally
        self._name = name
        self._chance = random.Random(seed)
        self._hangs = hangs
        self._most_inside = most_inside
        self._inside: list[str] = []
        self._is_closed = False

    async def consume(self, batch: list[Item]) -> None:
        self._enter("consume", beside=self._most_inside - 1)
        self._inside.append("consume")
        try:
            was_cancelled = await self._work()
        finally:
            self._inside.remove("consume")
        if was_cancelled:
            # Returning would say that the batch is handled, late as it is.
            raise Failed
        self._tally.handled(self, batch)

    async def on_idle(self) -> None:
        self._enter("on_idle")

    async def on_flush(self) -> None:
        self._enter("on_flush")
        self._inside.append("on_flush")
        try:
            await asyncio.sleep(0)
        finally:
            self._inside.remove("on_flush")

    async def on_close(self) -> None:
        self._enter("on_close")
        self._is_closed = True

    def _enter(self, call: str, beside: int = 0) -> None:
        if len(self._inside) > beside:
            self._tally.bad("entered twice", f"{call} beside {self._inside} {self}")
        if self._is_closed:
            self._tally.bad("after close", f"{call} {self}")

    def __str__(self) -> str:
        return self._name

    async def _work(self) -> bool:
        luck = self._chance.random()
        if luck < 0.03:
            raise Failed
        if luck < 0.2:
            await asyncio.sleep(0)
        elif luck < 0.22:
            await asyncio.sleep(self._chance.random() * 0.02)
        elif luck < 0.225:
            await self._cancel_itself()
        elif luck < 0.227 and self._hangs:
            await asyncio.sleep(100 * TIMEOUT)
        elif luck < 0.229 and self._hangs:
            return await self._swallow(self._chance.choice([0.05, 0.3]))
        return False

    async def _cancel_itself(self) -> None:
        if self._chance.random() < 0.5:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def _swallow(self, seconds: float) -> bool:
        """Go on after a cancellation; returns whether there was one."""
        try:
            await asyncio.sleep(100 * TIMEOUT)
        except asyncio.CancelledError:
            await asyncio.sleep(seconds)
            return True
        return False
