"""A SQLite file that another takes the place of, or whose folder can't be written."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks._sqlite.fences import SqliteFences
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from batchqueue_async.sinks.sqlite_staged import SqliteStagedSink
from tests.sinks.test_sqlite import FIRST, content, created

pytestmark = pytest.mark.real_time

SECOND = Epoch("query", 1)


def with_log(path: Path, rows: int = 0) -> Path:
    """A file in WAL mode, with another table before the sink's."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute("CREATE TABLE others (word TEXT)")
        words = [(f"word {number}",) for number in range(rows)]
        database.executemany("INSERT INTO others VALUES (?)", words)
        database.execute("CREATE TABLE items (id INTEGER)")
        database.commit()
    return path


async def written(sink: SqliteEpochSink[Any], epoch: Epoch, ids: range) -> None:
    await sink.begin(epoch)
    await sink.write(epoch, [(each,) for each in ids])
    await sink.commit(epoch)


@pytest.mark.parametrize("is_away_before", [False, True])
async def test_the_log_of_a_file_is_not_written_into_the_one_that_replaces_it(
    tmp_path: Path, *, is_away_before: bool
) -> None:
    """As when a backup is put in its place; that was malformed afterwards."""
    path = with_log(tmp_path / "items.db")
    sink = SqliteEpochSink[Any](path, "items", ("id",))
    await written(sink, FIRST, range(5_000))
    new = with_log(tmp_path / "new.db", rows=100_000)
    if is_away_before:
        path.rename(tmp_path / "old.db")
        with pytest.raises(sqlite3.OperationalError, match="unable to open"):
            await sink.is_committed(SECOND)
    new.replace(path)

    for _ in range(2):
        with pytest.raises(BatchQueueError, match="-wal beside it is of the file"):
            await sink.is_committed(SECOND)

    for name in ("items.db-wal", "items.db-shm"):
        (tmp_path / name).unlink()
    await written(sink, SECOND, range(3))
    await sink.close()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert content(path) == [(0,), (1,), (2,)]


async def test_a_file_that_is_away_for_a_moment_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    path = with_log(tmp_path / "items.db")
    sink = SqliteEpochSink[Any](path, "items", ("id",))
    await sink.begin(FIRST)
    await sink.write(FIRST, [(1,)])
    path.rename(tmp_path / "away.db")
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        await sink.write(FIRST, [(2,)])
    (tmp_path / "away.db").rename(path)

    await sink.write(FIRST, [(2,)])
    await sink.commit(FIRST)
    await sink.close()
    assert content(path) == [(1,), (2,)]


async def test_a_file_that_is_replaced_while_it_is_opened_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each epoch from then on went into the one that was deleted."""
    path, new = with_log(tmp_path / "items.db"), with_log(tmp_path / "new.db")
    prepare = SqliteFences.prepare

    def prepared(self: SqliteFences, database: sqlite3.Connection) -> None:
        prepare(self, database)
        if new.exists():
            new.replace(path)

    monkeypatch.setattr(SqliteFences, "prepare", prepared)
    sink = SqliteEpochSink[Any](path, "items", ("id",))
    assert not await sink.is_committed(FIRST)

    with pytest.raises(BatchQueueError, match="was replaced while it was open"):
        await written(sink, FIRST, range(2))
    await sink.close()


@pytest.mark.parametrize(
    "code, told",
    [
        (sqlite3.SQLITE_READONLY_DIRECTORY, "it is its folder that can't be written"),
        (sqlite3.SQLITE_READONLY_DBMOVED, "moved, deleted or replaced since it was"),
        # As in a container whose root is read-only.
        (sqlite3.SQLITE_CANTOPEN, "or the folder of temporary files"),
    ],
)
async def test_what_is_wrong_is_told_where_it_is_not_the_file(
    tmp_path: Path, code: int, told: str
) -> None:
    """SQLite says of the file that it is read-only, or can't be opened."""
    path = created(tmp_path / "items.db", "id INTEGER")
    sink = SqliteStagedSink(path, "items")

    def refuse(_: sqlite3.Connection) -> NoReturn:
        error = sqlite3.OperationalError("of the database")
        error.sqlite_errorcode = code
        raise error

    with pytest.raises(sqlite3.OperationalError, match=f"{path}.*{told}"):
        await sink._file.run(refuse)
    await sink.close()


async def test_a_file_of_two_names_is_refused_until_it_has_one(tmp_path: Path) -> None:
    """A journal has the name that its writer used, and is not found under another.

    Killed in a `commit`, a writer left an epoch's fence there, and a few of its rows.
    """
    path = created(tmp_path / "items.db", "id INTEGER")
    other = tmp_path / "other.db"
    other.hardlink_to(path)
    by_link = tmp_path / "link.db"
    by_link.symlink_to(path)

    for name in (path, other, by_link):
        epochs = SqliteEpochSink[Any](name, "items", ("id",))
        staged = SqliteStagedSink(name, "items")
        with pytest.raises(BatchQueueError, match=r"has 2 names \(hard links\)"):
            await epochs.is_committed(FIRST)
        with pytest.raises(BatchQueueError, match=r"has 2 names \(hard links\)"):
            await staged.is_published(FIRST)

    other.unlink()
    await written(epochs, FIRST, range(3))
    assert await staged.is_published(FIRST)
    await epochs.close()
    await staged.close()


async def test_a_file_that_can_be_written_again_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that was read-only for a while; SQLite goes on reading alone."""
    path = created(tmp_path / "items.db", "id INTEGER")
    first = SqliteEpochSink[Any](path, "items", ("id",))
    await written(first, FIRST, range(3))
    await first.close()
    connect = sqlite3.connect

    def connected_read_only(place: str, **keywords: Any) -> sqlite3.Connection:  # noqa: ANN401
        made: sqlite3.Connection = connect(
            place.replace("mode=rw", "mode=ro"), **keywords
        )
        return made

    epochs = SqliteEpochSink[Any](path, "items", ("id",))
    staged = SqliteStagedSink(path, "items")
    told = "readonly database: .*db$"
    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", connected_read_only)
        patched.setattr(os, "access", lambda *_: False)
        with pytest.raises(sqlite3.OperationalError, match=told):
            await written(epochs, SECOND, range(3, 5))
        with pytest.raises(sqlite3.OperationalError, match=told):
            await staged.announce(SECOND, "run")
        # Neither writes the file.
        await epochs.abort(SECOND)
        assert await epochs.is_committed(FIRST)

    await staged.announce(SECOND, "run")
    await written(epochs, SECOND, range(3, 5))
    assert content(path) == [(0,), (1,), (2,), (3,), (4,)]
    await epochs.close()
    await staged.close()
