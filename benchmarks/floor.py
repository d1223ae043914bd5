"""The least a batching queue can do, by hand: what the library is measured against.

Both floors are bounded, wait for room, and hand whole lists over. They have nothing
else: no close, no statistics, no fairness, no errors, no safe cancellation.
"""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import countOf
from typing import Any

Handle = Callable[[list[Any]], Awaitable[None]]


async def dispatch(batch: list[Any], handlers: Mapping[type, Handle]) -> None:
    """Give a batch to its handlers; sorted only if there are several."""
    if len(handlers) == 1:
        for handle in handlers.values():
            await handle(batch)
        return
    by_type: defaultdict[type, list[Any]] = defaultdict(list)
    for item in batch:
        by_type[type(item)].append(item)
    for item_type, share in by_type.items():
        await handlers[item_type](share)


class FloorQueue:
    """A list that its drain task swaps for an empty one, for use on one loop."""

    def __init__(self, bound: int, handlers: Mapping[type, Handle]) -> None:
        self._items: list[Any] = []
        self._bound = bound
        self._handlers = handlers
        self._room = asyncio.Event()
        self._work = asyncio.Event()
        self._is_asleep = False

    async def put(self, item: object) -> None:
        """Append an item, after waiting for room."""
        while len(self._items) >= self._bound:
            await self._wait_for_room()
        self._items.append(item)
        if self._is_asleep:
            self._wake()

    def put_nowait(self, item: object) -> bool:
        """Append an item if there is room."""
        if len(self._items) >= self._bound:
            return False
        self._items.append(item)
        if self._is_asleep:
            self._wake()
        return True

    async def put_many(self, chunk: Sequence[object]) -> None:
        """Append a chunk; looks at each item's type, as a queue of types must."""
        countOf(map(type, chunk), type(chunk[0]))
        while len(self._items) + len(chunk) > self._bound:
            await self._wait_for_room()
        self._items.extend(chunk)
        if self._is_asleep:
            self._wake()

    async def flush(self) -> None:
        """Wait until all is handled."""
        while not self._is_asleep:  # noqa: ASYNC110 - `drain` would pay for an event
            await asyncio.sleep(0)

    async def drain(self) -> None:
        """Hand batches over until cancelled."""
        while True:
            if not self._items:
                self._is_asleep = True
                self._work.clear()
                await self._work.wait()
            batch, self._items = self._items, []
            self._room.set()
            await dispatch(batch, self._handlers)
            await asyncio.sleep(0)

    async def _wait_for_room(self) -> None:
        self._room.clear()
        await self._room.wait()

    def _wake(self) -> None:
        self._is_asleep = False
        self._work.set()


class FloorBridge:
    """A floor for other threads: one lock, one wake-up of the loop per burst."""

    def __init__(self, bound: int, handlers: Mapping[type, Handle]) -> None:
        self._items: list[Any] = []
        self._bound = bound
        self._handlers = handlers
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._loop = asyncio.get_running_loop()
        self._work = asyncio.Event()
        self._is_posted = False

    def put(self, item: object) -> None:
        """Append an item, blocking until there is room."""
        with self._lock:
            while len(self._items) >= self._bound:
                self._room.wait()
            self._items.append(item)
            if self._is_posted:
                return
            self._is_posted = True
        self._loop.call_soon_threadsafe(self._work.set)

    def put_many(self, chunk: Sequence[object]) -> None:
        """Append a chunk; looks at each item's type, as a queue of types must."""
        countOf(map(type, chunk), type(chunk[0]))
        with self._lock:
            while len(self._items) + len(chunk) > self._bound:
                self._room.wait()
            self._items.extend(chunk)
            if self._is_posted:
                return
            self._is_posted = True
        self._loop.call_soon_threadsafe(self._work.set)

    async def drain(self) -> None:
        """Hand batches over until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            with self._lock:
                batch, self._items = self._items, []
                self._is_posted = False
                self._room.notify_all()
            await dispatch(batch, self._handlers)
