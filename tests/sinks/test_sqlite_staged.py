"""SQLite's staged sink, beside the contract: its file, its values and its options."""

import asyncio
import math
import multiprocessing
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks.epochs import Epoch
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from batchqueue_async.sinks.sqlite_staged import SqliteStagedSink
from batchqueue_async.sinks.staged import Token
from tests.sinks.places import EPOCH, attempt, batch, sealed

pytestmark = [pytest.mark.real_time]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    ask(tmp_path / "store.db", "CREATE TABLE items (word TEXT, id INTEGER PRIMARY KEY)")
    return tmp_path / "store.db"


def ask(file: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as database, database:
        return database.execute(query).fetchall()


def staged_elsewhere(file: Path, partition: int) -> Token:
    """What one process does."""

    async def stage() -> Token:
        sink = SqliteStagedSink(file, "items")
        mine = attempt(partition)
        for start in range(0, 1_000, 100):
            first = partition * 1_000 + start
            await sink.stage(mine, [batch(*range(first, first + 100))])
        token = await sink.seal(mine)
        await sink.close()
        return token

    return asyncio.run(stage())


# A loop in each process, of asyncio alone.
@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_processes_stage_side_by_side(file: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        tokens = pool.starmap(staged_elsewhere, [(file, n) for n in range(8)])
    sink = SqliteStagedSink(file, "items")
    assert ask(file, "SELECT * FROM items") == []

    assert await sink.publish(EPOCH, tokens)
    await sink.close()

    assert ask(file, "SELECT count(*), sum(id) FROM items") == [
        (8_000, sum(range(8_000)))
    ]
    assert ask(file, "SELECT * FROM items_staged") == []


async def test_its_fences_are_those_of_the_epoch_sink(file: Path) -> None:
    staged = SqliteStagedSink(file, "main.ITEMS")
    epochs = SqliteEpochSink[Any](file, "items", ("word", "id"))
    assert not await epochs.is_committed(EPOCH)

    await staged.publish(EPOCH, [await sealed(staged, attempt(), 1)])

    assert await epochs.is_committed(EPOCH)
    await staged.close()
    await epochs.close()


async def test_on_conflict_combines_rows_with_those_that_exist(file: Path) -> None:
    ask(file, "INSERT INTO items VALUES ('old', 1)")
    conflict = "ON CONFLICT (id) DO UPDATE SET word = items.word || excluded.word"
    sink = SqliteStagedSink(file, "items", on_conflict=conflict)

    await sink.publish(EPOCH, [await sealed(sink, attempt(), 1, 2)])
    await sink.close()

    assert ask(file, "SELECT word FROM items ORDER BY id") == [("oldw1",), ("w2",)]


async def test_a_nan_is_refused_unless_it_may_be_null(file: Path) -> None:
    nan = pa.record_batch({"id": [1], "word": pa.array([math.nan])})
    strict = SqliteStagedSink(file, "items")
    lenient = SqliteStagedSink(file, "items", nan_as_null=True)
    mine = attempt()

    with pytest.raises(ValueError, match="column word must be a number or None"):
        await strict.stage(mine, [nan])
    await strict.abandon(mine)
    await lenient.stage(mine, [nan])
    await lenient.publish(EPOCH, [await lenient.seal(mine)])

    assert ask(file, "SELECT * FROM items") == [(None, 1)]
    for sink in (strict, lenient):
        await sink.close()


async def test_a_number_that_sqlite_lacks_is_refused_by_its_column(file: Path) -> None:
    sink, mine = SqliteStagedSink(file, "items"), attempt()
    large = pa.record_batch({"id": pa.array([2**63], pa.uint64())})

    with pytest.raises(ValueError, match="column id must be an int of 64 bits"):
        await sink.stage(mine, [large])
    await sink.close()


async def test_a_table_that_was_made_again_gets_a_staging_table_like_it(
    file: Path,
) -> None:
    sink = SqliteStagedSink(file, "items")
    await sink.publish(EPOCH, [await sealed(sink, attempt(), 1)])
    ask(file, "DROP TABLE items")
    ask(file, "CREATE TABLE items (id INTEGER, word TEXT, more TEXT)")
    later = Epoch(EPOCH.query, 8)

    await sink.publish(later, [await sealed(sink, attempt(epoch=later), 2)])
    await sink.close()

    assert ask(file, "SELECT * FROM items") == [(2, "w2", None)]


@pytest.mark.parametrize("kind", ["VIRTUAL", "STORED"])
async def test_a_generated_column_is_left_to_the_table(file: Path, kind: str) -> None:
    """Its staging table had one column too many, was made anew, and lost all rows."""
    ask(file, "DROP TABLE items")
    columns = f"word TEXT, id INTEGER, twice GENERATED ALWAYS AS (id * 2) {kind}"
    ask(file, f"CREATE TABLE items ({columns})")
    sink = SqliteStagedSink(file, "items")
    tokens = [await sealed(sink, attempt(number), number) for number in (1, 2)]

    assert await sink.publish(EPOCH, tokens)
    await sink.close()

    assert ask(file, "SELECT * FROM items") == [("w1", 1, 2), ("w2", 2, 4)]


async def test_a_column_of_the_staging_table_s_own_is_refused(file: Path) -> None:
    ask(file, "ALTER TABLE items ADD COLUMN Batchqueue_Attempt INTEGER")
    sink = SqliteStagedSink(file, "items")

    with pytest.raises(ValueError, match="without a column batchqueue_attempt"):
        await sealed(sink, attempt(), 1)
    await sink.close()


async def test_a_table_of_somebody_else_s_is_left_alone(file: Path) -> None:
    ask(file, "CREATE TABLE items_staged (mine TEXT)")
    sink = SqliteStagedSink(file, "items")

    with pytest.raises(BatchQueueError, match="table items_staged must have the col"):
        await sink.stage(attempt(), [batch(1)])
    await sink.close()

    assert ask(file, "SELECT * FROM items_staged") == []


async def test_a_cancelled_stage_is_undone_with_its_attempt(file: Path) -> None:
    sink, mine = SqliteStagedSink(file, "items"), attempt()
    staging = asyncio.ensure_future(sink.stage(mine, [batch(*range(50_000))]))
    await asyncio.sleep(0)
    staging.cancel()
    await asyncio.wait([staging])
    await sink.abandon(mine)

    await sink.discard(EPOCH, "run")

    assert ask(file, "SELECT * FROM items_staged") == []
    await sink.close()


@pytest.mark.parametrize("ending", ["abandon", "close"])
@pytest.mark.parametrize("before", [0, 1])
async def test_a_cancelled_stage_is_undone_without_its_run_s_end(
    file: Path, ending: str, before: int
) -> None:
    """Its thread goes on; what it had written stayed until somebody ended the epoch."""
    sink, mine = SqliteStagedSink(file, "items"), attempt()
    if before:
        await sink.stage(mine, [batch(1)])
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # so that it is at work when it is cancelled
        staging = asyncio.ensure_future(sink.stage(mine, [batch(2)]))
        while not sink._file._lock.locked():  # noqa: ASYNC110  # a thread's
            await asyncio.sleep(0)
        staging.cancel()
        await asyncio.wait([staging])
        other.execute("ROLLBACK")

    with pytest.raises(BatchQueueError, match="which has ended"):
        await sink.seal(mine)
    await (sink.abandon(mine) if ending == "abandon" else sink.close())

    assert ask(file, "SELECT * FROM items_staged") == []
    assert ask(file, "SELECT name FROM batchqueue_attempts") == []
    await sink.close()


@pytest.mark.parametrize(
    "options,says",
    [
        ({}, "file must be given as an option, got None"),
        ({"file": "x.db"}, "table must be given as an option, got None"),
        ({"tabel": "t"}, "has the options file, table, on_conflict, .* got 'tabel'"),
        ({"timeout": "soon"}, "timeout must be a number of seconds, got 'soon'"),
        ({"timeout": "-1"}, "timeout must be >= 0, got -1"),
        ({"nan_as_null": "perhaps"}, 'nan_as_null must be "true" or "false"'),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], says: str) -> None:
    if says.startswith(("timeout", "nan")):
        options = {"file": "x.db", "table": "t", **options}

    with pytest.raises(ValueError, match=says):
        SqliteStagedSink.from_options(options)


async def test_options_are_the_arguments(file: Path) -> None:
    sink = SqliteStagedSink.from_options(
        {
            "file": str(file),
            "table": "items",
            "on_conflict": "ON CONFLICT (id) DO NOTHING",
            "timeout": "1.5",
            "nan_as_null": "TRUE",
            "fences": "my_fences",
        }
    )

    await sink.publish(EPOCH, [])
    await sink.close()

    assert ask(file, "SELECT target, rows FROM my_fences") == [("items", 0)]


async def test_it_says_nothing_that_older_sqlite_does_not_know(file: Path) -> None:
    """RETURNING came with 3.35; distributions that are in use have 3.31 to 3.34."""
    said: list[str] = []
    sink, mine = SqliteStagedSink(file, "items"), attempt(is_announced=True)
    try:
        await sink._file.run(lambda database: database.set_trace_callback(said.append))
        await sink.announce(EPOCH, "run")
        await sink.publish(EPOCH, [await sealed(sink, mine, 1)])
        await sink.discard(EPOCH, "run")
    finally:
        await sink.close()

    assert ask(file, "SELECT id FROM items") == [(1,)]
    assert any("INSERT INTO main.batchqueue_attempts" in each for each in said)
    assert not [each for each in said if "RETURNING" in each]
