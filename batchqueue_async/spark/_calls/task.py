"""What Spark runs on executors: record batches in, record batches out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from batchqueue_async import BatchQueueError, LoopThread, SyncBatchQueue
from batchqueue_async.spark.executor_queue import kept_queue
from batchqueue_async.spark.executor_stats import of_calls

from .caller import Caller
from .declared import Declared
from .options import CallOptions
from .pipeline import CallPipeline
from .results import joined

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

    from batchqueue_async.spark.executor_stats import CallCounts, Report

# A call, or its client's opening, may block the loop for as long as it imports a model.
_PATIENCE = 600.0
# Seconds for what a task leaves that ends before its rows do; its process ends, too.
_GRACE = 1.0
_NEW_LOOP_THREAD = partial(LoopThread, "batchqueue-map-async", patience=_PATIENCE)

# By the key of their `map_async`. A forked child's are its parent's at first, and are
# replaced when it opens queues of its own.
_callers: dict[str, Caller] = {}


@dataclass(frozen=True)
class OpenCaller:
    """An `open_queue`, equal to those of the same `map_async`."""

    key: str
    options: CallOptions = field(compare=False)
    declared: Declared = field(compare=False)

    def __call__(self, loop_thread: LoopThread) -> SyncBatchQueue[int]:
        # A process's first array imports pandas: 0.2 s that no call is to wait for.
        pa.array([])
        caller = Caller(self.options, self.declared)
        name = f"map_async {self.options.name}"
        queue = loop_thread.open(name, caller.config, caller.handlers)
        _callers[self.key] = caller
        return queue


@dataclass(frozen=True)
class CallTask:
    """The function for `mapInArrow`.

    The driver reads `counts`, where it can; `told` is for whoever watches all its jobs.
    """

    options: CallOptions
    declared: Declared
    counts: Accumulator[CallCounts] | None = None
    told: Accumulator[Report] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opener = OpenCaller(self.options.key, self.options, self.declared)
        queue = kept_queue(opener, _NEW_LOOP_THREAD)
        caller = _callers[self.options.key]
        pipeline = queue.call(caller.begin, queue.queue)
        is_done = False
        try:
            yield from _rows_of(queue, pipeline, batches)
            is_done = True
        finally:
            if not is_done:
                _abandon(queue, caller, pipeline)
        if self.counts is not None:
            self.counts.add(pipeline.counts)
        if self.told is not None:
            stats = of_calls(self.options.name, pipeline.counts)
            self.told.add({stats.name: stats})


def _rows_of(
    queue: SyncBatchQueue[int],
    pipeline: CallPipeline,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    advance = pipeline.advance
    step = queue.call(advance)
    while True:
        if step.rows:
            yield joined(step.rows, step.rows[0].schema)
        if step.is_done:
            return
        if not step.wants_more:
            step = queue.call(advance)
        elif (batch := next(batches, None)) is None:
            step = queue.call(partial(advance, is_last=True))
        else:
            step = queue.call(advance, batch)


def _abandon(
    queue: SyncBatchQueue[int], caller: Caller, pipeline: CallPipeline
) -> None:
    """End what is in flight for rows that nobody will see.

    The next task of the process, should there be one, opens another queue.
    """
    with contextlib.suppress(BatchQueueError, TimeoutError):
        queue.call(pipeline.abandon, timeout=_GRACE)
        queue.shutdown(0)
        queue.call(caller.close, timeout=_GRACE)
