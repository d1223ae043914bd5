"""A form of Arrow's that holds the same values is written as the plain one is."""

import datetime
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from batchqueue_async.sinks.rows import python_rows
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from batchqueue_async.sinks.sqlite_staged import SqliteStagedSink
from tests.sinks.databases import Postgres
from tests.sinks.places import attempt

pytestmark = pytest.mark.real_time

EPOCH = Epoch("query", 0)
NOON = datetime.datetime(2026, 1, 2, 12)
# Texts of these bytes have a backslash, with which COPY spells others.
BYTES = [rb"\101", b"\\x41", None]
TEXTS = ["a\\b", "", None]

MICROSECONDS = [int(NOON.replace(tzinfo=datetime.UTC).timestamp()) * 1_000_000, None]
NS = pa.timestamp("ns")

# The column, the table's type in PostgreSQL, the values there, and in SQLite.
FORMS = {
    "bytes of one length": (pa.array(BYTES, pa.binary(4)), "BYTEA", BYTES, BYTES),
    "view of bytes": (pa.array(BYTES, pa.binary_view()), "BYTEA", BYTES, BYTES),
    "dictionary of bytes": (pa.array(BYTES).dictionary_encode(), "BYTEA", BYTES, BYTES),
    "view": (pa.array(TEXTS, pa.string_view()), "TEXT", TEXTS, TEXTS),
    "dictionary": (pa.array(TEXTS).dictionary_encode(), "TEXT", TEXTS, TEXTS),
    "dictionary of moments": (
        pa.array([NOON, None], pa.timestamp("us")).dictionary_encode(),
        "TIMESTAMP",
        [NOON, None],
        MICROSECONDS,
    ),
    "ns": (pa.array([NOON, None], NS), "TIMESTAMP", [NOON, None], MICROSECONDS),
    "ms": (
        pa.array([NOON, None], pa.timestamp("ms")),
        "TIMESTAMP",
        [NOON, None],
        MICROSECONDS,
    ),
    "days of milliseconds": (
        pa.array([NOON.date()], pa.date64()),
        "DATE",
        [NOON.date()],
        ["2026-01-02"],
    ),
    "ns of a day": (
        pa.array([NOON.time()], pa.time64("ns")),
        "TIME",
        [NOON.time()],
        ["12:00:00"],
    ),
}


async def write(sink: Any, column: pa.Array) -> None:  # noqa: ANN401  # of two kinds
    rows = pa.RecordBatch.from_arrays([column], ["v"])
    try:
        if hasattr(sink, "stage"):
            mine = attempt(epoch=EPOCH)
            await sink.stage(mine, [rows])
            await sink.publish(EPOCH, [await sink.seal(mine)])
        else:
            await sink.begin(EPOCH)
            await sink.write(EPOCH, [rows])
            await sink.commit(EPOCH)
    finally:
        await sink.close()


@pytest.mark.parametrize("kind", [PostgresEpochSink, PostgresStagedSink])
@pytest.mark.parametrize("name", FORMS)
async def test_postgres_has_the_values(
    postgres: Postgres,
    name: str,
    kind: Any,  # noqa: ANN401
) -> None:
    column, of_table, expected, _ = FORMS[name]
    await postgres.run(f"CREATE TABLE t (v {of_table})")

    names = [("v",)] if kind is PostgresEpochSink else []
    await write(kind(postgres.dsn, "t", *names), column)

    assert [v for (v,) in await postgres.run("SELECT v FROM t")] == expected


@pytest.mark.parametrize("kind", [SqliteEpochSink, SqliteStagedSink])
@pytest.mark.parametrize("name", FORMS)
async def test_sqlite_has_the_values(tmp_path: Path, name: str, kind: Any) -> None:  # noqa: ANN401
    column, _, _, expected = FORMS[name]
    with closing(sqlite3.connect(tmp_path / "db")) as database:
        database.execute("CREATE TABLE t (v)")

        names = [("v",)] if kind is SqliteEpochSink else []
        await write(kind(tmp_path / "db", "t", *names), column)

        assert [v for (v,) in database.execute("SELECT v FROM t")] == expected


@pytest.mark.parametrize(
    "kind, of_table",
    [
        (pa.timestamp("ns"), "TIMESTAMP"),
        (pa.timestamp("ns", "UTC"), "TIMESTAMPTZ"),
        (pa.time64("ns"), "TIME"),
    ],
)
async def test_nanoseconds_are_refused_and_not_quoted(
    postgres: Postgres, tmp_path: Path, kind: pa.DataType, of_table: str
) -> None:
    await postgres.run(f"CREATE TABLE t (v {of_table})")
    told = "column v must be of times in whole microseconds, got nanoseconds"
    for sink in (*sqlite_sinks(tmp_path), *postgres_sinks(postgres)):
        with pytest.raises(ValueError, match=told) as refused:
            await write(sink, pa.array([4_242_001, None], kind))
        assert "4242" not in str(refused.value)


def postgres_sinks(postgres: Postgres) -> tuple[Any, Any]:
    return (
        PostgresEpochSink[Any](postgres.dsn, "t", ("v",)),
        PostgresStagedSink(postgres.dsn, "t"),
    )


def sqlite_sinks(folder: Path) -> tuple[Any, Any]:
    path = folder / "db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (v)")
    return SqliteEpochSink[Any](path, "t", ("v",)), SqliteStagedSink(path, "t")


@pytest.mark.parametrize(
    "kind, told",
    [
        (pa.timestamp("s"), r"times that 64 bits of microseconds have, got .*\[s\]"),
        (pa.timestamp("ms", "UTC"), "times that 64 bits of microseconds have, got"),
        (pa.date64(), r"whole days, got other times of type date64\[ms\]"),
    ],
)
async def test_what_is_no_time_in_microseconds_is_refused_and_not_quoted(
    postgres: Postgres, tmp_path: Path, kind: pa.DataType, told: str
) -> None:
    """For a TEXT a staged sink took Arrow's own "<value out of range: ...>"."""
    await postgres.run("CREATE TABLE t (v TEXT)")
    column = pa.array([4_242_424_242_424_242_424], pa.int64()).view(kind)
    for sink in (*sqlite_sinks(tmp_path), *postgres_sinks(postgres)):
        with pytest.raises(ValueError, match=f"column v must be of {told}") as refused:
            await write(sink, column)
        assert "4242" not in str(refused.value)


async def test_a_text_that_is_not_in_utf_8_is_told_as_such(tmp_path: Path) -> None:
    """As in Spark, whose cast of a BINARY to a STRING keeps any bytes."""
    offsets, data = pa.array([0, 2], pa.int32()), b"\xff\xfe"
    buffers = [None, offsets.buffers()[1], pa.py_buffer(data)]
    column = pa.Array.from_buffers(pa.string(), 1, buffers)
    for sink in sqlite_sinks(tmp_path):
        told = "column v must be text in UTF-8, got other bytes .a cast to BINARY"
        with pytest.raises(ValueError, match=told):
            await write(sink, column)


def test_a_zone_that_only_java_knows_is_told_with_its_column() -> None:
    """Spark takes "Z" and "GMT+3" for a session's time zone."""
    rows = pa.record_batch({"v": pa.array([5], pa.timestamp("us", "GMT+3"))})
    with pytest.raises(ValueError, match="column v must be of a time zone that Python"):
        [*python_rows(rows)]
