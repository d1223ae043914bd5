"""What ends `push` ends the stages that Spark runs before the rows come, too."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueError,
    LoopThread,
    SyncBatchQueue,
)
from batchqueue_async.spark import push, whole_frame, write_partitions

pytestmark = [pytest.mark.spark, pytest.mark.real_time]


def shuffled(spark: SparkSession, begun: Path) -> DataFrame:
    """Return a frame whose shuffle takes half a minute."""

    # Nested, so that it travels by value.
    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begun.touch()
        for batch in batches:
            time.sleep(30)
            yield batch

    return spark.range(0, 2, 1, 1).mapInArrow(slowly, "id BIGINT").repartition(2)


def on_a_thread(begun: Path, strike: Callable[[], object]) -> threading.Thread:
    """Call it once the shuffle has begun."""

    def run() -> None:
        while not begun.exists():
            time.sleep(0.01)
        strike()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


async def _nothing(_: list[tuple[int]]) -> None: ...


def test_ctrl_c_ends_the_job_before_a_shuffle(
    spark: SparkSession, loop_thread: LoopThread, tmp_path: Path
) -> None:
    """PySpark's own handler of SIGINT ends no job that its thread waits for."""
    begun = tmp_path / "begun"
    queue = loop_thread.open("rows", handlers={tuple: _nothing})
    thread = on_a_thread(begun, lambda: os.kill(os.getpid(), signal.SIGINT))

    with pytest.raises(KeyboardInterrupt):
        push(shuffled(spark, begun), queue)
    thread.join()

    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []


def test_a_session_that_is_stopped_before_a_shuffle_is_named(
    spark: SparkSession,
    loop_thread: LoopThread,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, in_jvm = tmp_path / "begun", spark.sparkContext._jsc
    queue = loop_thread.open("rows", handlers={tuple: _nothing})
    assert in_jvm is not None

    def stop() -> None:
        # All that `stop` leaves of it.
        monkeypatch.setattr(spark.sparkContext, "_jsc", None)
        in_jvm.sc().cancelAllJobs()

    thread = on_a_thread(begun, stop)
    with pytest.raises(BatchQueueError, match="session was stopped before all rows of"):
        push(shuffled(spark, begun), queue)
    thread.join()


class Stopping:
    """Java's context in the middle of its `stop`: PySpark lets go of it afterwards."""

    def __init__(self, in_jvm: Any) -> None:  # noqa: ANN401 - Py4J's
        self._in_jvm = in_jvm

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - Py4J's
        return getattr(self._in_jvm, name)

    def sc(self) -> "Stopping":
        return Stopping(self._in_jvm.sc())

    def isStopped(self) -> bool:  # noqa: N802 - Java's name
        return True


def open_nothing(loop_thread: LoopThread) -> SyncBatchQueue[tuple[int]]:
    return loop_thread.open("rows", BatchQueueConfig(consumer=_nothing))


def by_push(df: DataFrame, loop_thread: LoopThread) -> None:
    push(df, open_nothing(loop_thread))


def by_whole_frame(df: DataFrame, loop_thread: LoopThread) -> None:
    push(df, open_nothing(loop_thread), fetch=whole_frame)


def by_write_partitions(df: DataFrame, _: LoopThread) -> None:
    write_partitions(df, open_nothing)


@pytest.mark.parametrize("way", [by_push, by_whole_frame, by_write_partitions])
def test_a_session_that_is_just_being_stopped_is_named(
    spark: SparkSession,
    loop_thread: LoopThread,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[DataFrame, LoopThread], None],
) -> None:
    """Its jobs end first: what Java said of them came now and then, or always."""
    begun, in_jvm = tmp_path / "begun", spark.sparkContext._jsc
    assert in_jvm is not None

    def stop() -> None:
        monkeypatch.setattr(spark.sparkContext, "_jsc", Stopping(in_jvm))
        in_jvm.sc().cancelAllJobs()

    thread = on_a_thread(begun, stop)
    with pytest.raises(BatchQueueError, match="session was stopped before all rows of"):
        way(shuffled(spark, begun), loop_thread)
    thread.join()
    with pytest.raises(ValueError, match="df must belong to a session that runs"):
        write_partitions(spark.range(1), open_nothing)
