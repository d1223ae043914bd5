"""Two calls at a time for one attempt of an `EpochSink`."""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks import Epoch, EpochSink
from batchqueue_async.sinks._parquet.staged_file import StagedFile
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from tests.sinks.conftest import NewSink
from tests.sinks.stores import SqliteStore, Store

pytestmark = pytest.mark.real_time

FIRST = Epoch("query", 0)
Call = Callable[[EpochSink[Any]], Coroutine[Any, Any, None]]


def write(sink: EpochSink[Any]) -> Coroutine[Any, Any, None]:
    return sink.write(FIRST, [(2, "two")])


def commit(sink: EpochSink[Any]) -> Coroutine[Any, Any, None]:
    return sink.commit(FIRST)


@pytest.mark.parametrize("turns", [0, 3])
@pytest.mark.parametrize("calls", [(write, commit), (commit, write), (commit, commit)])
async def test_what_returns_is_in_the_epoch(
    store: Store, new_sink: NewSink, calls: tuple[Call, Call], turns: int
) -> None:
    sink = new_sink()
    await sink.begin(FIRST)
    await sink.write(FIRST, [(1, "one")])

    early = asyncio.ensure_future(calls[0](sink))
    for _ in range(turns):
        await asyncio.sleep(0)
    late = asyncio.ensure_future(calls[1](sink))
    await asyncio.wait((early, late))

    assert early.exception() is None
    with pytest.raises(BatchQueueError, match="has not returned"):
        await late
    if calls[0] is write:
        await sink.commit(FIRST)
    written = [(1, "one"), (2, "two")]
    assert await store.rows() == (written if calls[0] is write else written[:1])


async def test_a_commit_that_was_cancelled_is_called_again(
    store: Store, new_sink: NewSink
) -> None:
    sink = new_sink()
    for batch in range(5):
        epoch = Epoch("query", batch)
        await sink.begin(epoch)
        await sink.write(epoch, [(batch, "row")])
        committing = asyncio.ensure_future(sink.commit(epoch))
        for _ in range(batch):
            await asyncio.sleep(0)
        committing.cancel()
        await asyncio.wait((committing,))
        # What is committed already is no longer open.
        with contextlib.suppress(BatchQueueError):
            await sink.commit(epoch)

    assert await store.rows() == [(batch, "row") for batch in range(5)]


def test_a_sealed_file_takes_no_rows(tmp_path: Path) -> None:
    file = StagedFile(tmp_path / "part.parquet", 10, "zstd")
    batch = pa.RecordBatch.from_pydict({"id": [1]})
    file.write([batch])
    file.seal()

    with pytest.raises(BatchQueueError, match="after their file"):
        file.write([batch])


async def test_sqlite_says_that_what_was_written_is_gone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    sink = SqliteEpochSink[Any](store.path, "items", ("id", "name"))
    await sink.begin(FIRST)
    # A backup takes the place of the file, in which the epoch waited.
    shutil.copy(store.path, tmp_path / "backup")
    (tmp_path / "backup").replace(store.path)
    assert not await sink.is_committed(FIRST)

    for call in (write, commit):
        with pytest.raises(BatchQueueError, match="with `begin`"):
            await call(sink)
    await sink.begin(FIRST)
    await write(sink)
    await sink.commit(FIRST)
    await sink.close()
    assert await store.rows() == [(2, "two")]
