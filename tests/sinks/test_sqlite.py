"""What is special about the SQLite sink."""

import asyncio
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
import uuid
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pandas as pd
import pyarrow as pa
import pytest

from batchqueue_async.sinks import Epoch, EpochWriter, sqlite
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from batchqueue_async.sinks.sqlite_staged import SqliteStagedSink
from tests.sinks.stores import SqliteStore

pytestmark = pytest.mark.real_time

FIRST = Epoch("query", 0)


def created(path: Path, columns: str) -> Path:
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE items ({columns})")
    return path


def content(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT * FROM items").fetchall()


async def delivered(sink: SqliteEpochSink[Any], epoch: Epoch, items: list[Any]) -> None:
    try:
        await sink.begin(epoch)
        await sink.write(epoch, items)
        await sink.commit(epoch)
    finally:
        await sink.close()


async def test_values_that_sqlite_lacks_become_texts(tmp_path: Path) -> None:
    path = created(tmp_path / "db", "price DECIMAL, day TEXT, at TEXT, on_sale INTEGER")
    columns = ("price", "day", "at", "on_sale")
    at = datetime(2013, 1, 1, 5, tzinfo=UTC)
    row = (Decimal("1.50"), date(2013, 1, 1), at, True)

    await delivered(SqliteEpochSink(path, "items", columns), FIRST, [row])

    assert content(path) == [(1.5, "2013-01-01", "2013-01-01 05:00:00+00:00", 1)]


async def test_timestamps_of_a_record_batch_become_microseconds(
    tmp_path: Path,
) -> None:
    path = created(tmp_path / "db", "at INTEGER")
    moments = pa.array([1_500_000, None], pa.timestamp("us", "Europe/Paris"))
    batch = pa.RecordBatch.from_arrays([moments], ["at"])

    await delivered(SqliteEpochSink(path, "items", ("at",)), FIRST, [batch])

    assert content(path) == [(1_500_000,), (None,)]


async def test_rows_may_replace_others(tmp_path: Path) -> None:
    path = created(tmp_path / "db", "id INTEGER PRIMARY KEY, hits INTEGER")

    def sink() -> SqliteEpochSink[Any]:
        return SqliteEpochSink(
            path,
            "items",
            ("id", "hits"),
            on_conflict="ON CONFLICT (id) DO UPDATE SET hits = hits + excluded.hits",
        )

    await delivered(sink(), FIRST, [(1, 10), (1, 5)])
    await delivered(sink(), Epoch("query", 1), [(1, 100), (2, 1)])

    assert content(path) == [(1, 115), (2, 1)]


async def test_items_of_any_kind_with_to_row(tmp_path: Path) -> None:
    path = created(tmp_path / "db", "id INTEGER")
    sink = SqliteEpochSink[str](path, "items", ("id",), to_row=lambda it: (len(it),))

    await delivered(sink, FIRST, ["a", "bb"])

    assert content(path) == [(1,), (2,)]


@pytest.mark.parametrize(
    "table, column, told",
    [
        ("missing", "id", "no such table: missing in .*db$"),
        ("items", "missing", "miss"),
    ],
)
async def test_what_is_missing_is_found_at_the_beginning(
    tmp_path: Path, table: str, column: str, told: str
) -> None:
    path = created(tmp_path / "db", "id INTEGER")
    with pytest.raises(sqlite3.OperationalError, match=told):
        await delivered(SqliteEpochSink(path, table, (column,)), FIRST, [])


async def test_a_begin_that_was_cancelled_leaves_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread goes on, and makes one that no attempt knows."""
    path = created(tmp_path / "db", "id INTEGER")
    sink = SqliteEpochSink[Any](path, "items", ("id",))
    is_at_work, may_go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def found(*_: object) -> str:
        loop.call_soon_threadsafe(is_at_work.set)
        may_go_on.wait(60)
        return "items"

    with monkeypatch.context() as patched:
        patched.setattr(sqlite, "find_table", found)
        beginning = asyncio.create_task(sink.begin(FIRST))
        await is_at_work.wait()
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        may_go_on.set()
        await sink.begin(FIRST)
    query = "SELECT count(*) FROM temp.sqlite_master"
    (tables,) = await sink._file.run(lambda database: [*database.execute(query)])
    await sink.close()
    assert tables == (1,)


async def test_others_may_read_and_write_until_the_commit(tmp_path: Path) -> None:
    path = created(tmp_path / "db", "id INTEGER")
    sink = SqliteEpochSink[Any](path, "items", ("id",), timeout=0.1)
    await sink.begin(FIRST)
    await sink.write(FIRST, [(1,)])
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        other.execute("INSERT INTO items VALUES (0)")

        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match=f"locked: {path}$"):
            await sink.commit(FIRST)
        other.execute("ROLLBACK")

    await sink.commit(FIRST)
    assert content(path) == [(0,), (1,)]
    await sink.close()


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ValueError, "table must be a name, got ''", {"table": ""}),
        (TypeError, "columns must be a list or tuple", {"columns": "id"}),
        (ValueError, "columns must be one name or more", {"columns": ("a", "a")}),
        (TypeError, "fences must be a str, got None", {"fences": None}),
    ]
    for error, says, arguments in wrong:
        with pytest.raises(error, match=says):
            SqliteEpochSink(
                **{"path": tmp_path, "table": "t", "columns": ("a",), **arguments}
            )


NAN = float("nan")


@pytest.mark.parametrize(
    "nan",
    [NAN, numpy.float64(NAN), numpy.float32(NAN)],
    ids=["float", "float64", "float32"],
)
@pytest.mark.parametrize("kind", ["tuple", "mapping", "record batch"])
async def test_a_nan_is_refused_by_its_column(
    tmp_path: Path, nan: float, kind: str
) -> None:
    """SQLite would keep NULL in its place."""
    path = created(tmp_path / "db", "id INTEGER, price REAL")
    item: Any = (1, nan)
    if kind == "mapping":
        item = {"id": 1, "price": nan}
    elif kind == "record batch":
        item = pa.RecordBatch.from_pydict({"id": [1], "price": [float(nan)]})

    with pytest.raises(ValueError, match="column price must be a number or None, got"):
        await delivered(
            SqliteEpochSink(path, "items", ("id", "price")), FIRST, [(0, 1.5), item]
        )
    assert content(path) == []


async def test_a_nan_becomes_null_for_who_wants_it(tmp_path: Path) -> None:
    path = created(tmp_path / "db", "id INTEGER, price REAL")
    rows = [(1, NAN), (2, None), (3, 1.5), (4, numpy.float64(NAN)), (5, float("inf"))]
    sink = SqliteEpochSink[Any](path, "items", ("id", "price"), nan_as_null=True)
    await delivered(sink, FIRST, rows)

    assert content(path) == [
        (1, None),
        (2, None),
        (3, 1.5),
        (4, None),
        (5, float("inf")),
    ]


async def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    """SQLite takes them for bytes, and says nothing."""
    path = created(tmp_path / "db", "id INTEGER, price REAL")
    row = (numpy.int64(7), numpy.float32(1.5))
    await delivered(SqliteEpochSink(path, "items", ("id", "price")), FIRST, [row])

    assert content(path) == [(7, 1.5)]


DYING = """
import asyncio, os, signal, sys
from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.sqlite import SqliteEpochSink

async def main():
    sink = SqliteEpochSink(sys.argv[1], "items", ("id", "name"))
    epoch = Epoch("query", 0)
    await sink.begin(epoch)
    await sink.write(epoch, [(n, "x" * 100) for n in range(50_000)])
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_a_killed_process_leaves_nothing(tmp_path: Path) -> None:
    """What it had staged is in a file that has no name, and goes with it."""
    store, temporary = SqliteStore(tmp_path), tmp_path / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", DYING, str(store.path)],
        env={**os.environ, "SQLITE_TMPDIR": str(temporary)},
        timeout=50,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL

    assert list(temporary.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store.db", "temporary"]
    assert asyncio.run(store.rows()) == []
    assert asyncio.run(store.remains()) == []


async def test_what_sqlite_would_make_something_else_of_is_refused_by_its_column(
    tmp_path: Path,
) -> None:
    """It takes an array's bytes, NaT for a text, and tells a parameter's number."""
    path = created(tmp_path / "db", "id INTEGER, v")
    nanoseconds = numpy.datetime64("2026-01-01T00:00:00.123456789")
    for value, told in (
        (pd.NaT, "a number or None, got a NaN"),
        (numpy.array([1, 2]), "a number, a text or bytes, got a ndarray"),
        (nanoseconds, "a number, a text or bytes, got a datetime64"),
        (uuid.UUID(int=1), "a number, a text or bytes, got an UUID"),
        ({1}, "a number, a text or bytes, got a set"),
        (2**63, "an int of 64 bits, got a larger one"),
    ):
        sink = SqliteEpochSink[Any](path, "items", ("id", "v"))
        errors = (ValueError, sqlite3.ProgrammingError)
        with pytest.raises(errors, match=f"column v must be {told}"):
            await delivered(sink, FIRST, [(1, value)])
    lenient = SqliteEpochSink[Any](path, "items", ("id", "v"), nan_as_null=True)
    day = numpy.datetime64("2026-01-01", "us")
    await delivered(lenient, FIRST, [(1, pd.NaT), (2, day), (3, bytearray(b"x"))])

    assert content(path) == [(1, None), (2, "2026-01-01 00:00:00"), (3, b"x")]


@pytest.mark.parametrize("file", ["missing/rows.db", "notes.txt"])
async def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path, file: str) -> None:
    (tmp_path / "notes.txt").write_text("no database" * 100)
    sink = SqliteEpochSink[Any](tmp_path / file, "rows", ("id",))

    with pytest.raises(sqlite3.DatabaseError, match=f"database.*: .*{file}$"):
        await sink.is_committed(FIRST)


async def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """Its disk may not be mounted, or somebody is putting a backup in its place."""
    path = created(tmp_path / "a?b#%20.db", "id")
    sink = SqliteEpochSink[Any](path, "items", ("id",))
    assert not await sink.is_committed(FIRST)
    move(path, tmp_path / "elsewhere")
    with pytest.raises(sqlite3.OperationalError, match=r"unable to open .*: .*a.b#"):
        await sink.is_committed(FIRST)
    move(tmp_path / "elsewhere", path)
    assert not await sink.is_committed(FIRST)
    await sink.close()


def move(path: Path, to: Path) -> None:
    assert not to.exists()
    path.rename(to)


async def test_a_commit_waits_for_the_end_of_the_journal(tmp_path: Path) -> None:
    """A journal that a power cut brings back undoes what was committed.

    Only EXTRA, which is 3, waits for that.
    """
    sink = SqliteEpochSink[Any](created(tmp_path / "r.db", "id"), "items", ("id",))
    assert not await sink.is_committed(FIRST)
    assert await sink._file.run(synchronous) == 3
    await sink.close()


def synchronous(database: sqlite3.Connection) -> int:
    found: int = database.execute("PRAGMA synchronous").fetchone()[0]
    return found


def test_one_that_is_sent_to_an_executor_is_named(tmp_path: Path) -> None:
    """Spark pickles what a function refers to; the error named a lock."""
    path = created(tmp_path / "items.db", "x")
    epochs: SqliteEpochSink[Any] = SqliteEpochSink(path, "items", ("x",))
    for each in (EpochWriter(epochs), SqliteStagedSink(path, "items")):
        with pytest.raises(TypeError, match=r"a Sqlite(Epoch|Staged)Sink can't be"):
            pickle.dumps(each)


async def test_where_a_disk_is_full_both_that_may_be_it_are_told(
    tmp_path: Path,
) -> None:
    """What is written waits in a temporary file, on a disk that is often small."""
    path = created(tmp_path / "store.db", "name TEXT")
    sink = SqliteEpochSink[Any](path, "items", ("name",))
    try:
        await sink.begin(FIRST)
        limit = "PRAGMA temp.max_page_count = 4"
        await sink._file.run(lambda database: database.execute(limit))
        told = f"full: {path}, or the folder of temporary files .SQLITE_TMPDIR"
        with pytest.raises(sqlite3.OperationalError, match=told):
            await sink.write(FIRST, [("name" * 100,)] * 500)
    finally:
        await sink.close()
