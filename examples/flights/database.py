"""Where the results go: what every sink can do, and the handler that writes to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from batchqueue_async.sinks import Epoch

from .metrics import Window
from .topn import TopDelay

Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Partials:
    """What one epoch adds, merged within itself.

    Attributes:
        windows: Rows of `metrics`.
        top_delays: Rows of `top_delays`, ranked within the epoch.
        cancellations: Rows of `cancellations`.
    """

    windows: list[Row]
    top_delays: list[Row]
    cancellations: list[Row]


@dataclass(frozen=True, slots=True)
class Run:
    """What a run produced; its state is `running`, `complete`, `interrupted`, `failed`.

    The tables hold all of the events that are counted here unless the state is
    `running` (now, or when the process was killed) or `failed`.
    """

    started: str
    finished: str | None
    state: str
    departures: int = 0
    arrivals: int = 0
    cancellations: int = 0
    observations: int = 0

    @property
    def events(self) -> int:
        """How many events it produced."""
        return self.departures + self.arrivals + self.cancellations + self.observations


class Database(Protocol):
    """An open connection."""

    async def reset(self) -> None:
        """Begin afresh: replace the tables of an earlier run by empty ones."""

    async def write(self, windows: list[Row], top_delays: list[Row]) -> None:
        """Add windows to those that exist, and replace top delays: all or nothing."""

    async def write_epoch(self, epoch: Epoch, partials: Partials) -> None:
        """Combine an epoch with what exists and add its fence: all or nothing.

        An epoch whose fence is there changes nothing.
        """

    async def has_epoch(self, epoch: Epoch) -> bool:
        """Return whether the epoch's fence is there."""

    async def record(self, run: Run) -> None:
        """Say what is in the tables."""

    def rows(self, query: str) -> AsyncIterator[Row]:
        """Return the rows of a query without holding all of them."""

    async def close(self) -> None:
        """Close the connection."""


Connect: TypeAlias = Callable[[], Awaitable[Database]]


@asynccontextmanager
async def connected(connect: Connect) -> AsyncIterator[Database]:
    """Open a connection and close it again."""
    database = await connect()
    try:
        yield database
    finally:
        await database.close()


class DatabaseWriter:
    """The consumer of the SQL queue; its connections live on the queue's loop.

    There are as many as write at the same time: one for each of the drain tasks.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._idle: list[Database] = []

    async def consume(self, batch: list[Window | TopDelay]) -> None:
        database = self._idle.pop() if self._idle else await self._connect()
        try:
            await database.write(metric_rows(batch), top_rows(batch))
        finally:
            self._idle.append(database)

    async def on_close(self) -> None:
        """Close the connections."""
        for database in self._idle:
            await database.close()


def metric_rows(batch: Iterable[Window | TopDelay]) -> list[Row]:
    """Return the rows of the windows, one for each key."""
    # One statement may touch a row only once (PostgreSQL insists), and a batch can
    # hold the same window twice: from two rounds of L2.
    windows: dict[Row, Window] = {}
    for item in batch:
        if isinstance(item, Window):
            known = windows.setdefault((type(item).__name__, item.key, item.hour), item)
            if known is not item:
                known.combine(item)
    return [
        (*key, each.count, each.measured, each.total, each.smallest, each.largest)
        for key, each in windows.items()
    ]


def top_rows(batch: Iterable[Window | TopDelay]) -> list[Row]:
    """Return the rows of the top delays, the latest for each rank."""
    latest = {
        (item.kind, item.day, item.rank): (
            item.delay,
            item.hour,
            item.carrier,
            item.flight,
            item.origin,
            item.dest,
        )
        for item in batch
        if isinstance(item, TopDelay)
    }
    return [(*key, *row) for key, row in latest.items()]
