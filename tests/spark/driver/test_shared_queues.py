"""Several `ForeachBatchSink`s for one queue: what one leaves is no other's."""

import asyncio
import logging
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from batchqueue_async import BatchQueueConfig, LoopThread
from batchqueue_async.spark import ForeachBatchSink
from tests.spark.driver.conftest import Stream, Table

pytestmark = [pytest.mark.spark, pytest.mark.real_time]

# Far longer than a second query takes to begin an epoch of its own, if it may.
A_MOMENT = 0.5


class Gated(Table):
    """One whose writer keeps its batches until it is let go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.gate = asyncio.Event()
        self.was_entered = threading.Event()

    async def consume(self, batch: list[Any]) -> None:
        self.was_entered.set()
        await self.gate.wait()
        await self.writer.consume(batch)

    async def on_close(self) -> None:
        await self.writer.on_close()


@pytest.fixture
def gated(tmp_path: Path) -> Gated:
    return Gated(tmp_path / "items.db")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_a_new_sink_waits_for_what_an_earlier_one_left_in_the_queue(
    stream: Stream, loop_thread: LoopThread, gated: Gated
) -> None:
    """As in a loop that starts its query again, with a new sink each time."""
    stream.add(range(100))
    queue = loop_thread.open("items", BatchQueueConfig[Any](consumer=gated))

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="TimeoutError"):
            stream.run(ForeachBatchSink(queue, sink=gated.writer, timeout=0.5))
    # The second has not put the rows beside those of the first.
    assert queue.stats().accepted == 100

    loop_thread.portal.call(gated.gate.set)
    stream.run(ForeachBatchSink(queue, sink=gated.writer))
    assert gated.ids() == [*range(100)]


def test_two_queries_with_one_queue_wait_for_each_other(
    spark: SparkSession,
    tmp_path: Path,
    loop_thread: LoopThread,
    gated: Gated,
    pool: ThreadPoolExecutor,
) -> None:
    streams = []
    for number in range(2):
        (folder := tmp_path / f"{number}").mkdir()
        streams.append(Stream(spark, folder))
        streams[-1].add(range(number * 100, number * 100 + 100))
    queue = loop_thread.open("items", BatchQueueConfig[Any](consumer=gated))
    has_come = threading.Event()

    def second(df: DataFrame, batch_id: int) -> None:
        has_come.set()
        ForeachBatchSink(queue, sink=gated.writer)(df, batch_id)

    one = pool.submit(streams[0].run, ForeachBatchSink(queue, sink=gated.writer))
    assert gated.was_entered.wait(60)
    other = pool.submit(streams[1].run, second)
    assert has_come.wait(60)
    loop_thread.portal.call(asyncio.sleep, A_MOMENT)
    loop_thread.portal.call(gated.gate.set)

    one.result(60)
    other.result(60)
    assert gated.ids() == [*range(200)]


def test_a_skip_that_no_restart_explains_is_warned_of(
    stream: Stream,
    loop_thread: LoopThread,
    gated: Gated,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As where a query goes on with a copy of another one's checkpoint."""
    for number in range(3):
        stream.add([number])
    queue = loop_thread.open("items", BatchQueueConfig[Any](consumer=gated))
    loop_thread.portal.call(gated.gate.set)
    sink = ForeachBatchSink(queue, sink=gated.writer)
    stream.run(sink)

    stream.forget_plan(2)
    stream.forget_commit(1)

    with caplog.at_level(logging.INFO, "batchqueue_async"):
        stream.run(sink)
    skips = [each for each in caplog.records if "skipped" in each.message]
    assert [each.levelno for each in skips] == [logging.WARNING, logging.WARNING]
    assert "it was not the last of the run before" in skips[0].message
    assert "another query goes on with a copy of it" in skips[1].message
    assert gated.ids() == [0, 1, 2]


def test_a_checkpoint_of_an_older_state_is_warned_of(
    stream: Stream,
    loop_thread: LoopThread,
    gated: Gated,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    """Its next plan may be all of the rows that came since, of which some are new."""
    stream.add([0])
    queue = loop_thread.open("items", BatchQueueConfig[Any](consumer=gated))
    loop_thread.portal.call(gated.gate.set)
    sink = ForeachBatchSink(queue, sink=gated.writer)
    stream.run(sink)
    shutil.copytree(stream.checkpoint, older := tmp_path / "older")
    for number in (1, 2):
        stream.add([number])
        stream.run(sink)

    shutil.rmtree(stream.checkpoint)
    older.rename(stream.checkpoint)
    with caplog.at_level(logging.INFO, "batchqueue_async"):
        stream.run(sink)

    (first, *_) = [each for each in caplog.records if "skipped" in each.message]
    assert first.levelno == logging.WARNING
    assert "the checkpoint was restored from an older state" in first.message
    assert gated.ids() == [0, 1, 2]


def test_an_epoch_that_the_sink_has_lost_is_warned_of(
    stream: Stream,
    loop_thread: LoopThread,
    gated: Gated,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    """As after a failover to a server that had not got it yet; Spark goes on."""
    stream.add([0])
    queue = loop_thread.open("items", BatchQueueConfig[Any](consumer=gated))
    loop_thread.portal.call(gated.gate.set)
    sink = ForeachBatchSink(queue, sink=gated.writer)
    stream.run(sink)
    older = (tmp_path / "items.db").read_bytes()
    for number in (1, 2):
        stream.add([number])
        stream.run(sink)
    assert not caplog.records

    for number in (3, 4):
        (tmp_path / "restored.db").write_bytes(older)
        (tmp_path / "restored.db").replace(tmp_path / "items.db")
        stream.add([number])
        # One that has seen the last epoch committed, and one of a new process.
        stream.run(sink if number == 3 else ForeachBatchSink(queue, sink=gated.writer))
        (told,) = caplog.records
        assert told.levelno == logging.WARNING
        assert f"but batch {number - 1} of " in told.message
        caplog.clear()
        assert gated.ids() == [0, number]


def test_a_checkpoint_that_is_taken_back_to_the_sink_s_state_brings_the_rest(
    stream: Stream, loop_thread: LoopThread, gated: Gated, tmp_path: Path
) -> None:
    """What the guide says of a sink of an older state."""
    stream.add([0])
    queue = loop_thread.open("items", BatchQueueConfig[Any](consumer=gated))
    loop_thread.portal.call(gated.gate.set)
    stream.run(ForeachBatchSink(queue, sink=gated.writer))
    older = (tmp_path / "items.db").read_bytes()
    for number in (1, 2):
        stream.add([number])
        stream.run(ForeachBatchSink(queue, sink=gated.writer))

    (tmp_path / "restored.db").write_bytes(older)
    (tmp_path / "restored.db").replace(tmp_path / "items.db")
    for number in (1, 2):
        stream.forget_plan(number)
    stream.add([3])
    stream.run(ForeachBatchSink(queue, sink=gated.writer))

    assert gated.ids() == [0, 1, 2, 3]


def test_a_sink_that_is_new_to_a_query_has_lost_nothing(
    stream: Stream,
    loop_thread: LoopThread,
    gated: Gated,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number in range(2):
        stream.add([number])
    stream.run(lambda _df, _batch_id: None)

    stream.add([2])
    queue = loop_thread.open("items", BatchQueueConfig[Any](consumer=gated))
    loop_thread.portal.call(gated.gate.set)
    stream.run(ForeachBatchSink(queue, sink=gated.writer))

    assert not caplog.records
    assert gated.ids() == [2]
