"""Spark's rows into queues, and out of them exactly once.

On the driver:

* `arrow_batches`, `items`, `push`: a frame's rows as columns, as items, into a queue.
* `foreach_batch`: a stream's micro-batches, each exactly once into an `EpochSink`.
* `progress_listener`: a query's progress and the queue's statistics in one record.
* `spark_jobs`: executors' queues beside the driver's, for `telemetry`.
* `registered_source`: threads that use a session which was made on another.
* `java`: a Java runtime for machines that have none.

On the executors:

* `executor_queue`: one queue per Python worker process, for functions of your own.
* `map_async`: asynchronous calls inside of a frame, with `call_counts` and
  `idempotency_key`.
* `write_partitions`: a frame's partitions into those queues, with a receipt.
* `map_partitions`: a frame's partitions through queues, into another frame.
* `data_source`: `format("batchqueue")`, each write and micro-batch exactly once into a
  `StagedSink`.

This package is the only one that imports pyspark.
"""

from batchqueue_async._extras import missing

try:
    import pyarrow  # noqa: F401 - nearly all of it needs both
    import pyspark  # noqa: F401
except ModuleNotFoundError as _error:
    raise missing(_error, __name__, "spark") from _error

from batchqueue_async.sinks import Epoch, EpochSink, EpochWriter
from batchqueue_async.sinks.staged import (
    Attempt,
    StagedRowsMissing,
    StagedSink,
    Token,
)

from ._emitting import Emit, OpenEmittingQueue
from .arrow_batches import arrow_batches, whole_frame
from .data_source import BatchQueueSource
from .executor_queue import (
    OpenQueue,
    close_executor_queues,
    executor_queue,
    flushed_queue,
)
from .executor_stats import CallCounts
from .foreach_batch import ForeachBatchSink
from .idempotency_key import idempotency_key
from .items import to_batches, to_dicts, to_objects, to_tuples
from .java import JavaMissingError, ensure_java
from .map_async import call_counts, map_async
from .map_partitions import map_partitions_with_queue
from .progress_listener import QueryRecord, QueueProgressListener
from .push import PushProgress, push
from .registered_source import register_when_wanted, use_session
from .spark_jobs import SparkJobs
from .write_partitions import (
    PartitionResult,
    PartitionsFailed,
    WriteResult,
    write_partitions,
)

__all__ = [
    "Attempt",
    "BatchQueueSource",
    "CallCounts",
    "Emit",
    "Epoch",
    "EpochSink",
    "EpochWriter",
    "ForeachBatchSink",
    "JavaMissingError",
    "OpenEmittingQueue",
    "OpenQueue",
    "PartitionResult",
    "PartitionsFailed",
    "PushProgress",
    "QueryRecord",
    "QueueProgressListener",
    "SparkJobs",
    "StagedRowsMissing",
    "StagedSink",
    "Token",
    "WriteResult",
    "arrow_batches",
    "call_counts",
    "close_executor_queues",
    "ensure_java",
    "executor_queue",
    "flushed_queue",
    "idempotency_key",
    "map_async",
    "map_partitions_with_queue",
    "push",
    "to_batches",
    "to_dicts",
    "to_objects",
    "to_tuples",
    "use_session",
    "whole_frame",
    "write_partitions",
]

register_when_wanted()
