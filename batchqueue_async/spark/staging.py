"""How a task of the data source stages its rows: through the process's own queue."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueError,
    DeliveryError,
    LoopThread,
    SyncBatchQueue,
)
from batchqueue_async._wording import without_secrets
from batchqueue_async.sinks.staged import Attempt, StagedSink, Token

from .executor_queue import executor_queue
from .sink_factory import make_sink

if TYPE_CHECKING:
    from pyarrow import RecordBatch

logger: logging.Logger = logging.getLogger("batchqueue_async")

# Record batches, of 10,000 rows unless Spark is told otherwise: enough that reading and
# writing overlap, and a bound for the memory of a worker process.
_WAITING_BATCHES = 16


@dataclass(eq=False)
class Work:
    """What one task asks of the stager; the answers come back in it.

    Attributes:
        attempt: Whose rows they are.
        target: Where they go, for messages.
        is_published: The epoch was published before, so the rows aren't needed.
        error: Why no more can be staged; None while all is well.
        token: The receipt, once it is sealed.
    """

    attempt: Attempt
    target: str = "the sink"
    is_published: bool = False
    error: BaseException | None = None
    token: Token | None = None
    is_begun: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class Step:
    """A record batch of a task; or its end: seal what it staged, or undo it."""

    work: Work
    batch: RecordBatch | None = field(default=None, repr=False)  # somebody's data
    undoes: bool = False


class Stager:
    """The queue's consumer: brings steps to the sink, in order."""

    def __init__(self, sink: StagedSink[RecordBatch]) -> None:
        self._sink = sink

    async def consume(self, steps: list[Step]) -> None:
        """Stage and seal; the first error of an attempt ends it."""
        for work, group in groupby(steps, lambda step: step.work):
            work.target = getattr(self._sink, "target", work.target)
            try:
                await self._take(work, list(group))
            except BaseException as error:
                work.error = work.error or error
                raise

    async def on_close(self) -> None:
        """Close the sink."""
        await self._sink.close()

    async def _take(self, work: Work, steps: list[Step]) -> None:
        if any(step.undoes for step in steps):
            await self._sink.abandon(work.attempt)
            return
        if work.error is not None:
            msg = f"{work.attempt} had failed before"
            raise BatchQueueError(msg)
        batches = [step.batch for step in steps if step.batch is not None]
        if batches and not work.is_begun:
            work.is_begun = True
            work.is_published = await self._sink.is_published(work.attempt.epoch)
        if batches and not work.is_published:
            await self._sink.stage(work.attempt, batches)
        if len(batches) < len(steps):
            work.token = await self._sink.seal(work.attempt)


@dataclass(frozen=True)
class StagingQueue:
    """An `open_queue` for `executor_queue`: equal settings share one queue."""

    sink: str
    options: tuple[tuple[str, str], ...] = field(repr=False)  # secrets are among them

    def __call__(self, loop_thread: LoopThread) -> SyncBatchQueue[Step]:
        """Open the queue whose consumer stages with a new sink."""
        stager = Stager(make_sink(self.sink, dict(self.options)))
        config = BatchQueueConfig[Any](
            consumer=stager, buffer_size=_WAITING_BATCHES, on_error=_told_by_the_task
        )
        return loop_thread.open("batchqueue data source", config)


def stage_rows(
    open_queue: StagingQueue, attempt: Attempt, batches: Iterable[RecordBatch]
) -> Token:
    """Stage a partition; when this returns it is sealed, and nothing is waiting.

    Raises:
        BatchQueueError: The sink refused something; the attempt is undone.
        Exception: What reading the rows raised; the attempt is undone.
    """
    work = Work(attempt)
    queue = executor_queue(open_queue)
    try:
        for batch in batches:
            # Read to the end all the same: Spark's side of the pipe expects that.
            if work.error is None and not work.is_published:
                _put(queue, Step(work, batch))
        _put(queue, Step(work))
        queue.flush()
    except DeliveryError:
        _undo(queue, work)
    except BaseException:
        _undo(queue, work)
        raise
    if work.error is not None:
        # Not in the `except`: Spark shows tracebacks, and this is all that they tell.
        msg = f"{attempt} was not staged into {work.target}: {in_one_line(work.error)}"
        epoch = attempt.epoch
        fields = {
            "queue": queue.name,
            "query": epoch.query,
            "batch": epoch.batch,
            "error_type": type(work.error).__qualname__,
        }
        logger.error("%s", msg, extra=fields)
        raise BatchQueueError(msg)
    if work.token is None:
        msg = f"queue {queue.name!r} was shut down while it staged {attempt}"
        raise BatchQueueError(msg)
    return work.token


def _told_by_the_task(steps: list[Step], error: BaseException) -> None:
    """Log nothing: the task that waits for these steps raises, and says why."""


def in_one_line(error: BaseException) -> str:
    """Return an error in one line."""
    try:
        text = " ".join(without_secrets(str(error)).split())
    except Exception:  # noqa: BLE001 - a user's sink may raise anything
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _put(queue: SyncBatchQueue[Step], step: Step) -> None:
    if not queue.produce(step):
        msg = f"queue {queue.name!r} was shut down while it staged {step.work.attempt}"
        raise BatchQueueError(msg)


def _undo(queue: SyncBatchQueue[Step], work: Work) -> None:
    try:
        _put(queue, Step(work, undoes=True))
        queue.flush()
    except (BatchQueueError, DeliveryError):
        # The sink is out of reach; what it holds is unsealed, so nobody publishes it.
        return
