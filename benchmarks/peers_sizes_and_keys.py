"""By hand: a queue bounded by the sizes of its items, and one that is fair to keys."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.contender import Feed, Handlers
from benchmarks.floor import Handle
from benchmarks.ours import beside, each_awaited


class SizedByHand:
    """A list with its size; a condition, of which few take notice, for want of room.

    An error in the handler ends it, who waits is overtaken, nothing is counted.
    """

    def __init__(
        self, size_of: Callable[[Any], int], room: int, most: int, handle: Handle
    ) -> None:
        self._size_of, self._room, self._most, self._handle = (
            size_of,
            room,
            most,
            handle,
        )
        self._items: list[tuple[Any, int]] = []
        self._used = 0
        self._changed = asyncio.Condition()
        self._come = asyncio.Event()

    async def put(self, item: Any) -> None:  # noqa: ANN401 - any item
        """Append an item, after waiting for room."""
        size = self._size_of(item)
        if self._used + size > self._room:
            async with self._changed:
                await self._changed.wait_for(lambda: self._used + size <= self._room)
        self._used += size
        self._items.append((item, size))
        if not self._come.is_set():
            self._come.set()

    async def drain(self) -> None:
        """Hand over batches of a size, for ever."""
        while True:
            await self._come.wait()
            self._come.clear()
            items, self._items = self._items, []
            batch: list[Any] = []
            size = 0
            for item, its_size in items:
                if size + its_size > self._most:
                    await self._end(batch, size)
                    batch, size = [], 0
                batch.append(item)
                size += its_size
            await self._end(batch, size)

    async def _end(self, batch: list[Any], size: int) -> None:
        await self._handle(batch)
        self._used -= size
        async with self._changed:
            self._changed.notify_all()


class FairByHand:
    """A deque for each key, and batches that take from them in turns."""

    def __init__(
        self, key: Callable[[Any], Hashable], room: int, most: int, handle: Handle
    ) -> None:
        self._key, self._room, self._most, self._handle = key, room, most, handle
        self._waiting: dict[Hashable, deque[Any]] = {}
        self._changed = asyncio.Condition()
        self._come = asyncio.Event()

    async def put(self, item: Any) -> None:  # noqa: ANN401 - any item
        """Append an item to those of its key, after waiting for room there."""
        own = self._waiting.setdefault(self._key(item), deque())
        if len(own) >= self._room:
            async with self._changed:
                await self._changed.wait_for(lambda: len(own) < self._room)
        own.append(item)
        if not self._come.is_set():
            self._come.set()

    async def drain(self) -> None:
        """Hand over batches, one item of each key after the other, for ever."""
        while True:
            await self._come.wait()
            self._come.clear()
            while batch := self._next():
                await self._handle(batch)
                async with self._changed:
                    self._changed.notify_all()

    def _next(self) -> list[Any]:
        batch: list[Any] = []
        while len(batch) < self._most:
            turn = [own.popleft() for own in self._waiting.values() if own]
            if not turn:
                break
            batch += turn
        return batch


def by_hand(make: Callable[[Handle], Any]) -> Callable[[Handlers], Any]:
    """Return what opens one of these queues."""

    @asynccontextmanager
    async def opened(handlers: Handlers) -> AsyncIterator[Feed]:
        (handle,) = handlers.values()
        queue = make(handle)
        async with beside(queue.drain()):
            yield lambda portions: each_awaited(queue.put, portions)

    return opened
