"""A wrong `on_conflict` is refused when the first rows come, and named."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from batchqueue_async.sinks.sqlite_staged import SqliteStagedSink
from tests.sinks.databases import Database, Sqlite
from tests.sinks.places import EPOCH, attempt, batch

pytestmark = pytest.mark.real_time

REFUSED = r"^on_conflict must be the end of an INSERT"
WRONG = [
    "ON CONFLICT (id) DO NOTHING",  # there is no such key
    "ON CONFLICT (nobody) DO NOTHING",
    "ON CONFLIC DO NOTHING",
    "; DROP TABLE a",
]


def epoch_sink(database: Any, on_conflict: str) -> Any:  # noqa: ANN401  # two classes
    if isinstance(database, Sqlite):
        return SqliteEpochSink(
            database.path, "a", ("id", "name"), on_conflict=on_conflict
        )
    return PostgresEpochSink(database.dsn, "a", ("id", "name"), on_conflict=on_conflict)


def staged_sink(database: Any, on_conflict: str) -> Any:  # noqa: ANN401  # as above
    if isinstance(database, Sqlite):
        return SqliteStagedSink(database.path, "a", on_conflict=on_conflict)
    return PostgresStagedSink(database.dsn, "a", on_conflict=on_conflict)


@pytest.mark.parametrize("on_conflict", WRONG)
async def test_it_is_refused_as_the_epoch_begins(
    database: Database, on_conflict: str
) -> None:
    sink = epoch_sink(database, on_conflict)

    with pytest.raises(ValueError, match=REFUSED):
        await sink.begin(EPOCH)

    await sink.close()
    assert await database.run("SELECT count(*) FROM a") == [(0,)]


@pytest.mark.parametrize("on_conflict", WRONG)
async def test_it_is_refused_with_an_attempts_first_rows(
    database: Database, on_conflict: str
) -> None:
    sink, mine = staged_sink(database, on_conflict), attempt()
    rows = batch(1).rename_columns(["id", "name"])

    with pytest.raises(ValueError, match=REFUSED):
        await sink.stage(mine, [rows])

    await sink.abandon(mine)
    await sink.close()
    assert await database.run("SELECT count(*) FROM a") == [(0,)]


async def test_a_right_one_replaces_rows(database: Database) -> None:
    await database.run("CREATE UNIQUE INDEX of_a ON a (id)")
    sink = epoch_sink(database, "ON CONFLICT (id) DO UPDATE SET name = excluded.name")
    for number, name in enumerate(("old", "new")):
        epoch = Epoch("query", number)
        await sink.begin(epoch)
        await sink.write(epoch, [(1, name)])
        await sink.commit(epoch)

    await sink.close()
    assert await database.run("SELECT id, name FROM a") == [(1, "new")]


async def test_what_is_wrong_with_the_table_is_not_its_fault(tmp_path: Path) -> None:
    database = Sqlite(tmp_path / "store.db")
    await database.run("CREATE TABLE items (id INTEGER, name TEXT)")
    await database.run("CREATE VIEW a AS SELECT * FROM items")
    sink = epoch_sink(database, "ON CONFLICT (id) DO NOTHING")

    with pytest.raises(sqlite3.OperationalError, match="because it is a view"):
        await sink.begin(EPOCH)

    await sink.close()
