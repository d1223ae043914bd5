"""What is no frame, or one that Spark can't send, is refused before anything runs."""

import threading
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pandas
import pytest
from pyspark import InheritableThread

from batchqueue_async import BatchQueueError, LoopThread
from batchqueue_async.spark import (
    ForeachBatchSink,
    arrow_batches,
    map_async,
    map_partitions_with_queue,
    push,
    whole_frame,
    write_partitions,
)
from tests.spark.calls.in_spark import tenfold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.real_time, pytest.mark.spark]

_numbers = count()
Use = Callable[[Any, LoopThread], object]


def pushed(df: Any, loop_thread: LoopThread, **others: Any) -> object:  # noqa: ANN401
    queue = loop_thread.open(f"{next(_numbers)}", handlers={tuple: _nothing})
    return push(df, queue, **others)


async def _nothing(_: list[Any]) -> None: ...


def opened(*_: object) -> Any:  # noqa: ANN401 - never called
    raise NotImplementedError


WAYS: dict[str, Use] = {
    "push": pushed,
    "arrow_batches": lambda df, _: arrow_batches(df),
    "whole_frame": lambda df, _: whole_frame(df),
    "write_partitions": lambda df, _: write_partitions(df, opened),
    "map_async": lambda df, _: map_async(df, tenfold, "y INT"),
    "map_partitions": lambda df, _: map_partitions_with_queue(df, opened, "y INT"),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_frame_of_spark_s_is_named(
    spark: "SparkSession", loop_thread: LoopThread, way: str
) -> None:
    for wrong, sentence in (
        ("sales", "df must be a DataFrame, got 'sales'"),
        (pandas.DataFrame({"a": [1]}), "df must be a DataFrame of Spark's, got one of"),
    ):
        with pytest.raises(TypeError, match=sentence):
            WAYS[way](wrong, loop_thread)


@pytest.mark.parametrize("way", WAYS)
def test_months_which_arrow_in_python_lacks_are_named(
    spark: "SparkSession", loop_thread: LoopThread, way: str
) -> None:
    frame = spark.sql("SELECT 1 AS id, ARRAY(INTERVAL '2-3' YEAR TO MONTH) AS spans")

    with pytest.raises(TypeError, match="got column 'spans' of type ARRAY<INTERVAL YE"):
        WAYS[way](frame, loop_thread)

    # What the message proposes.
    cast = frame.selectExpr("CAST(CAST(spans[0] AS INTERVAL MONTH) AS INT) AS months")
    assert [batch.to_pylist() for batch in arrow_batches(cast)] == [[{"months": 27}]]


@pytest.mark.parametrize("way", ["push", "arrow_batches", "whole_frame"])
def test_an_array_of_no_type_is_named(
    spark: "SparkSession", loop_thread: LoopThread, way: str
) -> None:
    frame = spark.sql("SELECT 1 AS id, ARRAY() AS tags")

    with pytest.raises(ValueError, match="column 'tags' must be of a type that Arrow"):
        for _ in cast("Iterable[object]", WAYS[way](frame, loop_thread)):
            pass


@pytest.mark.parametrize("way", WAYS)
def test_rows_without_columns_are_refused(
    spark: "SparkSession", loop_thread: LoopThread, way: str
) -> None:
    with pytest.raises(ValueError, match="df must have one column or more, got none"):
        WAYS[way](spark.range(3).select(), loop_thread)


@pytest.mark.parametrize("way", WAYS)
def test_a_frame_of_a_stopped_session_is_named(
    spark: "SparkSession",
    loop_thread: LoopThread,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    frame = spark.range(3)
    # All that `stop` leaves of it.
    monkeypatch.setattr(spark.sparkContext, "_jsc", None)

    with pytest.raises(ValueError, match="df must belong to a session that runs, got"):
        list(WAYS[way](frame, loop_thread))  # type: ignore[call-overload]


def test_a_stopped_session_writes_no_batchqueue(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.range(3)
    monkeypatch.setattr(spark.sparkContext, "_jsc", None)

    with pytest.raises(ValueError, match="df must belong to a session that runs, got"):
        frame.write.format("batchqueue")


def test_a_micro_batch_of_a_stopped_session_is_named(
    spark: "SparkSession", loop_thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another thread, or the function around the sink, stops it."""
    queue = loop_thread.open("rows", handlers={tuple: _nothing})
    frame = spark.range(3)
    monkeypatch.setattr(spark.sparkContext, "_jsc", None)

    with pytest.raises(ValueError, match="df must belong to a session that runs, got"):
        ForeachBatchSink(queue)(frame, 0)


def test_so_is_a_session_that_is_stopped_before_all_rows_have_come(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = arrow_batches(spark.range(0, 8, 1, 8))
    next(batches)
    for thread in threading.enumerate():
        if isinstance(thread, InheritableThread):
            thread.join()  # the job ahead is done
    monkeypatch.setattr(spark.sparkContext, "_jsc", None)

    with pytest.raises(BatchQueueError, match="session was stopped before all rows of"):
        list(batches)


@pytest.mark.parametrize("way", ["push", "write_partitions"])
def test_a_stream_has_no_end_to_wait_for(
    spark: "SparkSession", loop_thread: LoopThread, tmp_path: Path, way: str
) -> None:
    frame = spark.readStream.schema("id BIGINT").parquet(str(tmp_path))

    with pytest.raises(ValueError, match="df must be a batch frame, got a stream; use"):
        WAYS[way](frame, loop_thread)


def test_a_timeout_is_a_number(spark: "SparkSession", loop_thread: LoopThread) -> None:
    sentence = (
        "timeout must be a number of seconds >= 0, or None for no limit, got '60'"
    )

    with pytest.raises(TypeError, match=sentence):
        pushed(spark.range(1), loop_thread, timeout="60")
    with pytest.raises(TypeError, match=sentence):
        write_partitions(spark.range(1), opened, timeout="60")  # type: ignore[arg-type]
