"""Columns are matched by their names, wherever names are known."""

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.names import matched
from batchqueue_async.sinks.postgres import PostgresEpochSink
from tests.sinks.databases import Database, Postgres, Sqlite
from tests.sinks.places import attempt
from tests.sinks.test_made_again import staged_sink

pytestmark = pytest.mark.real_time

FIRST = Epoch("query", 0)


class Swapped(NamedTuple):
    name: str
    id: int


class Other(NamedTuple):
    number: int
    text: str


class Crossed(NamedTuple):
    text: str
    id: int


async def write(sink: Any, *items: object) -> None:  # noqa: ANN401  # any epoch sink
    try:
        await sink.begin(FIRST)
        await sink.write(FIRST, list(items))
        await sink.commit(FIRST)
    finally:
        await sink.close()


async def test_a_named_tuple_is_matched_by_name(database: Database) -> None:
    # Of other names it is a row like a tuple.
    await write(database.sink("a"), Swapped("n1", 1), Other(2, "n2"), (3, "n3"))
    with pytest.raises(ValueError, match=r"a row of the columns .*'text', 'id'"):
        await write(database.sink("b"), Crossed("n1", 1))

    assert sorted(await database.run("SELECT id, name FROM a")) == [
        (1, "n1"),
        (2, "n2"),
        (3, "n3"),
    ]


async def test_whole_microseconds_are_timestamps_in_postgresql(
    postgres: Postgres,
) -> None:
    """What SQLite keeps as it is: the same code works with both."""
    await postgres.run("CREATE TABLE t (id BIGINT, at TIMESTAMPTZ, local TIMESTAMP)")
    columns = ("id", "at", "local")
    long_ago = -86_400_000_000 * 365 * 1000
    now = datetime(2026, 11, 22, 1, 2, 3, 4, tzinfo=UTC)
    rows = [
        (1, 1, 1),
        (2, long_ago, long_ago),
        (3, None, None),
        (4, now, now.replace(tzinfo=None)),
    ]
    await write(PostgresEpochSink(postgres.dsn, "t", columns), *rows)
    with pytest.raises(ValueError, match="column local must be a timestamp of the ye"):
        await write(PostgresEpochSink(postgres.dsn, "t", columns), (5, 1, 10**18))

    seen = await postgres.run(
        "SELECT extract(epoch FROM at) * 1000000, local = at AT TIME ZONE 'UTC'"
        " FROM t ORDER BY id"
    )
    assert seen[:3] == [(1, True), (long_ago, True), (None, None)]
    assert (await postgres.run("SELECT at FROM t WHERE id = 4")) == [(now,)]


async def stage(database: Database, rows: pa.RecordBatch, *, exact: bool) -> None:
    sink = staged_sink(database, "a")
    mine = replace(attempt(epoch=FIRST), is_case_sensitive=exact)
    try:
        await sink.stage(mine, [rows])
        await sink.publish(FIRST, [await sink.seal(mine)])
    finally:
        await sink.close()


async def test_the_case_of_a_column_counts_if_it_has_to(database: Database) -> None:
    rows = pa.record_batch({"NAME": ["n1"], "Id": [1]})
    if not isinstance(database, Sqlite):  # which knows no difference
        with pytest.raises(ValueError, match=r"'NAME' must be one of table a: .*case"):
            await stage(database, rows, exact=True)
    await stage(database, rows, exact=False)

    assert await database.run("SELECT id, name FROM a") == [(1, "n1")]


async def test_a_column_that_the_table_has_not_is_named(database: Database) -> None:
    rows = pa.record_batch({"id": [1], "nope": [1]})
    with pytest.raises(ValueError, match="column 'nope' must be one of table a: 'id',"):
        await stage(database, rows, exact=False)
    rows = pa.record_batch({"id": [1], "ID": [1]})
    with pytest.raises(ValueError, match="different names in table a, got 'ID' and"):
        await stage(database, rows, exact=False)


def test_names_that_are_alike_are_told_apart() -> None:
    assert matched(["id", "B"], ["ID", "id", "b"], "table t") == ["id", "b"]
    with pytest.raises(ValueError, match="several are alike"):
        matched(["Id"], ["ID", "id"], "table t")
    with pytest.raises(ValueError, match=r"and 1 more"):
        matched(["x"], [f"c{number}" for number in range(21)], "table t")


async def test_columns_in_another_order_stay_what_they_are(
    database: Database,
) -> None:
    sink, mine = staged_sink(database, "a"), attempt(epoch=FIRST)
    await sink.stage(mine, [pa.record_batch({"id": [1], "name": ["n1"]})])
    await sink.stage(mine, [pa.record_batch({"name": ["n2"], "id": [2]})])
    assert await sink.publish(FIRST, [await sink.seal(mine)])
    await sink.close()

    rows = await database.run("SELECT id, name FROM a ORDER BY id")
    assert rows == [(1, "n1"), (2, "n2")]


async def test_years_before_christ_reach_postgresql(postgres: Postgres) -> None:
    """The server's words for the numbers are the proof."""
    days = [-719_163, -735_519, -719_162, 0, None, -719_163 - 146_097 * 2]
    times = [
        None if day is None else day * 86_400_000_000 + 3_723_000_004 for day in days
    ]
    await postgres.run(
        "CREATE TABLE t (id NUMERIC, d DATE, at TIMESTAMPTZ, local TIMESTAMP)"
    )
    sink, mine = staged_sink(postgres, "t"), attempt(epoch=FIRST)
    rows = pa.record_batch(
        {
            "id": pa.array(
                [Decimal(n) for n in range(len(days))]
            ),  # has no binary form
            "d": pa.array(days, pa.date32()),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "local": pa.array(times, pa.timestamp("us")),
        }
    )
    await sink.stage(mine, [rows])
    assert await sink.publish(FIRST, [await sink.seal(mine)])
    await sink.close()

    seen = await postgres.run(
        "SELECT d - DATE '1970-01-01', extract(epoch FROM at) * 1000000,"
        " extract(epoch FROM local) * 1000000 FROM t ORDER BY id"
    )
    assert seen == list(zip(days, times, times, strict=True))
    assert await postgres.run("SELECT d::text FROM t WHERE id = 0") == [
        ("0001-12-31 BC",)
    ]


async def test_what_python_or_sqlite_has_not_names_its_column(
    tmp_path: Path, postgres: Postgres
) -> None:
    await postgres.run("CREATE TABLE a (id BIGINT, name TEXT)")
    file = Sqlite(tmp_path / "store.db")
    await file.run("CREATE TABLE a (id BIGINT, name TEXT)")
    for name, values, told in (
        ("date", pa.array([-719_163], pa.date32()), "column name must be of dates"),
        (
            "parts",
            pa.array([{"a": 1}]),
            "column name must be a number, a text or bytes",
        ),
        ("list", pa.array([[1]]), "got a list, of which SQLite has none"),
        ("duration", pa.array([1], pa.duration("us")), "got a timedelta, of which"),
    ):
        rows = pa.record_batch({"id": [1], "name": values})
        with pytest.raises((ValueError, sqlite3.Error), match=told):
            await write(file.sink("a"), rows)
        with pytest.raises((ValueError, sqlite3.Error), match=told):
            await stage(file, rows, exact=False)
        if name == "date":
            with pytest.raises(ValueError, match=told):
                await write(postgres.sink("a"), rows)
    with pytest.raises(Exception, match="refuses a text with a NUL"):
        await write(postgres.sink("a"), (1, "a\0b"))


async def test_values_that_a_user_has_adapted_are_sqlite_s(tmp_path: Path) -> None:
    class Tags(dict[str, int]):
        pass

    file = Sqlite(tmp_path / "store.db")
    await file.run("CREATE TABLE a (id BIGINT, name TEXT)")
    sqlite3.register_adapter(Tags, lambda tags: "n" + ",".join(tags))
    await write(file.sink("a"), (1, Tags(a=1)))

    assert await file.run("SELECT name FROM a") == [("na",)]
