"""A sink refuses a wrong argument by its name as it is made: not when an epoch ends."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.parquet import ParquetEpochSink
from batchqueue_async.sinks.parquet_staged import ParquetStagedSink
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from batchqueue_async.sinks.sqlite_staged import SqliteStagedSink
from batchqueue_async.sinks.staged import Attempt

Made = Callable[..., Any]

URL = "postgresql://127.0.0.1:1/shop"
SQLITE: Made = partial(SqliteEpochSink, "shop.db", "items", ["id"])
POSTGRES: Made = partial(PostgresEpochSink, URL, "items", ["id"])
PARQUET: Made = partial(ParquetEpochSink, "shop", schema=pa.schema([("id", "int64")]))
SQLITE_STAGED: Made = partial(SqliteStagedSink, "shop.db", "items")
POSTGRES_STAGED: Made = partial(PostgresStagedSink, URL, "items")


async def later(item: object) -> tuple[object]:
    return (item,)


def generate(item: object) -> Iterator[object]:
    yield item


@pytest.mark.parametrize("wrong", ["", 0, "to_row", later, generate, lambda: (1,)])
@pytest.mark.parametrize("make", [SQLITE, POSTGRES, PARQUET], ids=lambda m: m.func)
def test_to_row_is_a_function_of_an_item(make: Made, wrong: object) -> None:
    with pytest.raises(TypeError, match=r"^to_row must be "):
        make(to_row=wrong)


@pytest.mark.parametrize("wrong", [None, 5, True, b"ON CONFLICT DO NOTHING"])
@pytest.mark.parametrize(
    "make",
    [SQLITE, POSTGRES, SQLITE_STAGED, POSTGRES_STAGED],
    ids=lambda made: made.func,
)
def test_the_end_of_the_insert_is_a_text(make: Made, wrong: object) -> None:
    """None was found as the epoch was committed, each time."""
    with pytest.raises(TypeError, match=r"^on_conflict must be a str, got "):
        make(on_conflict=wrong)


@pytest.mark.parametrize("wrong", ["false", None, 0, "no"])
@pytest.mark.parametrize("make", [SQLITE, SQLITE_STAGED], ids=lambda made: made.func)
def test_a_nan_is_written_as_null_where_that_was_said(
    make: Made, wrong: object
) -> None:
    """The text "false" is true."""
    with pytest.raises(TypeError, match=r"^nan_as_null must be True or False, got "):
        make(nan_as_null=wrong)


@pytest.mark.parametrize("wrong", [None, 5, b"shop", Path])
@pytest.mark.parametrize(
    "make, name",
    [
        (lambda path: SqliteEpochSink(path, "items", ["id"]), "path"),
        (lambda file: SqliteStagedSink(file, "items"), "file"),
        (ParquetEpochSink, "directory"),
        (ParquetStagedSink, "directory"),
    ],
)
def test_a_path_is_one(make: Made, name: str, wrong: object) -> None:
    with pytest.raises(TypeError, match=rf"^{name} must be a str or a Path, got "):
        make(wrong)
    with pytest.raises(ValueError, match=rf"^{name} must be a path with a name"):
        make("")


@pytest.mark.parametrize("wrong", [None, 0, "2", True])
def test_connections_are_a_number(wrong: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^connections must be "):
        POSTGRES(connections=wrong)


@pytest.mark.parametrize("wrong", [":memory:", "file:shop?mode=memory"])
def test_a_database_in_memory_is_none(wrong: str) -> None:
    """It was found as the first epoch began: "unable to open database file"."""
    with pytest.raises(ValueError, match=r"^path must be the path of a file, .*mem"):
        SqliteEpochSink(wrong, "items", ["id"])
    with pytest.raises(ValueError, match=r"^file must be the path of a file, .*mem"):
        SqliteStagedSink(wrong, "items")


@pytest.mark.parametrize("given", [None, 7, ("query", 7)])
async def test_an_epoch_is_one(given: object, tmp_path: Path) -> None:
    wrong: Any = given
    with pytest.raises(TypeError, match=r"^epoch must be an Epoch, as in Epoch\("):
        Attempt(wrong, "run", 0, "name")
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE items (id)")
    sink = SqliteEpochSink[tuple[int]](file, "items", ["id"])
    with pytest.raises(TypeError, match=r"^epoch must be an Epoch, as in Epoch\("):
        await sink.begin(wrong)
    await sink.begin(Epoch("query", 7))
    await sink.close()
