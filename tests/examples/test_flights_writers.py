"""The demo's writers: so many at a time, each with a connection, in order by type."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from batchqueue_async import BatchQueueManager
from examples.flights.database import Database, DatabaseWriter
from examples.flights.metrics import METRICS
from examples.flights.sinks import writers_for
from examples.flights.stages import FirstFailure, open_database
from examples.flights.topn import TopDelay


class SlowDatabase:
    """A connection that takes a second for each write, and notes the delays in it."""

    def __init__(self, delays: list[int]) -> None:
        self._delays = delays
        self.writes = 0
        self.is_busy = self.is_closed = False

    async def write(self, windows: list[Any], top_delays: list[Any]) -> None:
        assert not self.is_busy, "two transactions on one connection"
        self.is_busy = True
        await asyncio.sleep(1)
        self.is_busy = False
        self.writes += 1
        self._delays += (row[3] for row in top_delays)

    async def close(self) -> None:
        self.is_closed = True


def top_delay(delay: int) -> TopDelay:
    return TopDelay("Departure", 0, 1, delay, 0, "UA", 1, "EWR", "IAH")


async def written(writers: int) -> tuple[list[SlowDatabase], list[int]]:
    """Write windows of all metrics, and delays that grow; in batches of their own."""
    opened: list[SlowDatabase] = []
    delays: list[int] = []

    async def connect() -> Database:
        opened.append(SlowDatabase(delays))
        return opened[-1]  # type: ignore[return-value]  # it has what is used here

    failure = FirstFailure()
    async with BatchQueueManager() as manager:
        writer = DatabaseWriter(connect)
        queue = await open_database(manager, writer, failure, writers=writers)
        for number in range(5):
            windows = [metric.of("UA", number) for metric in METRICS]
            await queue.produce_many([top_delay(number), *windows])
            await asyncio.sleep(0.3)
        await queue.flush()
    assert failure.error is None
    assert all(database.is_closed for database in opened)
    return opened, delays


@pytest.mark.parametrize("writers", [1, 4])
async def test_so_many_write_at_a_time(writers: int) -> None:
    opened, _ = await written(writers)
    assert len(opened) == writers
    assert all(database.writes for database in opened)


async def test_the_later_report_of_a_day_is_written_later() -> None:
    _, delays = await written(4)
    # Of a batch's reports the latest alone is written.
    assert delays == sorted(delays)
    assert delays[-1] == 4


def test_sqlite_has_one_and_postgresql_four() -> None:
    out = Path("out")
    assert writers_for(None, out) == 1
    assert writers_for("sqlite:///x.db", out) == 1
    assert writers_for("postgresql://localhost/x", out) == 4
