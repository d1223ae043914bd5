"""Micro-batches through a queue into a sink: each one exactly once."""

import asyncio
import logging
import pickle
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import inheritable_thread_target
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from batchqueue_async import BatchQueueConfig, BatchQueueError, LoopThread
from batchqueue_async.spark import (
    Epoch,
    EpochWriter,
    ForeachBatchSink,
    arrow_batches,
)
from tests.spark.driver.conftest import Collector, Stream, Table

pytestmark = [pytest.mark.spark, pytest.mark.real_time]


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    table = Table(tmp_path / "items.db")
    yield table
    # Some handlers here are around it, and no queue knows it.
    asyncio.run(table.writer.on_close())


class Summing:
    """A merge cache: holds everything back until a flush."""

    def __init__(self, writer: EpochWriter[Any]) -> None:
        self._writer = writer
        self.sums: Counter[int] = Counter()
        self.error: Exception | None = None

    async def consume(self, batch: list[tuple[int]]) -> None:
        for (number,) in batch:
            self.sums[number % 2] += number

    async def on_flush(self) -> None:
        if self.error is not None:
            raise self.error
        sums, self.sums = self.sums, Counter()
        await self._writer.consume([(total,) for total in sums.values()])


def writing(loop_thread: LoopThread, table: Table) -> ForeachBatchSink[Any]:
    config = BatchQueueConfig[Any](consumer=table.writer)
    queue = loop_thread.open("items", config)
    return ForeachBatchSink(queue, sink=table.writer)


def test_each_micro_batch_is_written(
    stream: Stream, loop_thread: LoopThread, table: Table
) -> None:
    stream.add(range(100))
    stream.add(range(100, 250))
    sink = writing(loop_thread, table)

    stream.run(sink)
    assert table.ids() == [*range(250)]

    stream.add([1000])
    stream.run(sink)
    assert table.ids() == [*range(250), 1000]


def test_what_spark_delivers_again_changes_nothing(
    stream: Stream,
    loop_thread: LoopThread,
    table: Table,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream.add(range(100))
    sink = writing(loop_thread, table)
    stream.run(sink, partitions=2)
    stream.forget_commit(0)

    with caplog.at_level(logging.INFO, "batchqueue_async"):
        stream.run(sink, partitions=3)

    assert "is committed already: skipped" in caplog.text
    assert table.ids() == [*range(100)]


def test_a_second_frame_of_a_micro_batch_is_not_lost_in_silence(
    stream: Stream, loop_thread: LoopThread, table: Table
) -> None:
    """Its fence is there; what was committed under it are other rows."""
    stream.add(range(10))
    sink = writing(loop_thread, table)

    def in_two(df: DataFrame, batch_id: int) -> None:
        sink(df.where("id < 5"), batch_id)
        sink(df.where("id < 5"), batch_id)  # as one does who tries again
        sink(df.where("id >= 5"), batch_id)

    told = "batch 0 of query .* was committed with another frame: a micro-batch has one"
    with pytest.raises(StreamingQueryException, match=told):
        stream.run(in_two)
    assert table.ids() == [*range(5)]


def test_a_failure_fails_the_micro_batch_which_comes_again(
    stream: Stream, loop_thread: LoopThread, table: Table
) -> None:
    fails = [True]

    def to_items(batch: pa.RecordBatch) -> Iterator[tuple[int]]:
        for number in batch.column(0).to_pylist():
            # The first record batch is in the queue by then.
            if fails and number >= 60:
                fails.clear()
                msg = "no more"
                raise RuntimeError(msg)
            yield (number,)

    stream.add(range(100))
    config = BatchQueueConfig[Any](consumer=table.writer)
    queue = loop_thread.open("items", config)
    sink = ForeachBatchSink(queue, to_items, table.writer, fetch=arrow_batches)

    with pytest.raises(StreamingQueryException, match="no more"):
        stream.run(sink)
    assert table.ids() == []

    stream.run(sink, partitions=1)
    assert table.ids() == [*range(100)]


def test_items_that_fail_fail_the_micro_batch(
    stream: Stream, loop_thread: LoopThread, collector: Collector
) -> None:
    stream.add(range(10))
    queue = loop_thread.open("items", BatchQueueConfig[Any](consumer=collector))
    sink = ForeachBatchSink(queue)

    collector.error = OSError("disk full")
    with pytest.raises(StreamingQueryException, match="10 failures in queue 'items'"):
        stream.run(sink)

    # Without a sink it is at least once.
    collector.error = None
    stream.run(sink)
    assert sorted(collector.items) == [(number,) for number in range(10)]


def test_caches_are_written_within_the_epoch(
    stream: Stream, loop_thread: LoopThread, table: Table
) -> None:
    stream.add([1, 2, 3, 4])
    stream.add([11, 12])
    summing = Summing(table.writer)
    queue = loop_thread.open("sums", BatchQueueConfig[Any](consumer=summing))

    stream.run(ForeachBatchSink(queue, sink=table.writer))

    assert table.ids() == [4, 6, 11, 12]


def test_what_a_cache_holds_of_a_failed_attempt_is_not_counted_twice(
    stream: Stream, loop_thread: LoopThread, table: Table
) -> None:
    stream.add([1, 2, 3, 4])
    summing = Summing(table.writer)
    queue = loop_thread.open("sums", BatchQueueConfig[Any](consumer=summing))
    sink = ForeachBatchSink(queue, sink=table.writer)

    summing.error = OSError("database gone")
    with pytest.raises(StreamingQueryException, match="database gone"):
        stream.run(sink)
    assert summing.sums == {0: 6, 1: 4}
    with pytest.raises(StreamingQueryException, match="still holds what failed"):
        stream.run(sink)

    summing.error = None
    stream.run(sink)
    assert table.ids() == [4, 6]


def test_a_handler_that_writes_nothing_is_warned_about(
    stream: Stream,
    loop_thread: LoopThread,
    table: Table,
    collector: Collector,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream.add([1])
    queue = loop_thread.open("items", BatchQueueConfig[Any](consumer=collector))

    stream.run(ForeachBatchSink(queue, sink=table.writer))

    assert "1 items were handled, but none was written into the epoch" in caplog.text


def test_the_epoch_is_the_querys_id_and_the_batch(
    stream: Stream, loop_thread: LoopThread, table: Table
) -> None:
    epochs: list[Epoch | None] = []

    async def look(batch: list[Any]) -> None:
        epochs.append(table.writer.epoch)
        await table.writer.consume(batch)

    stream.add([1])
    stream.add([2])
    queue = loop_thread.open("items", BatchQueueConfig[Any](consumer=look))
    stream.run(ForeachBatchSink(queue, sink=table.writer))

    metadata = (stream.checkpoint / "metadata").read_text()
    assert [epoch.batch for epoch in epochs if epoch] == [0, 1]
    assert all(epoch.query in metadata for epoch in epochs if epoch)
    # What a fence notes, for `format("batchqueue")` under a `query` of this name.
    assert all(epoch.checkpoint == epoch.query for epoch in epochs if epoch)


def test_a_thread_of_the_functions_own_needs_sparks_settings(
    stream: Stream, loop_thread: LoopThread, table: Table
) -> None:
    """As where several tables are filled at the same time."""
    stream.add([1, 2])
    sink = writing(loop_thread, table)
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(StreamingQueryException, match="inheritable_thread_target"):
            stream.run(lambda *args: pool.submit(sink, *args).result())

        def in_thread(df: DataFrame, batch_id: int) -> None:
            inheriting = inheritable_thread_target(df.sparkSession)
            pool.submit(inheriting(sink), df, batch_id).result()

        stream.run(in_thread)
    assert table.ids() == [1, 2]


def test_a_closed_queue_fails_the_micro_batch(
    stream: Stream, loop_thread: LoopThread, collector: Collector
) -> None:
    stream.add([1])
    queue = loop_thread.open("items", BatchQueueConfig[Any](consumer=collector))
    queue.shutdown()

    with pytest.raises(StreamingQueryException, match="accepts no more: it is closed"):
        stream.run(ForeachBatchSink(queue))


def test_a_slow_handler_is_waited_for_no_longer_than_asked(
    stream: Stream, loop_thread: LoopThread
) -> None:
    gate = asyncio.Event()

    async def slow(_: list[Any]) -> None:
        await gate.wait()

    stream.add([1])
    queue = loop_thread.open("items", BatchQueueConfig[Any](consumer=slow))

    with pytest.raises(StreamingQueryException, match="TimeoutError"):
        stream.run(ForeachBatchSink(queue, timeout=0.5))
    loop_thread.portal.call(gate.set)


def test_it_cannot_leave_its_process(
    spark: SparkSession, loop_thread: LoopThread, collector: Collector
) -> None:
    queue = loop_thread.open("items", BatchQueueConfig[Any](consumer=collector))
    sink = ForeachBatchSink(queue)

    with pytest.raises(BatchQueueError, match="Spark Connect"):
        pickle.dumps(sink)
    with pytest.raises(BatchQueueError, match="must be a micro-batch of foreachBatch"):
        sink(spark.range(1), 0)
    # What the server of Spark Connect would call it with, if it got that far.
    remote = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})
    with pytest.raises(BatchQueueError, match="got a frame of Spark Connect"):
        sink(remote(), 0)


def test_wrong_arguments_are_refused(
    loop_thread: LoopThread, collector: Collector
) -> None:
    queue = loop_thread.open("items", BatchQueueConfig[Any](consumer=collector))
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (TypeError, "sync_queue must be a SyncBatchQueue", {"sync_queue": "items"}),
        (TypeError, "to_items must be callable.*, got 1", {"to_items": 1}),
        (TypeError, "sink must be an EpochSink, got 'db'", {"sink": "db"}),
        (TypeError, "fetch must be callable", {"fetch": None}),
        (ValueError, "timeout must be a number of seconds >= 0", {"timeout": -1}),
    ]
    for error, says, arguments in wrong:
        with pytest.raises(error, match=says):
            ForeachBatchSink(**{"sync_queue": queue, **arguments})
