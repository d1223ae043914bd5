"""Two streams of one `query`: each has a checkpoint, and a fence notes whose it is."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.parquet import ParquetEpochSink
from batchqueue_async.sinks.parquet_staged import ParquetStagedSink
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from batchqueue_async.sinks.sqlite_staged import SqliteStagedSink
from tests.sinks.databases import Postgres, Sqlite, postgres_database
from tests.sinks.places import attempt, batch

# The order of calls counts, and no loop has a part in that.
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.asyncio(loop_factories=["asyncio"]),
]

COLUMNS = ("id", "word")
MINE, OTHER = Epoch("q", 0, checkpoint="c1"), Epoch("q", 0, checkpoint="c2")
# Of a version that knew no checkpoints, or of a batch write.
UNKNOWN = Epoch("q", 0)
Way = Callable[["Target", Epoch, int], Awaitable[bool]]


class Target:
    """A table, or a directory, and both kinds of sink for it."""

    def __init__(self, epochs: Callable[[], Any], staged: Callable[[], Any]) -> None:
        self.epochs = epochs
        self.staged = staged
        self.database: Sqlite | Postgres | None = None
        self.folder: Path | None = None

    async def ids(self) -> list[int]:
        if self.database is not None:
            rows = await self.database.run("SELECT id FROM t ORDER BY id")
            return [number for (number,) in rows]
        rows = pq.read_table(self.folder, partitioning=None)["id"].to_pylist()
        return sorted(rows)

    async def forget_checkpoints(self) -> None:
        """Make the fences those of a version that noted none."""
        if isinstance(self.database, Sqlite):
            statement = "ALTER TABLE batchqueue_epochs DROP COLUMN checkpoint"
            await self.database.run(statement)
        elif self.database is not None:
            for name in ("epochs", "published"):
                await self.database.run(
                    f"ALTER TABLE IF EXISTS batchqueue_{name} DROP COLUMN checkpoint"
                )
        elif self.folder is not None:
            (manifest,) = self.folder.glob("*/_manifest.json")
            content = json.loads(manifest.read_text())
            assert content.pop("checkpoint", None)
            manifest.write_text(json.dumps(content))


@pytest.fixture(params=["sqlite", "postgres", "parquet"])
async def target(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Target]:
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "parquet":
            folder = tmp_path / "out"
            made = Target(
                lambda: ParquetEpochSink[Any](folder), lambda: ParquetStagedSink(folder)
            )
            made.folder = folder
        elif request.param == "sqlite":
            file = tmp_path / "store.db"
            made = Target(
                lambda: SqliteEpochSink[Any](file, "t", COLUMNS),
                lambda: SqliteStagedSink(file, "t"),
            )
            made.database = Sqlite(file)
        else:
            server = request.getfixturevalue("postgres_dsn")
            found = await stack.enter_async_context(postgres_database(server))
            made = Target(
                lambda: PostgresEpochSink[Any](found.dsn, "t", COLUMNS),
                lambda: PostgresStagedSink(found.dsn, "t"),
            )
            made.database = found
        if made.database is not None:
            await made.database.run("CREATE TABLE t (id BIGINT, word TEXT)")
        yield made


async def by_epochs(target: Target, epoch: Epoch, number: int) -> bool:
    """Do what a `ForeachBatchSink` does; return whether it was new."""
    sink = target.epochs()
    try:
        if await sink.is_committed(epoch):
            return False
        await sink.begin(epoch)
        await sink.write(epoch, [batch(number)])
        await sink.commit(epoch)
    finally:
        if (close := getattr(sink, "close", None)) is not None:
            await close()
    return True


async def by_staged(target: Target, epoch: Epoch, number: int) -> bool:
    """Do what `format("batchqueue")` does; return whether it was new."""
    sink, mine = target.staged(), attempt(epoch=epoch)
    try:
        tokens = []
        if not await sink.is_published(epoch):
            await sink.stage(mine, [batch(number)])
            tokens = [await sink.seal(mine)]
        is_new: bool = await sink.publish(epoch, tokens)
    finally:
        await sink.close()
    return is_new


ways = pytest.mark.parametrize("first", [by_epochs, by_staged])
ways_of_second = pytest.mark.parametrize("second", [by_epochs, by_staged])


@ways
@ways_of_second
async def test_another_checkpoints_batch_is_no_repetition(
    target: Target, first: Way, second: Way
) -> None:
    assert await first(target, MINE, 1)

    with pytest.raises(BatchQueueError) as refused:
        await second(target, OTHER, 2)

    assert str(refused.value) == (
        "query must be one stream's alone, got 'q': its batch 0 was written by the"
        " stream with checkpoint c1, and now comes from that with checkpoint c2, whose"
        " rows are not written. A stream with another checkpoint, or with a new one,"
        " takes another `query`"
    )
    assert await target.ids() == [1]
    assert await second(target, Epoch("q2", 0, checkpoint="c2"), 2)
    assert await target.ids() == [1, 2]


@ways
@ways_of_second
async def test_a_repetition_counts_whatever_way_it_comes(
    target: Target, first: Way, second: Way
) -> None:
    assert await first(target, MINE, 1)

    for again in (MINE, UNKNOWN):
        assert not await second(target, again, 2)

    assert await target.ids() == [1]


@ways
@ways_of_second
async def test_fences_of_versions_that_noted_no_checkpoint_count_for_each(
    target: Target, first: Way, second: Way
) -> None:
    assert await first(target, MINE, 1)
    await target.forget_checkpoints()

    for again in (MINE, OTHER):
        assert not await second(target, again, 2)
    # From here on they are noted.
    assert await second(target, Epoch("q", 1, checkpoint="c1"), 3)
    with pytest.raises(BatchQueueError, match="written by the stream with checkp"):
        await first(target, Epoch("q", 1, checkpoint="c2"), 4)

    assert await target.ids() == [1, 3]


async def test_of_two_streams_at_a_time_the_second_is_refused_at_its_commit(
    target: Target,
) -> None:
    """Neither finds the other's fence as it begins, and nothing is left of it."""
    epochs, staged = target.epochs(), target.staged()
    late = attempt(epoch=OTHER)
    await staged.stage(late, [batch(2)])
    token = await staged.seal(late)
    await epochs.begin(OTHER)
    await epochs.write(OTHER, [batch(3)])
    assert await by_staged(target, MINE, 1)
    try:
        with pytest.raises(BatchQueueError, match="one stream's alone"):
            await staged.publish(OTHER, [token])
        await staged.discard(OTHER, late.run)
        # Parquet's finds its folder gone, and says so.
        with pytest.raises((BatchQueueError, FileNotFoundError)):
            await epochs.commit(OTHER)
        await epochs.abort(OTHER)
    finally:
        await staged.close()
        if (close := getattr(epochs, "close", None)) is not None:
            await close()

    assert await target.ids() == [1]


@ways
@ways_of_second
async def test_a_batch_that_comes_again_under_another_query_is_not_written_twice(
    target: Target, first: Way, second: Way
) -> None:
    """Its driver was killed before Spark's commit, and the option was changed."""
    before, again = (Epoch("q", n, checkpoint="c1") for n in (6, 7))
    assert await first(target, before, 1)
    assert await first(target, again, 2)

    for other in ("renamed", "c1"):
        with pytest.raises(BatchQueueError) as refused:
            await second(target, Epoch(other, 7, checkpoint="c1"), 2)
        assert str(refused.value) == (
            "query must stay what it was until a stream's last batch can't come again,"
            f" got {other!r}: batch 7 of checkpoint c1 was written under query 'q', and"
            " is not written twice. Start the stream once as it was, and give it"
            " another when a batch after that has been written"
        )

    assert not await second(target, again, 2)
    for batch_number in (8, 9):
        renamed = Epoch("renamed", batch_number, checkpoint="c1")
        assert await second(target, renamed, batch_number)
        assert not await first(target, renamed, batch_number)
    assert await target.ids() == [1, 2, 8, 9]


async def test_a_stream_that_gets_a_query_is_told_what_it_had(target: Target) -> None:
    assert await by_epochs(target, Epoch("c1", 0, checkpoint="c1"), 1)

    with pytest.raises(BatchQueueError, match="under no query, but its checkpoint's"):
        await by_staged(target, MINE, 1)

    assert await target.ids() == [1]
    # Another stream, or one whose checkpoint nobody knows, is none of this one's.
    assert await by_staged(target, UNKNOWN, 2)
    assert await by_staged(target, Epoch("q2", 0, checkpoint="c2"), 3)
    assert await target.ids() == [1, 2, 3]


async def test_what_is_equal_has_nothing_to_do_with_a_checkpoint() -> None:
    assert MINE == OTHER == UNKNOWN
    assert {MINE: 1}[OTHER] == 1
    assert not MINE < OTHER
    with pytest.raises(ValueError, match="checkpoint must"):
        Epoch("q", 0, checkpoint="")
