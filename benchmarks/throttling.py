"""Adaptive limits, where a server throttles: python -m benchmarks.throttling.

A real HTTP server in a process of its own takes calls at its pace, gets slower beyond
it, and then refuses what is too much, with 429 and `Retry-After`; then it takes all
again. Each fixed setting, and the one that is found, have such a server for themselves,
all at the same time: whatever else the machine does, it does to all of them. Calls take
so long that the machine is idle most of the time. There is always something to send.
Ratios are of the best fixed setting in the same state of the server. Takes four
minutes; a sketch: --quick. With --virtual the same pace is kept in virtual time, and
without HTTP.
"""

import argparse
import asyncio
import logging
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal, Protocol

import aiohttp

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueStats,
    DrainTaskPolicy,
    PartitionPolicy,
    Retry,
    RetryAfter,
    round_robin,
)
from batchqueue_async.testing import run_virtual
from benchmarks.call_service import running_service
from benchmarks.table import Column, Table, show
from benchmarks.throttling_service import PAUSE, Pace

Limits = dict[str, int]
Config = Callable[["Client"], BatchQueueConfig[float]]
Told = Callable[[BatchQueueStats], str]

BUFFER = 4_000
SIZES = (100, 200, 400, 800)
COUNTS = (2, 4, 8, 16)
MOST = 24
SIZE_PACE: Limits = {"slower": 2}
SIZE_LIMITS: Limits = {"items": 200}
COUNT_PACE: Limits = {"slower": 4}
COUNT_LIMITS: Limits = {"calls": 4}
STATES = ("as it is", "throttling", "as it was")
LEARNING_SIZE, LEARNING_COUNT = 24.0, 36.0
"""Seconds before it is measured, each time that the server has changed."""
WINDOWS, SECONDS = 5, 2.4
"""What is found goes on trying meanwhile: so that this is in it."""


class Client(Protocol):
    """How a handler calls a server, and how the benchmark has the server throttle."""

    async def consume(self, batch: list[Any]) -> None:
        """Send a batch, or hand on the server's request for a pause."""

    async def limit(self, limits: Limits) -> int:
        """Have the server refuse more than that; returns how often it did so far."""


class OverHttp:
    """Calls such a server over HTTP."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def consume(self, batch: list[Any]) -> None:
        """Send a batch, or hand on the server's request for a pause."""
        query = {"items": str(len(batch))}
        async with self._session.post(self._url, params=query) as answer:
            if answer.status == 429:  # noqa: PLR2004 - HTTP's
                raise RetryAfter(float(answer.headers["Retry-After"]))
            answer.raise_for_status()

    async def limit(self, limits: Limits) -> int:
        """Tell it over HTTP, too."""
        async with self._session.put(self._url, json=limits) as answer:
            refused: int = await answer.json()
            return refused


class WithoutHttp:
    """Calls the same pace directly."""

    def __init__(self) -> None:
        self._pace = Pace()

    async def consume(self, batch: list[Any]) -> None:
        """Make a call."""
        if not await self._pace.take(len(batch)):
            raise RetryAfter(PAUSE)

    async def limit(self, limits: Limits) -> int:
        """Set the limits."""
        return self._pace.limit(limits)


def of_size(size: int | Literal["auto"]) -> Config:
    """Return a queue's settings with one drain task."""
    return lambda client: BatchQueueConfig(
        consumer=client.consume,
        max_batch=size,
        buffer_size=BUFFER,
        retry=Retry(attempts=100_000, wait_initial=0.0),
        shutdown_timeout=0.0,
    )


def of_count(drain_tasks: DrainTaskPolicy) -> Config:
    """Return settings with several drain tasks, and batches of 50."""
    return lambda client: replace(
        of_size(50)(client),
        drain_tasks=drain_tasks,
        partitions=PartitionPolicy.fixed(MOST),
        selector=round_robin,
        buffer_size=200,
    )


async def keep_full(queue: BatchQueue[float]) -> None:
    """Always have something to send, also where nothing gets through for a while."""
    items = [0.5] * 200
    while await queue.produce_many(items):
        pass


async def rate(queue: BatchQueue[float], seconds: float) -> float:
    """Return the items per second that it handles."""
    clock, before = asyncio.get_running_loop().time, queue.stats().handled
    began = clock()
    await asyncio.sleep(seconds)
    return (queue.stats().handled - before) / (clock() - began)


class Contender:
    """One setting with a server for itself, and what it came to: state by state."""

    def __init__(self, client: Client, config: Config) -> None:
        self._client = client
        self._queue = BatchQueue("throttled", config(client))
        self._feeding: asyncio.Task[None] | None = None
        self.rates: list[float] = []
        self.refused: list[float] = []
        self.says: list[str] = []

    async def start(self) -> None:
        """Begin to send."""
        await self._queue.start()
        self._feeding = asyncio.create_task(keep_full(self._queue))

    async def measure(
        self, limits: Limits, learning: float, windows: int, told: Told | None
    ) -> None:
        """Add a state of its server: the median of some windows."""
        await self._client.limit(limits)
        await asyncio.sleep(learning)
        await self._client.limit(limits)
        rates = [await rate(self._queue, SECONDS) for _ in range(windows)]
        refused = await self._client.limit(limits)
        self.rates.append(statistics.median(rates))
        self.refused.append(refused / (windows * SECONDS))
        if told is not None:
            self.says.append(told(self._queue.stats()))

    async def end(self) -> None:
        """Leave what waits."""
        await self._queue.shutdown(0.0)
        if self._feeding is not None:
            await self._feeding


@dataclass(frozen=True)
class Comparison:
    """Fixed settings, and the one that is found by trying."""

    key: str
    fixed: dict[str, Config]
    name: str
    found: Config
    learning: float
    pace: Limits
    limits: Limits
    told: Told

    async def run(self, clients: Iterator[Client], *, quick: bool) -> Table:
        """Measure them side by side."""
        every = {
            each: Contender(next(clients), config)
            for each, config in (self.fixed | {self.name: self.found}).items()
        }
        learning, windows = self.learning, WINDOWS
        if quick:
            learning, windows = learning / 6, 1
        for each in every.values():
            await each.start()
        for limits in ({}, self.limits, {}):
            measuring = [
                each.measure(
                    self.pace | limits,
                    learning,
                    windows,
                    self.told if name == self.name else None,
                )
                for name, each in every.items()
            ]
            await asyncio.gather(*measuring)
        for each in every.values():
            await each.end()
        return _table(self.key, every, self.name, windows)


def _table(key: str, every: dict[str, Contender], name: str, windows: int) -> Table:
    columns = [Column(key)]
    for state in STATES:
        columns += [Column(state, "count"), Column("of best", "percent")]
    columns.append(Column("429 a second", "count"))
    title = f"items/s of an HTTP server; medians of {windows} times {SECONDS} s"
    table = Table(key, title, columns)
    best = [
        max(found.rates[at] for each, found in every.items() if each != name)
        for at in range(len(STATES))
    ]
    for each, found in every.items():
        values: list[float] = []
        for value, most in zip(found.rates, best, strict=True):
            values += [value, value / most]
        table.add(each, *values, found.refused[1])
    table.notes += [
        f"{state}: {says}" for state, says in zip(STATES, every[name].says, strict=True)
    ]
    return table


def size_told(stats: BatchQueueStats) -> str:
    """Return what the queue says of its limit."""
    limit = stats.handlers[0].limit
    assert limit is not None
    return (
        f"max_batch {limit.max_batch} by {limit.reason!r} (was {limit.before}); raised "
        f"{limit.faster} times, lowered by no_gain {limit.no_gain}, slower "
        f"{limit.slower}, throttled {limit.throttled}"
    )


def count_told(stats: BatchQueueStats) -> str:
    """Return what the queue says of its number of drain tasks."""
    limit = stats.drain_task_limit
    assert limit is not None
    return (
        f"{limit.drain_tasks} drain tasks by {limit.reason!r} (were {limit.before}); "
        f"raised {limit.faster} times, lowered by no_gain {limit.no_gain}, idle "
        f"{limit.idle}, throttled {limit.throttled}"
    )


SIZES_COMPARED = Comparison(
    "max_batch",
    {f"{size}": of_size(size) for size in SIZES},
    '"auto"',
    of_size("auto"),
    LEARNING_SIZE,
    SIZE_PACE,
    SIZE_LIMITS,
    size_told,
)
COUNTS_COMPARED = Comparison(
    "drain tasks",
    {f"{count}": of_count(DrainTaskPolicy.fixed(count)) for count in COUNTS},
    f"adaptive(1, {MOST})",
    of_count(DrainTaskPolicy.adaptive(1, MOST)),
    LEARNING_COUNT,
    COUNT_PACE,
    COUNT_LIMITS,
    count_told,
)


async def compare(clients: Iterator[Client], *, quick: bool) -> None:
    """Print both tables."""
    show(await SIZES_COMPARED.run(clients, quick=quick))
    show(await COUNTS_COMPARED.run(clients, quick=quick))


async def run(*, quick: bool) -> None:
    """Do so with a server."""
    connections = aiohttp.TCPConnector(limit=0)
    with running_service("benchmarks.throttling_service") as port:
        url = f"http://127.0.0.1:{port}/"
        async with aiohttp.ClientSession(connector=connections) as session:
            clients = (OverHttp(session, f"{url}{number}") for number in count())
            await compare(clients, quick=quick)


def main(arguments: Sequence[str] = ()) -> None:
    """Compare what is fixed with what is found."""
    parser = argparse.ArgumentParser(prog="throttling", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="learns a sixth of the time"
    )
    parser.add_argument("--virtual", action="store_true", help="in virtual time")
    options = parser.parse_args(arguments)
    # Retries, and what the end of a turn cuts off, would hide the tables.
    logging.getLogger("batchqueue_async").setLevel(logging.CRITICAL)
    if options.virtual:
        run_virtual(compare((WithoutHttp() for _ in count()), quick=options.quick))
    else:
        asyncio.run(run(quick=options.quick))


if __name__ == "__main__":
    main(sys.argv[1:])
