"""Executors' queues and streams are seen beside the driver's queues."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueStats,
    LoopThread,
    Merging,
    SyncBatchQueue,
)
from batchqueue_async.spark import (
    Emit,
    SparkJobs,
    executor_stats,
    map_async,
    map_partitions_with_queue,
    write_partitions,
)
from batchqueue_async.spark.executor_stats import counted, since, together
from batchqueue_async.telemetry import PrometheusCollector, Watched
from batchqueue_async.telemetry._feed import Feed

pytestmark = [pytest.mark.spark, pytest.mark.real_time]

PATIENCE = 20.0


@pytest.fixture
def jobs(spark: SparkSession) -> Iterator[SparkJobs]:
    with SparkJobs(spark) as jobs:
        yield jobs


def named(jobs: SparkJobs, name: str) -> BatchQueueStats | None:
    return next((each for each in jobs.queue_stats() if each.name == name), None)


def until(
    jobs: SparkJobs, name: str, is_there: Callable[[BatchQueueStats], bool]
) -> BatchQueueStats:
    """Wait for what comes on a thread of Spark's, some time later."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = named(jobs, name)
        if found is not None and is_there(found):
            return found
        time.sleep(0.02)
    raise AssertionError(jobs.queue_stats())


# What executors get is pickled by value: they have no tests.


def test_calls_of_map_async_are_counted(spark: SparkSession, jobs: SparkJobs) -> None:
    async def seen_calls(batch: list[dict[str, int]]) -> list[tuple[int]]:
        if batch[0]["id"] == 0:
            msg = "no answer for the first"
            raise LookupError(msg)
        return [(item["id"],) for item in batch]

    rows = spark.range(0, 100, 1, 2)
    map_async(rows, seen_calls, "y BIGINT", max_batch=10, on_error="null").collect()

    stats = next(
        each
        for each in jobs.queue_stats()
        if each.name.endswith("seen_calls (executors)")
    )
    assert stats.name.startswith("map_async ")
    assert (stats.accepted, stats.handled, stats.failed) == (100, 90, 10)
    assert stats.unaccounted == stats.waiting == 0
    (handler,) = stats.handlers
    assert (handler.batches, handler.items) == (10, 100)


def test_each_queue_of_map_partitions_is_counted(
    spark: SparkSession, jobs: SparkJobs
) -> None:
    def open_queue(loop_thread: LoopThread, emit: Emit) -> SyncBatchQueue[Any]:
        merging: Any = Merging(
            key=lambda row: row[0] % 5,
            merge=lambda _, new: new,
            then=emit.many,
            every=3600,
        )
        return loop_thread.open("seen merging", handlers={tuple: merging})

    rows = spark.range(0, 60, 1, 2)
    assert map_partitions_with_queue(rows, open_queue, "id BIGINT").count() == 10

    stats = named(jobs, "seen merging (executors)")
    assert stats is not None
    assert (stats.accepted, stats.handled) == (60, 60)
    assert [each.items for each in stats.handlers] == [60]


def test_a_queue_that_lives_from_task_to_task_tells_of_each_task_once(
    spark: SparkSession, jobs: SparkJobs
) -> None:
    def open_queue(loop_thread: LoopThread) -> SyncBatchQueue[Any]:
        config = BatchQueueConfig[Any](consumer=lambda _: None, buffer_size=700)
        return loop_thread.open("seen writing", config)

    for _ in range(2):
        write_partitions(spark.range(0, 100, 1, 4), open_queue)

    stats = named(jobs, "seen writing (executors)")
    assert stats is not None
    assert (stats.accepted, stats.handled, stats.capacity) == (200, 200, 700)
    assert sum(each.items for each in stats.handlers) == 200


def run_stream(spark: SparkSession, folder: Path, rows: range) -> None:
    """Take the rows of a new file through a query that has a name."""
    numbers = spark.range(rows.start, rows.stop, 1, 1)
    numbers.write.mode("append").parquet(f"{folder}/in")
    query = (
        spark.readStream.schema("id LONG")
        .parquet(f"{folder}/in")
        .writeStream.format("noop")
        .queryName("seen stream")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_streams_rows_are_counted_also_when_it_goes_on(
    spark: SparkSession, jobs: SparkJobs, tmp_path: Path
) -> None:
    run_stream(spark, tmp_path, range(30))
    run_stream(spark, tmp_path, range(30, 50))

    stats = until(jobs, "query seen stream", lambda each: each.handled == 50)
    assert stats.accepted == 50


def test_what_is_closed_listens_no_more(
    spark: SparkSession, jobs: SparkJobs, tmp_path: Path
) -> None:
    with SparkJobs(spark) as closed:
        pass
    closed.close()
    run_stream(spark, tmp_path, range(10))

    until(jobs, "query seen stream", lambda each: each.handled == 10)
    assert named(closed, "query seen stream") is None


def test_they_stand_beside_the_drivers_queues(
    spark: SparkSession, jobs: SparkJobs
) -> None:
    def open_queue(loop_thread: LoopThread) -> SyncBatchQueue[Any]:
        return loop_thread.open(
            "beside", BatchQueueConfig[Any](consumer=lambda _: None)
        )

    write_partitions(spark.range(0, 10, 1, 1), open_queue)
    with LoopThread() as loop_thread:
        local = BatchQueueConfig[int](consumer=lambda _: None)
        queue = loop_thread.open("beside", local)
        queue.produce_many(range(3))
        queue.flush()
        target: list[Watched] = [loop_thread, jobs]
        registry = CollectorRegistry()
        registry.register(PrometheusCollector(target))
        shown = {each["name"]: each for each in Feed(target).sample()["queues"]}
        handled = {
            name: registry.get_sample_value(
                "batchqueue_items_settled_total", {"queue": name, "outcome": "handled"}
            )
            for name in ("beside", "beside (executors)")
        }
    assert handled == {"beside": 3, "beside (executors)": 10}
    assert shown["beside"]["partition_count"] == 1
    assert shown["beside (executors)"]["handled"] == 10
    assert shown["beside (executors)"]["cells"] == []


def test_where_nobody_watches_tasks_have_nothing_to_tell(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_stats, "_ledgers", WeakKeyDictionary())
    rows = spark.range(1)
    assert executor_stats.accumulator_of(rows) is None
    with SparkJobs(spark):
        assert executor_stats.accumulator_of(rows) is not None


def test_what_is_no_session_is_refused() -> None:
    with pytest.raises(TypeError, match="spark must be a SparkSession, got a str"):
        SparkJobs("local")  # type: ignore[arg-type]


def test_what_two_moments_differ_by_is_what_came_between() -> None:
    before = counted("q", handled=5, failed=1, capacity=10)
    now = counted("q", handled=9, failed=1, rejected=2, capacity=10)
    between = since(before, now)
    assert (between.accepted, between.handled, between.failed) == (4, 4, 0)
    assert (between.rejected, between.capacity) == (2, 10)
    assert between.used_fraction == 0.0


def test_names_that_are_made_of_data_do_not_grow_without_bound() -> None:
    report = {f"q{number}": counted("q", handled=1) for number in range(1_000)}
    told = together({}, report)
    assert len(told) == 201
    assert sum(each.handled for each in told.values()) == 1_000
