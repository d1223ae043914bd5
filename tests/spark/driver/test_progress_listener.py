"""A query's progress and its queue's statistics: one record for both."""

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from batchqueue_async import BatchQueueConfig, LoopThread, SyncBatchQueue
from batchqueue_async.spark import (
    ForeachBatchSink,
    QueryRecord,
    QueueProgressListener,
)
from batchqueue_async.spark.progress_listener import cause_of
from tests.spark.driver.conftest import Collector, Stream

pytestmark = [pytest.mark.spark, pytest.mark.real_time]


class Records:
    """Collects records, which come on a thread of Spark's, some time later."""

    def __init__(self) -> None:
        self.all: list[QueryRecord] = []
        self._came = threading.Condition()

    def __call__(self, record: QueryRecord) -> None:
        with self._came:
            self.all.append(record)
            self._came.notify_all()

    def until(self, event: str) -> QueryRecord:
        deadline = time.monotonic() + 20
        with self._came:
            while not any(record.event == event for record in self.all):
                assert self._came.wait(deadline - time.monotonic()), self.all
            return next(record for record in self.all if record.event == event)


@pytest.fixture
def queue(loop_thread: LoopThread, collector: Collector) -> SyncBatchQueue[Any]:
    return loop_thread.open("rows", BatchQueueConfig[Any](consumer=collector))


@pytest.fixture
def records(spark: SparkSession, queue: SyncBatchQueue[Any]) -> Iterator[Records]:
    records = Records()
    listener = QueueProgressListener(queue, records)
    spark.streams.addListener(listener)
    yield records
    spark.streams.removeListener(listener)


def test_progress_comes_with_the_queues_numbers(
    stream: Stream,
    queue: SyncBatchQueue[Any],
    records: Records,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream.add(range(10))
    with caplog.at_level(logging.INFO, "batchqueue_async"):
        stream.run(ForeachBatchSink(queue))
        records.until("terminated")

    progress = records.until("progress").attributes
    assert progress["spark.query.batch_id"] == 0
    assert progress["spark.query.input_rows"] == 10
    assert progress["batchqueue.name"] == "rows"
    assert progress["batchqueue.handled"] == 10
    assert progress["batchqueue.waiting"] == 0
    assert records.all[0].event == "started"
    for record in records.all:
        assert all(
            isinstance(it, str | int | float) for it in record.attributes.values()
        )
    logged = [record for record in caplog.records if hasattr(record, "attributes")]
    assert len(logged) == len(records.all)
    assert "spark.query.batch_id=0" in caplog.text


def test_a_failed_query_says_why(
    stream: Stream,
    queue: SyncBatchQueue[Any],
    collector: Collector,
    records: Records,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream.add([1])
    collector.error = OSError("disk full")
    with pytest.raises(StreamingQueryException):
        stream.run(ForeachBatchSink(queue))

    ended = records.until("terminated")
    assert "DeliveryError: 1 failure in queue 'rows'" in str(
        ended.attributes["exception.message"]
    )
    assert any(record.levelno == logging.WARNING for record in caplog.records)


def test_a_failing_callback_harms_nothing(  # noqa: PLR0913, PLR0917
    spark: SparkSession,
    stream: Stream,
    queue: SyncBatchQueue[Any],
    collector: Collector,
    records: Records,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: QueryRecord) -> None:
        msg = "no collector"
        raise RuntimeError(msg)

    listener = QueueProgressListener(queue, fail)
    spark.streams.addListener(listener)
    try:
        stream.add([1])
        stream.run(ForeachBatchSink(queue))
        records.until("terminated")
    finally:
        spark.streams.removeListener(listener)

    assert collector.items == [(1,)]
    assert "a query's record is incomplete" in caplog.text


def test_the_cause_is_found_in_a_page_of_stacks() -> None:
    page = (
        "py4j.Py4JException: An exception was raised by the Python Proxy.\n"
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in call\n'
        "batchqueue_async._policies.errors.DeliveryError: 3 failures\n"
        "\n\tat py4j.Protocol.getReturnValue(Protocol.java:476)\n"
        "=== Streaming Query ===\nIdentifier: [id = 1]\n"
    )
    expected = "batchqueue_async._policies.errors.DeliveryError: 3 failures"
    assert cause_of(page) == expected
    assert cause_of("stopped") == "stopped"
    assert cause_of("java.lang.OutOfMemoryError: heap") == (
        "java.lang.OutOfMemoryError: heap"
    )


def test_wrong_arguments_are_refused(queue: SyncBatchQueue[Any]) -> None:
    with pytest.raises(TypeError, match="sync_queue must be a SyncBatchQueue"):
        QueueProgressListener("rows")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"on_record must be callable.*, got 1"):
        QueueProgressListener(queue, 1)  # type: ignore[arg-type]
