"""Attempts that are open as a process forks: its child closes the sink, too."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]

PROGRAM = """
import asyncio, os, sqlite3, sys
import asyncpg
import pyarrow as pa
from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.staged import Attempt

kind, place = sys.argv[1:]

OURS = Epoch("q", 0)
ATTEMPT = Attempt(OURS, "run", 0, "a")
TABLE = kind.replace(" ", "_")
ROWS = [pa.RecordBatch.from_pydict({"id": [1, 2, 3]})]
if "sqlite" in kind:
    with sqlite3.connect(place) as database:
        database.execute(f"CREATE TABLE {TABLE} (id INTEGER)")
    database.close()
if kind == "parquet":
    from batchqueue_async.sinks.parquet import ParquetEpochSink
    sink = ParquetEpochSink(place, row_group=2)
if kind == "postgres":
    from batchqueue_async.sinks.postgres import PostgresEpochSink
    sink = PostgresEpochSink(place, TABLE, ["id"], statement_timeout=10)
if kind == "staged parquet":
    from batchqueue_async.sinks.parquet_staged import ParquetStagedSink
    sink = ParquetStagedSink(place, row_group=2)
if kind == "staged sqlite":
    from batchqueue_async.sinks.sqlite_staged import SqliteStagedSink
    sink = SqliteStagedSink(place, TABLE)
if kind == "staged postgres":
    from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
    sink = PostgresStagedSink(place, TABLE, statement_timeout=10)
is_staged = kind.startswith("staged")

async def write():
    await (sink.stage(ATTEMPT, ROWS) if is_staged else sink.write(OURS, ROWS))

async def leave():
    if hasattr(sink, "close"):
        await sink.close()
    await (sink.abandon(ATTEMPT) if is_staged else sink.abort(OURS))

async def create_table():
    connection = await asyncpg.connect(place)
    await connection.execute(f"CREATE TABLE {TABLE} (id BIGINT)")
    await connection.close()

async def main():
    if "postgres" in kind:
        await create_table()
    if not is_staged:
        await sink.begin(OURS)
    await write()
    child = os.fork()
    if not child:
        status = 1
        try:
            asyncio.run(leave())
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(status)
    await write()
    if is_staged:
        print((await sink.seal(ATTEMPT)).rows)
    else:
        await sink.commit(OURS)
        print(6 if await sink.is_committed(OURS) else 0)
    await leave()
    sys.exit(status)

asyncio.run(main())
"""


# From Python 3.12 on, which warns of each fork beside threads.
PYTHON = (sys.executable, "-W", "ignore:This process:DeprecationWarning")


def _run(*arguments: str) -> Sequence[object]:
    command = [*PYTHON, "-c", PROGRAM, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("kind", ["parquet", "staged parquet", "staged sqlite"])
def test_a_child_that_leaves_takes_nothing_of_its_parent(
    tmp_path: Path, kind: str
) -> None:
    assert _run(kind, str(tmp_path / "place")) == (0, "6\n", "")


@pytest.mark.parametrize("kind", ["postgres", "staged postgres"])
def test_a_parent_hears_from_its_server_after_a_child_has_left(
    postgres_dsn: str, kind: str
) -> None:
    assert _run(kind, postgres_dsn) == (0, "6\n", "")


WRITER = """
import asyncio, os, sqlite3, sys
from batchqueue_async import BatchQueueError
from batchqueue_async.sinks import Epoch, EpochWriter
from batchqueue_async.sinks.sqlite import SqliteEpochSink

with sqlite3.connect(sys.argv[1]) as database:
    database.execute("CREATE TABLE items (id INTEGER)")
database.close()
writer = EpochWriter(SqliteEpochSink(sys.argv[1], "items", ["id"]))

async def deliver(epoch):
    await writer.begin(epoch)
    await writer.consume([(epoch.batch,)])
    await writer.commit(epoch)

asyncio.run(writer.begin(Epoch("q", 0)))
child = os.fork()
if not child:
    assert writer.epoch is None
    asyncio.run(deliver(Epoch("q", 1)))
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0
assert writer.epoch == Epoch("q", 0)
asyncio.run(writer.consume([(0,)]))
asyncio.run(writer.commit(Epoch("q", 0)))
with sqlite3.connect(sys.argv[1]) as database:
    print(database.execute("SELECT id FROM items ORDER BY id").fetchall())
"""


def test_a_child_has_no_epoch_open_in_its_writer(tmp_path: Path) -> None:
    command = [*PYTHON, "-c", WRITER, str(tmp_path / "store.db")]

    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout, done.stderr) == ("[(0,), (1,)]\n", "")
