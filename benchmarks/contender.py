"""One way of getting items to their handlers, and how it is timed."""

import asyncio
import gc
import time
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.floor import Handle
from benchmarks.scale import LoopFactory

BOUND = 20_000
"""Waiting items at most, for everybody."""

Handlers = Mapping[type, Handle]
Feed = Callable[[Sequence[Any]], Awaitable[None]]
"""Produces portions on the loop: items, or chunks of them."""
BlockingFeed = Callable[[Sequence[Any]], None]
"""The same on a thread."""
Role = Literal["ours", "peer", "floor", "other"]
"""Goals compare with peers; "other" is shown for the sake of completeness."""


@dataclass
class Contender:
    """`open` gets handlers and yields a feed; contenders of one group do the same."""

    name: str
    group: str
    open: Callable[[Handlers], AbstractAsyncContextManager[Any]]
    items: int
    role: Role = "peer"
    chunk: int = 1
    needs: str | None = None
    is_slow: bool = False
    """Left out of a quick run: too few of its items would never meet the bound."""
    is_in_goals: bool = False
    """Takes as many turns as the library does."""
    dropped: list[float] = field(default_factory=list)
    """Which part of the items got lost, for those who lose any."""
    batches: list[float] = field(default_factory=list)
    """The mean size of each sample's batches."""


class Counter:
    """Handlers for some types, and the moment when enough items have reached them."""

    def __init__(self, types: Sequence[type], expected: int) -> None:
        self.left = expected
        self.calls = 0
        self._done = asyncio.Event()
        self.handlers: Handlers = dict.fromkeys(types, self._count)

    async def _count(self, batch: list[Any]) -> None:
        self.calls += 1
        self.left -= len(batch)
        if self.left <= 0:
            self._done.set()

    def expect(self, count: int) -> None:
        """Count anew."""
        self.left = count
        self._done.clear()

    async def wait(self) -> None:
        """Wait until the last item was handled."""
        await self._done.wait()


class Items:
    """Items of some types in turn, and chunks of them, made once for all contenders.

    Long runs get the same items again and again: their making is not measured.

    Args:
        kinds: How many types there are.
        most: How many items are made at most.
        base: What all types derive from.
        has_base_handler: Whether the base has a handler, instead of each type.
    """

    _MADE = 500_000

    def __init__(
        self,
        kinds: int,
        most: int,
        base: type = object,
        *,
        has_base_handler: bool = False,
    ) -> None:
        slots = {"__slots__": ()}
        self.types = [type(f"Type{n}", (base,), slots) for n in range(kinds)]
        self.handled = [base] if has_base_handler else self.types
        made = min(most, self._MADE)
        self._items: list[Any] = [self.types[n % kinds]() for n in range(made)]
        self._chunks: dict[int, list[Any]] = {1: self._items}

    def portions(self, count: int, chunk: int) -> list[Any]:
        """Return so many items, or as many in chunks."""
        if chunk not in self._chunks:
            starts = range(0, len(self._items) - chunk + 1, chunk)
            self._chunks[chunk] = [self._items[at : at + chunk] for at in starts]
        made, wanted = self._chunks[chunk], count // chunk
        return (made * (wanted // len(made) + 1))[:wanted]


def in_loop_rate(contender: Contender, items: Items, loop: LoopFactory) -> float:
    """Return items per second from the first one produced to the last one handled."""
    portions = items.portions(contender.items, contender.chunk)

    async def run() -> float:
        counter = Counter(items.handled, contender.items)
        async with contender.open(counter.handlers) as feed:
            started = time.perf_counter()
            await feed(portions)
            await counter.wait()
            took = time.perf_counter() - started
        contender.batches.append(contender.items / counter.calls)
        return contender.items / took

    return _timed(contender, run, loop)


def threads_rate(
    contender: Contender, items: Items, loop: LoopFactory, threads: int
) -> float:
    """Return the same for producers on so many threads."""
    portions = items.portions(contender.items, contender.chunk)
    shares = [portions[start::threads] for start in range(threads)]

    async def run() -> float:
        counter = Counter(items.handled, contender.items)
        async with contender.open(counter.handlers) as feed:
            started = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for share in shares:
                    group.create_task(asyncio.to_thread(feed, share))
            await counter.wait()
            took = time.perf_counter() - started
        contender.batches.append(contender.items / counter.calls)
        return contender.items / took

    return _timed(contender, run, loop)


def set_all_aside() -> None:
    """Let no garbage collection look at existing objects: at the items, above all.

    Else a contender that happens to set one off pays for the benchmark's own hundreds
    of thousands. What contenders make themselves is collected as usual, at last by
    this.
    """
    gc.collect()
    gc.freeze()


def _timed(
    contender: Contender,
    run: Callable[[], Coroutine[Any, Any, float]],
    loop: LoopFactory,
) -> float:
    set_all_aside()
    with asyncio.Runner(loop_factory=loop) as runner:
        rate = runner.run(run())
    # What was dropped was not delivered.
    return rate * (1 - contender.dropped[-1]) if contender.dropped else rate
