"""What Spark runs on executors, and what a process keeps for it from task to task."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    DrainTaskPolicy,
    LoopThread,
    PartitionPolicy,
    SyncBatchQueue,
)
from batchqueue_async._wording import kind_of, shown
from batchqueue_async.spark.executor_queue import kept_queue
from batchqueue_async.spark.executor_stats import of_calls
from batchqueue_async.spark.worker_output import worker_flush

from .declared import DeclaredColumns
from .options import CallOptions, Open
from .pipeline import CallPipeline, CallSlot
from .results import ResultMaker, RowColumns, joined

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

    from batchqueue_async.spark.executor_stats import CallCounts, Report

# Seconds. A call, or opening its client, may block the loop while it loads a model.
_PATIENCE = 600.0
# Seconds to end the calls of a task that ends early, with which its process ends, too.
_GRACE = 1.0
_NEW_LOOP_THREAD = partial(LoopThread, "batchqueue-map-async", patience=_PATIENCE)

# By their queue, with which they go: a stream may make a `map_async` for each of its
# micro-batches.
_callers: WeakKeyDictionary[SyncBatchQueue[int], Caller] = WeakKeyDictionary()


@dataclass(frozen=True)
class OpenCaller:
    """An `open_queue`, equal to those of the same `map_async`."""

    key: str
    options: CallOptions = field(compare=False)
    declared: DeclaredColumns = field(compare=False)

    def __call__(self, loop_thread: LoopThread) -> SyncBatchQueue[int]:
        # A process's first array imports pandas: 0.2 s that no call is to wait for.
        pa.array([])
        caller = Caller(self.options, self.declared)
        name = f"map_async {self.options.name}"
        queue = loop_thread.open(name, caller.config, caller.handlers)
        _callers[queue] = caller
        return queue


@dataclass(frozen=True)
class CallTask:
    """The function for `mapInArrow`.

    `counts` are for `call_counts`, `told` is for `SparkJobs`; Spark Connect has
    neither.
    """

    options: CallOptions
    declared: DeclaredColumns
    counts: Accumulator[CallCounts] | None = None
    told: Accumulator[Report] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opener = OpenCaller(self.options.key, self.options, self.declared)
        queue = kept_queue(opener, _NEW_LOOP_THREAD)
        caller = _callers[queue]
        pipeline = queue.call(caller.begin, queue.queue)
        try:
            yield from _rows_of(queue, pipeline, batches)
        except BaseException:
            _abandon(queue, caller, pipeline)
            raise
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
    advance, flush = pipeline.advance, worker_flush()
    step = queue.call(advance)
    while True:
        if step.rows:
            yield joined(step.rows, step.rows[0].schema)
            flush()
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
    """End calls in flight whose rows nobody will see.

    The next task of the process, should there be one, opens another queue.
    """
    with contextlib.suppress(BatchQueueError, TimeoutError):
        queue.call(pipeline.abandon, timeout=_GRACE)
        queue.shutdown(0)
        queue.call(caller.close, timeout=_GRACE)


class Caller:
    """The slots of a queue, and what they share: the client and the rate."""

    def __init__(self, options: CallOptions, declared: DeclaredColumns) -> None:
        self.options = options
        self.declared = declared
        maker = ResultMaker(
            RowColumns(declared.columns),
            flat=options.flat,
            keeps_input=declared.output is not None,
        )
        self.slots = [
            CallSlot(options.name, self.ask, maker) for _ in range(options.in_flight)
        ]
        self._client = None if options.open is None else Client(options.open)
        self._rate = None if options.rate is None else CallRate(options.rate)

    @property
    def config(self) -> BatchQueueConfig[int]:
        """How the queue is declared: a partition, and a drain task, for each slot."""
        return BatchQueueConfig(
            drain_tasks=DrainTaskPolicy.fixed(len(self.slots)),
            partitions=PartitionPolicy.fixed(len(self.slots)),
            # A call's items come all at once, and no others are added to them.
            buffer_size=self.options.max_batch,
            retry=self.options.retry,
            on_error=_give_up,
        )

    @property
    def handlers(self) -> Mapping[type[int], CallSlot]:
        return {slot.position_type: slot for slot in self.slots}

    async def begin(self, queue: BatchQueue[int]) -> CallPipeline:
        """Return the pipeline of a task; a process runs one task at a time."""
        return CallPipeline(self.options, self.declared.output, self.slots, queue)

    async def ask(self, items: list[Any]) -> object:
        arguments: tuple[object, ...] = (items,)
        if self._client is not None:
            arguments = (await self._client.get(), items)
        if self._rate is not None:
            await self._rate.turn()
        timeout = self.options.timeout
        if timeout is None:
            return await self._answer(*arguments)
        try:
            async with asyncio.timeout(timeout) as limit:
                return await self._answer(*arguments)
        except TimeoutError:
            if not limit.expired():
                raise
            msg = f"{self.options.name} gave no answer within {timeout} s"
            raise TimeoutError(msg) from None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _answer(self, *arguments: object) -> object:
        answer: object = self.options.call(*arguments)
        if not inspect.isawaitable(answer):
            msg = f"call must be an async function, got {kind_of(answer)} from it"
            raise TypeError(msg)
        return await answer


def _give_up(positions: list[Any], error: BaseException) -> None:
    positions[0].slot.give_up(positions, error)


class CallRate:
    """A token bucket that holds one token: calls are spread, there are no bursts.

    In any `t` seconds no more than `1 + t * per_second` calls begin. Each waiting call
    has its time to begin already, so one that is woken late doesn't slow the others
    down.
    """

    def __init__(self, per_second: float) -> None:
        self._between = 1 / per_second
        self._next = 0.0

    async def turn(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        moment = max(now, self._next)
        self._next = moment + self._between
        # A timer may fire a clock tick early.
        while (left := moment - now) > 0:
            await asyncio.sleep(left)
            now = loop.time()


class Client:
    """Opened by the first call that needs it; open until `close`, or the loop's end.

    A task of its own enters the context manager and leaves it: many that are built on
    cancel scopes insist on one task for both. A loop cancels its tasks when it ends,
    after the queue is drained: that closes the client.
    """

    def __init__(self, open_client: Open) -> None:
        self._open_client = open_client
        self._opened: asyncio.Future[object] | None = None
        self._holder: asyncio.Task[None] | None = None

    async def get(self) -> object:
        """Return the client; if opening it raises, the next call tries again."""
        if self._opened is None:
            loop = asyncio.get_running_loop()
            self._opened = loop.create_future()
            self._holder = loop.create_task(self._hold(self._opened), name="client")
        # Shielded: a call that is cancelled must not cancel the others' client.
        return await asyncio.shield(self._opened)

    async def close(self) -> None:
        """Leave the context manager, if it was entered; raises what that raises."""
        if self._holder is not None:
            self._holder.cancel()
            await self._holder

    async def _hold(self, opened: asyncio.Future[object]) -> None:
        try:
            manager = self._open_client()
            if not hasattr(type(manager), "__aenter__"):
                msg = f"open must return an async context manager, got {shown(manager)}"
                raise TypeError(msg)  # noqa: TRY301 - told as what opening raises is
            async with manager as client:
                opened.set_result(client)
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.get_running_loop().create_future()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)
        finally:
            self._opened = self._holder = None
