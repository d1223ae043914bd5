"""The main demo's epochs: combined with what is there, each once, without Spark."""

from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from batchqueue_async.sinks import Epoch, EpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from batchqueue_async.sinks.sqlite_staged import SqliteStagedSink
from batchqueue_async.sinks.staged import Attempt
from examples.flights.database import Connect, Row, connected
from examples.flights.epochs import FlightEpochs, Result
from examples.flights.events import Cancellation
from examples.flights.metrics import CarrierDeparture
from examples.flights.schema import CANCELLATION_COLUMNS
from examples.flights.sinks import sink_for, staged_tables
from examples.flights.topn import TopDelay

pytestmark = pytest.mark.real_time

WHERE = ("UA", 1, "EWR", "ORD")


@pytest.fixture(params=["sqlite", "postgres"])
async def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    url = None
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_dsn")
    connect = sink_for(url, tmp_path)
    async with connected(connect) as database:
        await database.reset()
    return connect


async def rows(connect: Connect, query: str) -> list[Row]:
    async with connected(connect) as database:
        return [row async for row in database.rows(query)]


def delays(*minutes: int) -> list[Result]:
    return [
        TopDelay("Departure", 7, rank, delay, 100, *WHERE)
        for rank, delay in enumerate(minutes, 1)
    ]


async def deliver(connect: Connect, batch: int, results: list[Result]) -> None:
    sink = FlightEpochs(connect)
    assert isinstance(sink, EpochSink)
    epoch = Epoch("query", batch)
    try:
        await sink.begin(epoch)
        await sink.write(epoch, results)
        await sink.commit(epoch)
        assert await sink.is_committed(epoch)
    finally:
        await sink.close()


async def test_epochs_add_up_and_come_once(connect: Connect) -> None:
    cancelled = Cancellation(*WHERE, 7, 100)
    for batch in (0, 1, 1, 0):
        windows = [CarrierDeparture("UA", 100, 2, 2, 30, 10, 20) for _ in range(2)]
        await deliver(connect, batch, [*windows, cancelled])

    query = "SELECT count, total, smallest, largest FROM metrics"
    assert await rows(connect, query) == [(8, 120, 10, 20)]
    assert len(await rows(connect, "SELECT * FROM cancellations")) == 2
    assert len(await rows(connect, "SELECT * FROM epochs")) == 2


async def test_a_day_in_two_epochs_is_ranked_as_one(connect: Connect) -> None:
    await deliver(connect, 0, delays(90, 50, 10))
    await deliver(connect, 1, delays(70, *range(49, 40, -1)))

    query = "SELECT rank, delay FROM top_delays ORDER BY rank"
    ranked = [90, 70, 50, *range(49, 42, -1)]
    assert await rows(connect, query) == list(enumerate(ranked, 1))


async def test_what_is_aborted_or_dies_leaves_nothing(connect: Connect) -> None:
    sink, epoch = FlightEpochs(connect), Epoch("query", 0)
    await sink.begin(epoch)
    await sink.write(epoch, delays(90))
    await sink.abort(epoch)
    await sink.abort(epoch)
    assert not await sink.is_committed(epoch)
    await sink.begin(epoch)
    await sink.write(epoch, delays(80))
    await sink.close()

    assert await rows(connect, "SELECT * FROM top_delays") == []
    assert await rows(connect, "SELECT * FROM epochs") == []


async def test_what_a_dead_run_has_staged_never_comes_into_the_next_one(
    request: pytest.FixtureRequest, connect: Connect, tmp_path: Path
) -> None:
    is_sqlite = request.node.callspec.params["connect"] == "sqlite"
    url = None if is_sqlite else request.getfixturevalue("postgres_dsn")
    options = staged_tables(url, tmp_path).options_of("cancellations")
    del options["sink"]
    kind = SqliteStagedSink if is_sqlite else PostgresStagedSink
    sink = kind.from_options(options)
    attempt = Attempt(Epoch("dead", 0), "run", 0, uuid4().hex)
    cancelled = dict(zip(CANCELLATION_COLUMNS, (*WHERE, 7, 100), strict=True))
    await sink.stage(attempt, [pa.RecordBatch.from_pylist([cancelled])])
    token = await sink.seal(attempt)

    async with connected(connect) as database:
        await database.reset()
    with pytest.raises(Exception, match=r"staged|no such table|missing"):
        await sink.publish(attempt.epoch, [token])
    await sink.close()

    assert await rows(connect, "SELECT * FROM cancellations") == []
