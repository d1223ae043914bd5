"""TopN: the longest delays of each day, in bounded memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappush, heappushpop
from time import monotonic
from typing import TypeAlias

from batchqueue_async import BatchQueue, BatchQueueError

from .events import Arrival, Departure

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


class LongestDelays:
    """The handler of one type of event with a delay.

    Args:
        kind: What the rows are called in the database.
        downstream: The queue that writes them.
        size: How many are kept for each day.
        every: Seconds after which the days that changed are reported.
    """

    def __init__(
        self, kind: str, downstream: BatchQueue[TopDelay], *, size: int, every: float
    ) -> None:
        self._kind = kind
        self._downstream = downstream
        self._size = size
        self._every = every
        self._days: defaultdict[int, list[Rank]] = defaultdict(list)
        self._changed: set[int] = set()
        self._reported = monotonic()

    async def consume(self, batch: list[Departure | Arrival]) -> None:
        """Rank a batch; report if it is time."""
        for event in batch:
            if event.delay is not None:
                self._rank(event, event.delay)
        if self._is_due():
            await self._report()

    async def on_idle(self) -> None:
        """Report what is due although nothing new came."""
        if self._is_due():
            await self._report()

    async def on_flush(self) -> None:
        """Report all that is new."""
        await self._report()

    async def on_close(self) -> None:
        """Report all that is new; the database closes later."""
        await self._report()

    def _rank(self, event: Departure | Arrival, delay: int) -> None:
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
        return monotonic() - self._reported >= self._every

    async def _report(self) -> None:
        rows = list(self._changed_rows())
        self._changed.clear()
        self._reported = monotonic()
        if await self._downstream.produce_many(rows) < len(rows):
            msg = f"{self._downstream.name} closed before the stage that feeds it"
            raise BatchQueueError(msg)

    def _changed_rows(self) -> Iterator[TopDelay]:
        for day in self._changed:
            for rank, row in enumerate(sorted(self._days[day], reverse=True), 1):
                yield TopDelay(self._kind, day, rank, *row)
