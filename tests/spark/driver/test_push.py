"""A frame goes into a queue: as items of any kind, no faster than they are handled."""

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueError,
    DeliveryError,
    LoopThread,
    SyncBatchQueue,
    WhenFull,
)
from batchqueue_async.spark import (
    PushProgress,
    push,
    to_batches,
    to_dicts,
    to_objects,
    whole_frame,
)
from tests.spark.driver.conftest import Collector

pytestmark = [pytest.mark.spark, pytest.mark.real_time]

HOUR = 3600 * 1_000_000


@pytest.fixture
def df(spark: SparkSession) -> DataFrame:
    return spark.range(0, 30, 1, 3).selectExpr(
        "id", "'n' || id AS name", "timestamp_micros(id * 3600 * 1000000) AS at"
    )


@pytest.fixture
def queue(loop_thread: LoopThread, collector: Collector) -> SyncBatchQueue[Any]:
    return loop_thread.open("rows", BatchQueueConfig[Any](consumer=collector))


def test_rows_become_tuples(
    df: DataFrame, queue: SyncBatchQueue[Any], collector: Collector
) -> None:
    assert push(df, queue) == 30
    assert collector.items == [(n, f"n{n}", n * HOUR) for n in range(30)]


def test_many_small_partitions_may_come_in_one_job(
    spark: SparkSession, queue: SyncBatchQueue[Any], collector: Collector
) -> None:
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    df = spark.range(0, 20, 1, 20)

    assert push(df, queue, fetch=whole_frame) == 20

    after = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    assert len({*after} - {*jobs}) == 1
    assert collector.items == [(n,) for n in range(20)]


def test_many_small_partitions_share_jobs(
    spark: SparkSession, queue: SyncBatchQueue[Any], collector: Collector
) -> None:
    """A job for each took minutes for hundreds of them."""
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup("shared")
    df = spark.range(0, 200, 1, 100)
    spark.sparkContext.setJobGroup("shared", "the caller's own")
    try:
        assert push(df, queue) == 200
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

    after = spark.sparkContext.statusTracker().getJobIdsForGroup("shared")
    assert len({*after} - {*jobs}) == 7  # of 1, 2, 4, 8, 16, 32 and 37 partitions
    assert collector.items == [(n,) for n in range(200)]


def test_rows_become_dicts(
    df: DataFrame, queue: SyncBatchQueue[Any], collector: Collector
) -> None:
    assert push(df.limit(2), queue, to_items=to_dicts) == 2
    assert collector.items[1] == {"id": 1, "name": "n1", "at": HOUR}


class Named(NamedTuple):
    number: int
    name: str
    at: int


@dataclass(slots=True)
class Plain:
    number: int
    name: str
    at: int


@pytest.mark.parametrize("kind", [Named, Plain])
def test_rows_become_typed_items(
    loop_thread: LoopThread, df: DataFrame, collector: Collector, kind: type
) -> None:
    queue = loop_thread.open("typed", handlers={kind: collector})

    assert push(df, queue, to_items=to_objects(kind)) == 30
    assert collector.items[7] == kind(7, "n7", 7 * HOUR)


def test_record_batches_are_items(
    df: DataFrame, queue: SyncBatchQueue[Any], collector: Collector
) -> None:
    assert push(df, queue, to_items=to_batches) == 3

    assert [batch.num_rows for batch in collector.items] == [10, 10, 10]
    assert collector.items[0].schema.field("at").type == pa.timestamp("us", "UTC")


def test_a_filter_may_leave_nothing(
    df: DataFrame, queue: SyncBatchQueue[Any], collector: Collector
) -> None:
    assert push(df.where("id < 0"), queue) == 0
    assert push(df, queue, to_items=lambda _: []) == 0
    assert collector.items == []


def test_progress_is_reported(df: DataFrame, queue: SyncBatchQueue[Any]) -> None:
    reports: list[PushProgress] = []

    push(df, queue, on_progress=reports.append)

    assert [report.rows for report in reports] == [10, 20, 30]
    assert [report.items for report in reports] == [10, 20, 30]
    assert 0 < reports[0].seconds <= reports[-1].seconds


def test_what_failed_is_told(
    df: DataFrame, queue: SyncBatchQueue[Any], collector: Collector
) -> None:
    collector.error = OSError("disk full")
    with pytest.raises(DeliveryError) as raised:
        push(df, queue)

    assert raised.value.count == 30
    assert raised.value.failures[0].item == (0, "n0", 0)
    assert raised.value.failures[0].error is collector.error

    collector.error = None
    assert push(df, queue) == 30


def test_spark_goes_no_faster_than_the_handler(
    spark: SparkSession, loop_thread: LoopThread
) -> None:
    gate = asyncio.Event()
    computed = spark.sparkContext.accumulator(0)

    def note(batches: Any) -> Any:  # noqa: ANN401
        computed.add(1)
        yield from batches

    async def wait(_: list[Any]) -> None:
        await gate.wait()

    config = BatchQueueConfig[Any](consumer=wait, buffer_size=10)
    queue = loop_thread.open("slow", config)
    df = spark.range(0, 800, 1, 40).mapInArrow(note, "id LONG")
    pushing = threading.Thread(target=push, args=(df, queue))
    pushing.start()
    try:
        while not queue.stats().waiting:
            time.sleep(0.05)
        time.sleep(1.5)
        # The first is in the queue. Of the next job's two one is pushed, and the job of
        # four after that is the one that Spark runs ahead.
        assert computed.value <= 1 + 2 + 4
        stats = queue.stats()
        assert stats.waiting <= 10
        assert stats.accepted <= 20
    finally:
        loop_thread.portal.call(gate.set)
        pushing.join()
    assert queue.stats().handled == 800


@pytest.mark.slow
def test_it_takes_no_longer_than_asked(df: DataFrame, loop_thread: LoopThread) -> None:
    gate = asyncio.Event()

    async def wait(_: list[Any]) -> None:
        await gate.wait()

    config = BatchQueueConfig[Any](consumer=wait, buffer_size=5)
    queue = loop_thread.open("stuck", config)
    with pytest.raises(TimeoutError, match=r"'stuck' after \d+ items: the 2.0 s"):
        push(df, queue, timeout=2.0)
    loop_thread.portal.call(gate.set)


def test_a_closed_queue_is_told(df: DataFrame, queue: SyncBatchQueue[Any]) -> None:
    queue.shutdown()
    with pytest.raises(BatchQueueError, match=r"'rows' after 0 items .* is closed"):
        push(df, queue)


def test_a_queue_that_drops_is_told(df: DataFrame, loop_thread: LoopThread) -> None:
    gate = asyncio.Event()

    async def wait(_: list[Any]) -> None:
        await gate.wait()

    config = BatchQueueConfig[Any](
        consumer=wait, buffer_size=5, when_full=WhenFull.DROP_NEWEST
    )
    queue = loop_thread.open("drops", config)
    with pytest.raises(BatchQueueError, match="with DROP_NEWEST a frame cannot arrive"):
        push(df, queue)
    loop_thread.portal.call(gate.set)


def test_what_goes_wrong_in_spark_ends_it(
    spark: SparkSession, queue: SyncBatchQueue[Any]
) -> None:
    bad = spark.range(10).selectExpr("raise_error('no such row') AS x")
    with pytest.raises((PySparkException, Exception), match="no such row"):
        push(bad, queue)
    assert push(spark.range(3), queue) == 3


def test_wrong_arguments_are_refused(df: DataFrame, queue: SyncBatchQueue[Any]) -> None:
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (TypeError, "sync_queue must be a SyncBatchQueue", {"sync_queue": None}),
        (TypeError, "to_items must be callable.*, got 'x'", {"to_items": "x"}),
        (TypeError, "on_progress must be callable", {"on_progress": 1}),
        (
            ValueError,
            "timeout must be a number of seconds >= 0, or None for no limit, got -1",
            {"timeout": -1},
        ),
    ]
    for error, says, arguments in wrong:
        with pytest.raises(error, match=says):
            push(df, **{"sync_queue": queue, **arguments})
    with pytest.raises(TypeError, match=r"make must be callable.*, got 3"):
        to_objects(3)  # type: ignore[arg-type]
