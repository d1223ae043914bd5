"""What is special about the PostgreSQL sink."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import asyncpg
import pyarrow as pa
import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from tests.sinks.places import attempt
from tests.sinks.stores import COLUMNS, PostgresStore, connected

pytestmark = pytest.mark.real_time

FIRST = Epoch("query", 0)


async def delivered(
    sink: PostgresEpochSink[Any], epoch: Epoch, items: list[Any]
) -> None:
    try:
        await sink.begin(epoch)
        await sink.write(epoch, items)
        await sink.commit(epoch)
    finally:
        await sink.close()


async def test_types_arrive_as_they_are(postgres_store: PostgresStore) -> None:
    async with connected(postgres_store.dsn) as connection:
        await connection.execute(
            "CREATE TABLE sinks.typed (at TIMESTAMPTZ, tags INT[])"
        )
    at = datetime(2013, 1, 1, 5, tzinfo=UTC)
    batch = pa.RecordBatch.from_pydict(
        {"at": pa.array([at], pa.timestamp("us", "UTC")), "tags": [[1, 2]]}
    )
    sink = PostgresEpochSink[Any](postgres_store.dsn, "sinks.typed", ("at", "tags"))

    await delivered(sink, FIRST, [batch, (at, [3])])

    rows = await postgres_store.ask("SELECT at, tags FROM sinks.typed ORDER BY tags")
    assert rows == [(at, [1, 2]), (at, [3])]


@pytest.mark.parametrize("column", ["SMALLINT", "INTEGER", "BIGINT"])
async def test_a_fraction_is_none_of_a_whole_number_s(
    postgres_store: PostgresStore, column: str
) -> None:
    """It was cut off in rows, and in record batches that became rows."""
    table = f"sinks.whole_{column}"
    async with connected(postgres_store.dsn) as connection:
        await connection.execute(f"CREATE TABLE {table} (id {column})")
    for item in ((1.5,), (Decimal("1.5"),), pa.record_batch({"id": [2.0, 1.5]})):
        sink = PostgresEpochSink[Any](postgres_store.dsn, table.lower(), ("id",))
        with pytest.raises(ValueError, match="column id must be a whole number, got a"):
            await delivered(sink, FIRST, [item])
    items = [(1.0,), (Decimal("2.00"),), (None,), (3,), pa.record_batch({"id": [4.0]})]
    sink = PostgresEpochSink[Any](postgres_store.dsn, table.lower(), ("id",))
    await delivered(sink, FIRST, items)

    rows = await postgres_store.ask(f"SELECT id FROM {table} ORDER BY id")
    assert rows == [(1,), (2,), (3,), (4,), (None,)]


async def test_the_ends_of_the_calendar_are_no_infinities(
    postgres_store: PostgresStore,
) -> None:
    """They are to asyncpg, and rows differed from record batches."""
    columns = ("day", "at", "plain")
    async with connected(postgres_store.dsn) as connection:
        await connection.execute(
            "CREATE TABLE sinks.ends (day DATE, at TIMESTAMPTZ, plain TIMESTAMP)"
        )
    rows = [
        (day, at.replace(tzinfo=UTC), at)
        for day, at in ((date.min, datetime.min), (date.max, datetime.max))
    ]
    batch = pa.RecordBatch.from_pydict(
        dict(zip(columns, zip(*rows, strict=True), strict=True)),
        pa.schema(
            [
                ("day", pa.date32()),
                ("at", pa.timestamp("us", "UTC")),
                ("plain", pa.timestamp("us")),
            ]
        ),
    )
    # A day for a moment is its midnight, as asyncpg has it.
    days = (date(2026, 1, 2), datetime(2026, 1, 2), date(2026, 1, 2))
    sink = PostgresEpochSink[Any](postgres_store.dsn, "sinks.ends", columns)

    await delivered(sink, FIRST, [*rows, batch, days])

    seen = await postgres_store.ask(
        "SELECT day::text, (at AT TIME ZONE 'UTC')::text, plain::text FROM sinks.ends"
        " WHERE day NOT BETWEEN '2026-01-01' AND '2026-12-31' ORDER BY 1"
    )
    first = ("0001-01-01", *["0001-01-01 00:00:00"] * 2)
    last = ("9999-12-31", *["9999-12-31 23:59:59.999999"] * 2)
    assert seen == [first, first, last, last]
    (seen_days,) = await postgres_store.ask(
        "SELECT at, plain FROM sinks.ends WHERE day = '2026-01-02'"
    )
    midnight = datetime(2026, 1, 2)
    assert seen_days == (midnight.astimezone(UTC), midnight)


async def test_rows_may_replace_others(postgres_store: PostgresStore) -> None:
    async with connected(postgres_store.dsn) as connection:
        await connection.execute("CREATE UNIQUE INDEX ON sinks.items (id)")

    def sink() -> PostgresEpochSink[Any]:
        return PostgresEpochSink(
            postgres_store.dsn,
            "sinks.items",
            COLUMNS,
            on_conflict="ON CONFLICT (id) DO UPDATE SET name = excluded.name",
        )

    await delivered(sink(), FIRST, [(1, "old"), (2, "kept")])
    await delivered(sink(), Epoch("query", 1), [(1, "new")])

    assert await postgres_store.rows() == [(1, "new"), (2, "kept")]


async def test_rows_that_a_crash_of_the_server_took_stop_the_commit(
    postgres_store: PostgresStore,
) -> None:
    sink = PostgresEpochSink[Any](postgres_store.dsn, "sinks.items", COLUMNS)
    await sink.begin(FIRST)
    await sink.write(FIRST, [(1, "one"), (2, "two")])
    (staging,) = await postgres_store.remains()
    async with connected(postgres_store.dsn) as connection:
        await connection.execute(f"TRUNCATE sinks.{staging}")

    with pytest.raises(BatchQueueError, match="2 were staged, 0 are left"):
        await sink.commit(FIRST)
    assert not await sink.is_committed(FIRST)
    await sink.close()


async def test_an_attempt_that_was_superseded_is_told(
    postgres_store: PostgresStore,
) -> None:
    sinks = [
        PostgresEpochSink[Any](postgres_store.dsn, "sinks.items", COLUMNS)
        for _ in range(2)
    ]
    for number, sink in enumerate(sinks):
        await sink.begin(FIRST)
        await sink.write(FIRST, [(number, "row")])

    with pytest.raises(BatchQueueError, match="another process has begun the same ep"):
        await sinks[0].write(FIRST, [(0, "late row")])
    with pytest.raises((BatchQueueError, asyncpg.PostgresError)):
        await sinks[0].commit(FIRST)
    await sinks[1].commit(FIRST)
    assert await postgres_store.rows() == [(1, "row")]
    for sink in sinks:
        await sink.close()


async def test_it_goes_on_when_its_connections_were_cut(
    postgres_store: PostgresStore,
) -> None:
    sink = PostgresEpochSink[Any](postgres_store.dsn, "sinks.items", COLUMNS)
    await sink.begin(FIRST)
    await sink.write(FIRST, [(1, "one")])
    async with connected(postgres_store.dsn) as connection:
        await connection.execute(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"""
        )
    await asyncio.sleep(0.2)

    await sink.commit(FIRST)
    assert await postgres_store.rows() == [(1, "one")]
    await sink.close()


async def test_two_that_make_the_table_of_fences_do_not_collide(
    postgres_store: PostgresStore,
) -> None:
    sinks = [
        PostgresEpochSink[Any](postgres_store.dsn, "sinks.items", COLUMNS)
        for _ in range(8)
    ]
    found = await asyncio.gather(*(sink.is_committed(FIRST) for sink in sinks))
    assert not any(found)
    for sink in sinks:
        await sink.close()


async def test_a_missing_table_is_found_at_the_beginning(
    postgres_store: PostgresStore,
) -> None:
    sink = PostgresEpochSink[Any](postgres_store.dsn, "sinks.missing", COLUMNS)
    with pytest.raises(asyncpg.UndefinedTableError, match="missing"):
        await sink.begin(FIRST)
    await sink.close()


@pytest.mark.parametrize("is_batch", [False, True])
async def test_a_type_that_asyncpg_does_not_know_is_told_by_its_column(
    postgres_store: PostgresStore, *, is_batch: bool
) -> None:
    """As of extensions, such as citext: "the connection can't be used any more"."""
    async with connected(postgres_store.dsn) as connection:
        await connection.execute("CREATE TABLE sinks.paid (id INT, euros MONEY)")
    sink = PostgresEpochSink[Any](postgres_store.dsn, "sinks.paid", ("id", "euros"))
    rows = pa.record_batch({"id": [1], "euros": ["1.50"]})
    told = "column euros must be of a type that asyncpg encodes, got money"
    with pytest.raises(TypeError, match=told):
        await delivered(sink, FIRST, [rows if is_batch else (1, "1.50")])

    staged, mine = PostgresStagedSink(postgres_store.dsn, "sinks.paid"), attempt()
    await staged.stage(mine, [rows])
    assert await staged.publish(mine.epoch, [await staged.seal(mine)])
    await staged.close()
    found = await postgres_store.ask("SELECT id, euros::NUMERIC FROM sinks.paid")
    assert found == [(1, Decimal("1.50"))]


async def test_the_loop_runs_while_much_is_written(
    postgres_store: PostgresStore,
) -> None:
    """Rows are encoded on the loop; threads that wait for it give it half a second."""
    ticks, encoded = 0, Counter[int]()
    loop_thread = threading.current_thread()

    class Noting(tuple[Any, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[Any]:
            if threading.current_thread() is loop_thread:
                encoded[ticks] += 1
            return super().__iter__()

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    ticking = asyncio.ensure_future(tick())
    rows = [Noting((number, "row")) for number in range(50_000)]
    sink = PostgresEpochSink[Any](postgres_store.dsn, "sinks.items", COLUMNS)
    await delivered(sink, FIRST, rows)
    ticking.cancel()

    assert encoded.total() == len(rows)
    assert max(encoded.values()) <= 10_000
    assert len(await postgres_store.rows()) == len(rows)


def test_wrong_arguments_are_refused() -> None:
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (TypeError, "url must be a str, got None", {"url": None}),
        (ValueError, "table must be a name, got ''", {"table": ""}),
        (TypeError, "columns must be a list or tuple", {"columns": "id"}),
        (ValueError, "connections must be >= 1, got 0", {"connections": 0}),
    ]
    for error, says, arguments in wrong:
        with pytest.raises(error, match=says):
            PostgresEpochSink(
                **{"url": "d", "table": "t", "columns": ("a",), **arguments}
            )
