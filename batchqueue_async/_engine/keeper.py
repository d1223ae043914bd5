"""Keeps started queues alive, and says so when a loop ends without their shutdown.

A parked drain task is referenced by nobody but its queue: without a keeper a queue that
its user lost sight of would vanish with its items. The keeper hangs on the loop, so it
never outlives it, and learns of the loop's end as an asynchronous generator does.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator
from typing import Protocol

from batchqueue_async._engine.reentrancy import outside

_ATTRIBUTE = "_batchqueue_async_keeper"


class Kept(Protocol):
    """A started queue."""

    @property
    def name(self) -> str:
        """Stands in the warning."""

    def seal(self) -> None:
        """Let nothing in any more: the loop has ended."""

    def count_left(self) -> int:
        """Return how many items are waiting or in flight."""


class Keeper:
    """The started queues of one loop."""

    def __init__(self) -> None:
        self._queues: dict[int, Kept] = {}
        self._sentinel: AsyncGenerator[None, None] | None = None
        self._canary: asyncio.Task[None] | None = None

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> Keeper:
        """Return the loop's keeper; the first call makes it."""
        keeper = getattr(loop, _ATTRIBUTE, None)
        if keeper is None:
            keeper = Keeper()
            setattr(loop, _ATTRIBUTE, keeper)
        assert isinstance(keeper, Keeper)
        return keeper

    @property
    def queues(self) -> list[Kept]:
        """The queues, in order of their start."""
        return list(self._queues.values())

    @property
    def is_ending(self) -> bool:
        """Whether all tasks of the loop are being cancelled, as at its end."""
        canary = self._canary
        # Without one nothing is kept: a start that failed leaves its tasks to the loop.
        return canary is None or canary.done() or canary.cancelling() > 0

    async def keep(self, queue: Kept) -> None:
        self._queues[id(queue)] = queue
        self.sing()
        if self._sentinel is None:
            self._sentinel = self._watch()
            # Its first step registers it with the loop.
            await anext(self._sentinel)

    def sing(self) -> None:
        """Have a canary: again, if somebody cancelled it and the loop lives on."""
        if self._canary is None or self._canary.done():
            self._canary = outside(asyncio.get_running_loop().create_task, _sing())
            self._canary.set_name("batchqueue_async canary")

    async def release(self, queue: Kept) -> None:
        self.forget(queue)
        if self._queues:
            return
        sentinel, self._sentinel = self._sentinel, None
        canary, self._canary = self._canary, None
        if sentinel is not None:
            await sentinel.aclose()
        if canary is not None:
            canary.cancel()
            await asyncio.wait({canary})

    def forget(self, queue: Kept) -> None:
        self._queues.pop(id(queue), None)

    def __del__(self) -> None:
        self._warn()

    async def _watch(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._warn()

    def _warn(self) -> None:
        queues = list(self._queues.values())
        self._queues.clear()
        for queue in queues:
            queue.seal()
            warnings.warn(
                f"the loop of queue {queue.name!r} ended without its shutdown: "
                f"{queue.count_left()} items are left",
                ResourceWarning,
                stacklevel=2,
            )


async def _sing() -> None:
    # A task that nobody cancels but those who cancel all.
    await asyncio.get_running_loop().create_future()
