"""A frame into queues on executors: the driver hears what came of every partition."""

import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from batchqueue_async import DeliveryError
from batchqueue_async.spark.items import to_batches, to_dicts
from batchqueue_async.spark.write_partitions import (
    PartitionResult,
    PartitionsFailed,
    WriteResult,
    write_partitions,
)
from tests.spark.executor.probes import OpenFileQueue, open_badly, open_slowly

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.real_time, pytest.mark.spark]


def numbers(batch: "pa.RecordBatch") -> list[Any]:
    values: list[Any] = batch.column(0).to_pylist()
    return values


def test_everything_is_handled_when_it_returns(
    spark: "SparkSession", tmp_path: Path
) -> None:
    open_queue = OpenFileQueue(str(tmp_path), delay=0.02, buffer_size=50)

    result = write_partitions(
        spark.range(0, 1000, 1, 3), open_queue, to_items=numbers, timeout=60
    )

    assert open_queue.handled() == sorted(map(str, range(1000)))
    assert (result.rows, result.items, result.failed) == (1000, 1000, 0)
    assert [(p.partition, p.rows) for p in result.partitions] == [
        (0, 333),
        (1, 333),
        (2, 334),
    ]


def test_items_are_tuples_unless_told_otherwise(
    spark: "SparkSession", tmp_path: Path
) -> None:
    frame = spark.range(0, 2, 1, 1).selectExpr("id", "timestamp_micros(id) AS t")
    tuples, dicts, batches = (
        OpenFileQueue(str(tmp_path / name)) for name in ("tuples", "dicts", "batches")
    )
    for folder in ("tuples", "dicts", "batches"):
        (tmp_path / folder).mkdir()

    write_partitions(frame, tuples)
    write_partitions(frame, dicts, to_items=to_dicts)
    result = write_partitions(frame, batches, to_items=to_batches)

    assert tuples.handled() == ["(0, 0)", "(1, 1)"]
    assert dicts.handled() == ["{'id': 0, 't': 0}", "{'id': 1, 't': 1}"]
    assert (result.rows, result.items) == (2, 1)


def test_a_failing_item_is_counted_and_told(
    spark: "SparkSession", tmp_path: Path
) -> None:
    open_queue = OpenFileQueue(str(tmp_path), poison=7)

    with pytest.raises(PartitionsFailed, match=r"'files'; first: partition ") as told:
        write_partitions(spark.range(0, 20, 1, 2), open_queue, to_items=numbers)

    first, second = told.value.result.partitions
    assert isinstance(told.value, DeliveryError)
    assert told.value.count == first.failed >= 1
    assert "7 can't be handled" in first.failures[0]
    assert (second.items, second.failed) == (10, 0)
    assert set(open_queue.handled()) >= set(map(str, range(10, 20)))


def test_the_next_partition_is_not_blamed(
    spark: "SparkSession", tmp_path: Path
) -> None:
    open_queue = OpenFileQueue(str(tmp_path), poison=7)
    frame = spark.range(0, 20, 1, 1)

    with pytest.raises(PartitionsFailed):
        write_partitions(frame, open_queue, to_items=numbers)

    assert not write_partitions(
        frame.filter("id > 9"), open_queue, to_items=numbers
    ).failed


def test_no_rows_are_no_failure(spark: "SparkSession", tmp_path: Path) -> None:
    result = write_partitions(spark.range(0), OpenFileQueue(str(tmp_path)))

    assert (result.rows, result.items, result.failed) == (0, 0, 0)


def test_what_a_task_raises_fails_the_job(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from pyspark.errors import PythonException  # noqa: PLC0415  # slow

    def broken(_: "pa.RecordBatch") -> Iterator[int]:
        yield 1
        msg = "no items of this"
        raise RuntimeError(msg)

    frame = spark.range(0, 10, 1, 1)
    with pytest.raises(PythonException, match="no items of this"):
        write_partitions(frame, OpenFileQueue(str(tmp_path)), to_items=broken)
    with pytest.raises(PythonException, match="no way to open"):
        write_partitions(frame, open_badly)
    slow = OpenFileQueue(str(tmp_path), delay=0.4, buffer_size=1)
    with pytest.raises(PythonException, match=r"had no room for 0\.01 s"):
        write_partitions(frame, slow, to_items=numbers, timeout=0.01)


def test_wrong_arguments_are_refused_on_the_driver(
    spark: "SparkSession", tmp_path: Path
) -> None:
    open_queue = OpenFileQueue(str(tmp_path))
    frame = spark.range(1)

    with pytest.raises(TypeError, match=r"open_queue must be callable.*, got 1"):
        write_partitions(frame, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"to_items must be callable.*, got 2"):
        write_partitions(frame, open_queue, to_items=2)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError,
        match="timeout must be a number of seconds >= 0, or None for no limit, got -1",
    ):
        write_partitions(frame, open_queue, timeout=-1)
    with pytest.raises(ValueError, match="df must be a batch frame, got a stream"):
        write_partitions(spark.readStream.format("rate").load(), open_queue)


def test_the_error_survives_pickling() -> None:
    result = WriteResult((PartitionResult(4, 10, 10, 2, ("failed 1 (bad)",)),))
    error = pickle.loads(pickle.dumps(PartitionsFailed("q", result)))

    assert error.result == result
    assert str(error) == ("2 failures in queue 'q'; first: partition 4: failed 1 (bad)")


def test_a_flush_that_takes_too_long_says_so(spark: "SparkSession") -> None:
    from pyspark.errors import PythonException  # noqa: PLC0415  # slow

    with pytest.raises(PythonException, match=r"'slow' was not flushed within 0\.1 s"):
        write_partitions(spark.range(0, 3, 1, 1), open_slowly, timeout=0.1)


def test_ctrl_c_ends_the_job(spark: "SparkSession", tmp_path: Path) -> None:
    """PySpark's own handler of SIGINT ends no job that its thread waits for."""
    tracker, numbered = spark.sparkContext.statusTracker(), spark.range(0, 64, 1, 64)
    open_queue = OpenFileQueue(str(tmp_path), delay=1.0)  # half a minute in all

    def interrupt() -> None:
        while not tracker.getActiveJobsIds():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        write_partitions(numbered, open_queue)
    thread.join()

    assert tracker.getActiveJobsIds() == []
