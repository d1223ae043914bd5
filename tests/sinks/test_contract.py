"""What every `EpochSink` keeps, tried on SQLite, PostgreSQL and Parquet files."""

import asyncio
import contextlib
from typing import Any

import pyarrow as pa
import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks import Epoch, EpochSink, EpochWriter
from tests.sinks.conftest import NewSink
from tests.sinks.stores import Store

pytestmark = pytest.mark.real_time

FIRST, SECOND = Epoch("query", 0), Epoch("query", 1)
OTHER = Epoch("another query", 0)


async def deliver(sink: EpochSink[Any], epoch: Epoch, items: list[Any]) -> None:
    await sink.begin(epoch)
    await sink.write(epoch, items)
    await sink.commit(epoch)


async def test_an_epoch_becomes_visible_as_a_whole(
    store: Store, new_sink: NewSink
) -> None:
    sink = new_sink()
    assert isinstance(sink, EpochSink)

    await sink.begin(FIRST)
    await sink.write(FIRST, [(1, "one"), (2, "two")])
    await sink.write(FIRST, [(3, "three")])
    assert await store.rows() == []
    assert not await sink.is_committed(FIRST)

    await sink.commit(FIRST)
    assert await store.rows() == [(1, "one"), (2, "two"), (3, "three")]
    assert await sink.is_committed(FIRST)
    assert await store.remains() == []


async def test_another_process_finds_the_fence(new_sink: NewSink) -> None:
    await deliver(new_sink(), FIRST, [(1, "one")])

    assert await new_sink().is_committed(FIRST)
    assert not await new_sink().is_committed(SECOND)
    assert not await new_sink().is_committed(OTHER)


async def test_epochs_and_queries_do_not_mix(store: Store, new_sink: NewSink) -> None:
    sink = new_sink()
    for epoch in (FIRST, SECOND, OTHER):
        await sink.begin(epoch)
    await sink.write(FIRST, [(1, "first")])
    await sink.write(SECOND, [(2, "second")])
    await sink.write(OTHER, [(3, "other")])

    await sink.commit(SECOND)
    await sink.abort(OTHER)
    assert await store.rows() == [(2, "second")]

    await sink.commit(FIRST)
    assert await store.rows() == [(1, "first"), (2, "second")]
    assert await store.remains() == []


async def test_an_epoch_may_be_empty(store: Store, new_sink: NewSink) -> None:
    sink = new_sink()
    await sink.begin(FIRST)
    await sink.commit(FIRST)

    assert await sink.is_committed(FIRST)
    assert await store.rows() == []


async def test_items_may_come_from_a_generator(store: Store, new_sink: NewSink) -> None:
    """A handler's own code may write what it has not put into a list."""
    sink = EpochWriter(new_sink())
    await sink.begin(FIRST)
    made: Any = ((number, "made") for number in range(3))
    await sink.consume(made)
    written: Any = map(tuple, [(3, "written"), (4, "written")])
    await sink.write(FIRST, written)
    await sink.commit(FIRST)

    assert [number for number, _ in await store.rows()] == [*range(5)]
    assert sink.written == 3


async def test_an_aborted_attempt_leaves_nothing(
    store: Store, new_sink: NewSink
) -> None:
    sink = new_sink()
    await sink.begin(FIRST)
    await sink.write(FIRST, [(1, "one")])
    await sink.abort(FIRST)
    await sink.abort(FIRST)

    assert await store.rows() == []
    assert await store.remains() == []
    assert not await sink.is_committed(FIRST)

    await deliver(sink, FIRST, [(1, "again")])
    assert await store.rows() == [(1, "again")]


@pytest.mark.parametrize("same_process", [True, False])
async def test_a_new_attempt_discards_what_the_last_one_wrote(
    store: Store, new_sink: NewSink, *, same_process: bool
) -> None:
    died = new_sink()
    await died.begin(FIRST)
    await died.write(FIRST, [(1, "lost with its process")])

    await deliver(died if same_process else new_sink(), FIRST, [(1, "one")])

    assert await store.rows() == [(1, "one")]
    assert await store.remains() == []


async def test_a_process_that_was_thought_dead_changes_nothing(
    store: Store, new_sink: NewSink
) -> None:
    late = new_sink()
    await late.begin(FIRST)
    await late.write(FIRST, [(1, "late")])
    await deliver(new_sink(), FIRST, [(1, "in time")])

    # Its attempt is gone or behind the fence: it may learn of it, or not.
    with contextlib.suppress(Exception):
        await late.write(FIRST, [(2, "late")])
        await late.commit(FIRST)

    assert await store.rows() == [(1, "in time")]
    await late.abort(FIRST)
    assert await store.remains() == []


async def test_an_epoch_that_was_not_begun_is_refused(new_sink: NewSink) -> None:
    sink = new_sink()
    for wrong in (sink.write(FIRST, [(1, "one")]), sink.commit(FIRST)):
        with pytest.raises(BatchQueueError, match="batch 0 of query query is not open"):
            await wrong
    await deliver(sink, FIRST, [(1, "one")])
    with pytest.raises(BatchQueueError, match="is not open"):
        await sink.commit(FIRST)


@pytest.mark.parametrize(
    "bad,says",
    [
        ((1,), r"row of 2 values \('id', 'name'\), got a tuple of 1$"),
        (
            {"id": 1},
            r"mapping of \('id', 'name'\), got a dict of 1 without \['name'\]$",
        ),
        (7, "a tuple, a list, a mapping or a record batch without to_row, got an int"),
    ],
)
async def test_a_failed_write_adds_nothing_or_stops_the_commit(
    store: Store, new_sink: NewSink, bad: object, says: str
) -> None:
    sink = new_sink()
    await sink.begin(FIRST)
    await sink.write(FIRST, [(1, "one")])
    with pytest.raises((TypeError, ValueError), match=says):
        await sink.write(FIRST, [(2, "two"), bad])

    with contextlib.suppress(BatchQueueError):
        await sink.commit(FIRST)
    assert await store.rows() == (
        [(1, "one")] if await sink.is_committed(FIRST) else []
    )


async def test_a_cancelled_write_adds_nothing_or_stops_the_commit(
    store: Store, new_sink: NewSink
) -> None:
    rows = [(number, "row") for number in range(20_000)]
    for delay in (0.0, 0.001, 0.01):
        sink = new_sink()
        await sink.begin(FIRST)
        await sink.write(FIRST, rows[:1])
        writing = asyncio.ensure_future(sink.write(FIRST, rows[1:]))
        await asyncio.sleep(delay)
        writing.cancel()
        await asyncio.wait((writing,))

        with contextlib.suppress(BatchQueueError):
            await sink.commit(FIRST)
        if await sink.is_committed(FIRST):
            assert await store.rows() == (rows[:1] if writing.cancelled() else rows)
            return
        assert await store.rows() == []


async def test_writes_may_run_at_once(store: Store, new_sink: NewSink) -> None:
    sink = new_sink()
    await sink.begin(FIRST)
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(sink.write(FIRST, [(number, "row")]))
    await sink.commit(FIRST)

    assert await store.rows() == [(number, "row") for number in range(20)]


async def test_items_are_tuples_mappings_or_record_batches(
    store: Store, new_sink: NewSink
) -> None:
    # The columns of a mapping or a record batch may come in any order.
    batch = pa.RecordBatch.from_pydict({"name": ["three", None], "id": [3, 4]})
    items = [(1, "one"), {"name": "two", "id": 2}, batch, [5, "five"]]
    await deliver(new_sink(), FIRST, items)

    assert [number for number, _ in await store.rows()] == [1, 2, 3, 4, 5]
    assert (await store.rows())[3] == (4, None)


async def test_two_processes_that_commit_at_once_commit_once(
    store: Store, new_sink: NewSink
) -> None:
    for batch in range(5):
        epoch, sinks = Epoch("query", batch), (new_sink(), new_sink())
        for sink in sinks:
            with contextlib.suppress(Exception):
                await sink.begin(epoch)
                await sink.write(epoch, [(batch, "row")])
        await asyncio.gather(
            *(sink.commit(epoch) for sink in sinks), return_exceptions=True
        )
        assert await sinks[0].is_committed(epoch)
        for sink in sinks:
            with contextlib.suppress(Exception):
                await sink.abort(epoch)

    assert await store.rows() == [(batch, "row") for batch in range(5)]


async def test_a_writer_passes_batches_into_the_open_epoch(
    store: Store, new_sink: NewSink
) -> None:
    writer = EpochWriter(new_sink())
    await writer.begin(FIRST)
    await writer.consume([(1, "one")])
    await writer.commit(FIRST)
    assert writer.written == 1

    assert await store.rows() == [(1, "one")]
    await writer.on_close()
