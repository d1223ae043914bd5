"""A session of Spark Connect that is stopped meanwhile is told of as a classic one."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructType

from batchqueue_async import BatchQueueError, LoopThread, SyncBatchQueue
from batchqueue_async.spark import arrow_batches, whole_frame, write_partitions

# What PySpark 4.3 raises of calls that a stop ends, by the moment in which it comes.
CLOSED_HERE = ValueError("Cannot invoke RPC: Channel closed!")
CLOSED_THERE = RuntimeError("[INVALID_HANDLE.SESSION_CLOSED] The handle is invalid.")
OTHER = ValueError("the rows cannot be computed")


class Session:
    """Stands for a client's."""

    def __init__(self, *, is_stopped: bool) -> None:
        self.is_stopped = is_stopped


class Frame:
    """Stands for a frame of Connect's, whose calls fail."""

    columns = ("id",)
    isStreaming = False  # noqa: N815 - Spark's name

    def __init__(self, error: Exception, type_: DataType, *, is_stopped: bool) -> None:
        self.sparkSession = Session(is_stopped=is_stopped)
        self.schema = StructType().add("id", LongType()).add("v", type_)
        self.error = error

    def mapInArrow(self, *_: object) -> "Frame":  # noqa: N802 - Spark's name
        return self

    def collect(self, **_: object) -> Any:  # noqa: ANN401
        raise self.error

    toArrow = toLocalIterator = collect  # noqa: N815 - Spark's names


Frame.__module__ = "pyspark.sql.connect.dataframe"
Session.__module__ = "pyspark.sql.connect.session"


def open_queue(loop_thread: LoopThread) -> SyncBatchQueue[Any]:
    raise NotImplementedError


@pytest.mark.parametrize(
    "ask",
    [
        lambda df: next(arrow_batches(df)),
        lambda df: next(whole_frame(df)),
        lambda df: write_partitions(df, open_queue),
    ],
    ids=["arrow_batches", "whole_frame", "write_partitions"],
)
@pytest.mark.parametrize("type_", [StringType(), ArrayType(StringType())])
def test_a_stopped_session_is_a_sentence(
    ask: Callable[[Frame], object], type_: DataType
) -> None:
    for error, is_stopped in ((CLOSED_HERE, True), (CLOSED_THERE, False)):
        frame = Frame(error, type_, is_stopped=is_stopped)
        with pytest.raises(BatchQueueError, match="session was stopped before all r"):
            ask(frame)
    with pytest.raises(ValueError, match="rows cannot be computed"):
        ask(Frame(OTHER, type_, is_stopped=False))
