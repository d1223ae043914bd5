"""What is found by trying, where a server throttles: python -m benchmarks.throttling.

A real HTTP server in a process of its own takes calls at its pace, gets slower beyond
it, and then refuses what is too much, with 429 and `Retry-After`. Each fixed setting,
and the one that is found, get the same: the server as it is, then one that throttles;
in turns, with always something to send. Ratios are of the best fixed setting in the
same state of the server. Takes four minutes; a sketch: --quick. With --virtual the same
pace is kept in virtual time, without HTTP: exact, whatever else the machine does.
"""

import argparse
import asyncio
import logging
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from benchmarks.table import Column, Table, show
from benchmarks.throttling_service import PAUSE, Pace, running_service

Limits = dict[str, int]
Config = Callable[["Client"], BatchQueueConfig[float]]

BUFFER = 4_000
SIZES = (100, 200, 400, 800)
COUNTS = (2, 4, 8, 16)
MOST = 24
SIZE_LIMITS: Limits = {"items": 200}
CALL_LIMITS: Limits = {"calls": 4}
SECONDS = 1.2
LEARNING_SIZE, LEARNING_COUNT = 18.0, 20.0
"""Seconds for what is to be found, each time that the server has changed."""
SECONDS_FOUND = 4.0
"""What is found goes on trying: so that this is in it."""
TURNS = 2


class Client(Protocol):
    """What a handler does with a server, and who has it throttle."""

    async def consume(self, batch: list[Any]) -> None:
        """Send a batch, or hand on the server's request for a pause."""

    async def limit(self, limits: Limits) -> int:
        """Have the server refuse more than that; returns how often it did so far."""


class OverHttp:
    """What a handler does with such a server."""

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
    """The same pace, called as it is."""

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
    """Return a queue with one drain task."""
    return lambda client: BatchQueueConfig(
        consumer=client.consume,
        max_batch=size,
        buffer_size=BUFFER,
        retry=Retry(attempts=100_000, wait_initial=0.0),
        shutdown_timeout=0.0,
    )


def of_count(drain_tasks: DrainTaskPolicy) -> Config:
    """Return a queue with several, and batches of 50."""
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


class Found:
    """What came of one setting: per state of the server, turn by turn."""

    STATES = ("as it is", "throttling")

    def __init__(self) -> None:
        self.rates: dict[str, list[float]] = {state: [] for state in self.STATES}
        self.refused: list[float] = []
        self.says: list[str] = []

    async def measure(
        self,
        client: Client,
        config: Config,
        limits: Limits,
        learning: float,
        told: Callable[[BatchQueueStats], str],
    ) -> None:
        """Add a turn."""
        says = []
        async with BatchQueue("throttled", config(client)) as queue:
            feeding = asyncio.create_task(keep_full(queue))
            for state, now in zip(self.STATES, ({}, limits), strict=True):
                await client.limit(now)
                if learning:
                    await asyncio.sleep(learning)
                    await client.limit(now)
                seconds = SECONDS_FOUND if learning else SECONDS
                self.rates[state].append(await rate(queue, seconds))
                if now:
                    self.refused.append(await client.limit(now) / seconds)
                says.append(told(queue.stats()))
            await queue.shutdown(0.0)
            await feeding
        self.says = says


@dataclass(frozen=True)
class Comparison:
    """Fixed settings, and the one that is found by trying."""

    key: str
    fixed: dict[str, Config]
    name: str
    found: Config
    learning: float
    limits: Limits
    told: Callable[[BatchQueueStats], str]

    async def run(self, client: Client, turns: int) -> Table:
        """Measure them in turns."""
        every = {each: Found() for each in (*self.fixed, self.name)}
        for _ in range(turns):
            for each, way in self.fixed.items():
                await every[each].measure(client, way, self.limits, 0.0, lambda _: "")
            trying = every[self.name]
            await trying.measure(
                client, self.found, self.limits, self.learning, self.told
            )
        return _table(self.key, every, self.name, turns)


def _table(key: str, every: dict[str, Found], name: str, turns: int) -> Table:
    states = Found.STATES
    columns = [Column(key)]
    for state in states:
        columns += [Column(state, "count"), Column("of best", "percent")]
    columns.append(Column("429 a second", "count"))
    table = Table(key, f"items/s of an HTTP server; medians of {turns} turns", columns)
    medians = {
        each: [statistics.median(found.rates[state]) for state in states]
        for each, found in every.items()
    }
    best = [
        max(rates[at] for each, rates in medians.items() if each != name)
        for at in range(len(states))
    ]
    for each, rates in medians.items():
        values: list[float] = []
        for value, most in zip(rates, best, strict=True):
            values += [value, value / most]
        table.add(each, *values, statistics.median(every[each].refused))
    table.notes += [
        f"{state}: {says}" for state, says in zip(states, every[name].says, strict=True)
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
    SIZE_LIMITS,
    size_told,
)
COUNTS_COMPARED = Comparison(
    "drain tasks",
    {f"{count}": of_count(DrainTaskPolicy.fixed(count)) for count in COUNTS},
    f"adaptive(1, {MOST})",
    of_count(DrainTaskPolicy.adaptive(1, MOST)),
    LEARNING_COUNT,
    CALL_LIMITS,
    count_told,
)


async def compare(client: Client, *, quick: bool) -> None:
    """Print both tables."""
    turns = 1 if quick else TURNS
    show(await SIZES_COMPARED.run(client, turns))
    show(await COUNTS_COMPARED.run(client, turns))


async def run(*, quick: bool) -> None:
    """Do so with a server."""
    with running_service() as url:
        async with aiohttp.ClientSession() as session:
            await compare(OverHttp(session, url), quick=quick)


def main(arguments: Sequence[str] = ()) -> None:
    """Compare what is fixed with what is found."""
    parser = argparse.ArgumentParser(prog="throttling", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one turn")
    parser.add_argument("--virtual", action="store_true", help="in virtual time")
    options = parser.parse_args(arguments)
    # Retries, and what the end of a turn cuts off, would hide the tables.
    logging.getLogger("batchqueue_async").setLevel(logging.CRITICAL)
    if options.virtual:
        run_virtual(compare(WithoutHttp(), quick=options.quick))
    else:
        asyncio.run(run(quick=options.quick))


if __name__ == "__main__":
    main(sys.argv[1:])
