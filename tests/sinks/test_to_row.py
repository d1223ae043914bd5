"""What `to_row` may make of an item: each value is its own column's."""

import sqlite3
from collections import deque
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.rows import RowReader, python_rows
from batchqueue_async.sinks.sqlite import SqliteEpochSink


class Swapped(NamedTuple):
    name: str
    id: str


class Other(NamedTuple):
    first: str
    second: str


def read(made: object) -> list[tuple[Any, ...]]:
    def to_row(_item: object) -> Any:  # noqa: ANN401 - what a wrong one returns, too
        return made

    return [*map(tuple, RowReader(("id", "name"), to_row, python_rows).rows([0]))]


@pytest.mark.parametrize(
    "made",
    [
        ("7", "seven"),
        ["7", "seven"],
        deque(["7", "seven"]),
        Other("7", "seven"),
        Swapped("seven", "7"),
        {"name": "seven", "id": "7"},
    ],
    ids=lambda made: type(made).__name__,
)
def test_values_go_by_position_or_by_name(made: object) -> None:
    assert read(made) == [("7", "seven")]


@pytest.mark.parametrize(
    "made",
    ["ab", b"ab", {"7", "seven"}, None, 7, iter(["7", "seven"])],
    ids=lambda made: type(made).__name__,
)
def test_what_has_no_values_in_order_is_refused(made: object) -> None:
    with pytest.raises(TypeError, match="to_row must return a tuple, a list or a"):
        read(made)


def test_a_mapping_has_the_sinks_columns() -> None:
    with pytest.raises(ValueError, match=r"a mapping of \('id', 'name'\), got a dict"):
        read({"id": 1, "nom": "one"})


@pytest.mark.real_time
async def test_a_sink_writes_a_mappings_values(tmp_path: Path) -> None:
    """It wrote the names of its columns."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE items (id TEXT, name TEXT)")
    sink = SqliteEpochSink[str](
        path, "items", ("id", "name"), to_row=lambda it: {"name": it * 2, "id": it}
    )
    epoch = Epoch("query", 0)

    await sink.begin(epoch)
    await sink.write(epoch, ["a", "b"])
    await sink.commit(epoch)
    await sink.close()

    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT id, name FROM items").fetchall()
    assert rows == [("a", "aa"), ("b", "bb")]


def test_a_stop_iteration_of_to_row_is_not_the_rows_end() -> None:
    """As `next` raises it; the rows from there on were missing, without a word."""

    def to_row(item: int) -> tuple[int, str]:
        return item, next(name for name in ["one", "two"] if item < 2)

    reader = RowReader(("id", "name"), to_row, python_rows)

    with pytest.raises(RuntimeError, match="raised StopIteration"):
        reader.rows([0, 1, 2, 3])
