"""TopN: the longest delays of each day, in bounded memory."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappush, heappushpop
from typing import Generic, Protocol, TypeAlias, TypeVar

from batchqueue_async import BatchQueueError

from .events import Arrival, Departure

E = TypeVar("E", Departure, Arrival)

# Compared field by field: a total order, so that ties end the same in every run.
Rank: TypeAlias = tuple[int, int, str, int, str, str]


@dataclass(frozen=True, slots=True)
class TopDelay:
    """One of the longest delays of a day; `rank` 1 is the longest."""

    kind: str
    day: int
    rank: int
    delay: int
    hour: int
    carrier: str
    flight: int
    origin: str
    dest: str


class Downstream(Protocol):
    """What takes the rows: the queue that writes them, or Spark."""

    @property
    def name(self) -> str:
        """For messages."""

    async def produce_many(self, items: list[TopDelay], /) -> int:
        """Return how many were accepted."""


class LongestDelays(Generic[E]):
    """The handler of one type of event with a delay.

    Args:
        kind: What the rows are called in the database.
        downstream: Where they go.
        size: How many are kept for each day.
        every: Seconds after which the days that changed are reported.
    """

    def __init__(
        self, kind: str, downstream: Downstream, *, size: int, every: float
    ) -> None:
        self._kind = kind
        self._downstream = downstream
        self._size = size
        self._every = every
        self._days: defaultdict[int, list[Rank]] = defaultdict(list)
        self._changed: set[int] = set()
        self._loop = asyncio.get_running_loop()
        self._reported = self._loop.time()

    async def consume(self, batch: list[E]) -> None:
        for event in batch:
            if event.delay is not None:
                self._rank(event, event.delay)
        if self._is_due():
            await self._report()

    async def on_idle(self) -> None:
        if self._is_due():
            await self._report()

    async def on_flush(self) -> None:
        await self._report()

    async def on_close(self) -> None:
        await self._report()

    def forget(self) -> None:
        """Begin anew: what was reported is no longer compared with."""
        self._days.clear()
        self._changed.clear()

    def _rank(self, event: E, delay: int) -> None:
        longest = self._days[event.day]
        rank = (
            delay,
            event.hour,
            event.carrier,
            event.flight,
            event.origin,
            event.dest,
        )
        if len(longest) < self._size:
            heappush(longest, rank)
            self._changed.add(event.day)
        elif heappushpop(longest, rank) != rank:
            self._changed.add(event.day)

    def _is_due(self) -> bool:
        return self._loop.time() - self._reported >= self._every

    async def _report(self) -> None:
        rows = list(self._changed_rows())
        self._changed.clear()
        self._reported = self._loop.time()
        if await self._downstream.produce_many(rows) < len(rows):
            msg = f"{self._downstream.name} closed before the stage that feeds it"
            raise BatchQueueError(msg)

    def _changed_rows(self) -> Iterator[TopDelay]:
        for day in self._changed:
            for rank, row in enumerate(sorted(self._days[day], reverse=True), 1):
                yield TopDelay(self._kind, day, rank, *row)


class DelaysOfEpoch(LongestDelays[E]):
    """Ranks each epoch's delays alone; the sink combines them with earlier epochs'.

    An epoch that fails comes again. If its flights were still known here they would be
    ranked twice.
    """

    async def on_flush(self) -> None:
        try:
            await super().on_flush()
        finally:
            self.forget()
