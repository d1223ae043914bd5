"""How a task of the data source stages its rows: through the process's own queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from importlib import import_module
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueError,
    DeliveryError,
    LoopThread,
    SyncBatchQueue,
)
from batchqueue_async._log import logger
from batchqueue_async._validation import refuse
from batchqueue_async._wording import reason, shown, text_of, without_secrets
from batchqueue_async.sinks.epochs import fields_of
from batchqueue_async.sinks.staged import Attempt, StagedSink, Token

from .executor_queue import executor_queue

if TYPE_CHECKING:
    from pyarrow import RecordBatch

R = TypeVar("R")

SinkFactory: TypeAlias = Callable[[Mapping[str, str]], StagedSink[Any]]
"""Gets the data source's options, keys in lower case, and returns a sink."""


_SINKS: Final = "batchqueue_async.sinks"
_BUILT_IN: Final = {
    "parquet": f"{_SINKS}.parquet_staged:ParquetStagedSink.from_options",
    "postgres": f"{_SINKS}.postgres_staged:PostgresStagedSink.from_options",
    "sqlite": f"{_SINKS}.sqlite_staged:SqliteStagedSink.from_options",
}
# Record batches, of 10,000 rows unless Spark is told otherwise: enough that reading and
# writing overlap, and a bound for the memory of a worker process.
_WAITING_BATCHES = 16


@dataclass(eq=False)
class Work:
    """What one task asks of the stager; the answers come back in it.

    If the epoch was published before, which is asked with the first rows, they aren't
    needed. After an error no more can be staged.
    """

    attempt: Attempt
    target: str = "the sink"
    is_published: bool | None = None
    error: BaseException | None = None
    token: Token | None = None


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
        if batches and work.is_published is None:
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
            consumer=stager,
            buffer_size=_WAITING_BATCHES,
            # The task that waits for these steps raises, and says why.
            on_error=lambda _steps, _error: None,
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
        # Not in the `except`: Spark would show the first error's traceback as well.
        msg = f"{attempt} was not staged into {work.target}: {in_one_line(work.error)}"
        kind = type(work.error).__qualname__
        fields = fields_of(attempt.epoch)
        logger.error("%s", msg, queue=queue.name, error_type=kind, **fields)
        raise BatchQueueError(msg)
    if work.token is None:
        msg = f"queue {queue.name!r} was shut down while it staged {attempt}"
        raise BatchQueueError(msg)
    return work.token


def find_factory(name: str | None) -> SinkFactory:
    """Return what `package.module:factory` names; dots may follow the colon.

    "parquet", "postgres" and "sqlite" are short for the library's own.
    """
    module, colon, path = _BUILT_IN.get(name or "", name or "").partition(":")
    if not (module and colon and path):
        short = ", ".join(f'"{each}"' for each in _BUILT_IN)
        refuse("sink", f'{short} or "package.module:factory"', name)
    try:
        factory: object = reduce(getattr, path.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        msg = (
            f"sink must name a factory that the driver's and every executor's Python "
            f"can import, got {shown(name)}: {reason(error)}"
        )
        raise ValueError(msg) from error
    if not callable(factory):
        msg = f"sink must name something callable, got {shown(name)}: {shown(factory)}"
        raise TypeError(msg)
    return factory


def make_sink(name: str | None, options: Mapping[str, str]) -> StagedSink[Any]:
    """Call the factory."""
    sink: object = find_factory(name)(options)
    if not isinstance(sink, StagedSink):
        msg = f"sink {shown(name)} must return a StagedSink, got {shown(sink)}"
        raise TypeError(msg)
    return sink


def with_sink(
    open_queue: StagingQueue, use: Callable[[StagedSink[Any]], Awaitable[R]]
) -> R:
    """Make a sink, use it and close it, blocking."""

    async def run() -> R:
        sink = make_sink(open_queue.sink, dict(open_queue.options))
        try:
            return await use(sink)
        finally:
            await sink.close()

    return asyncio.run(run())


def with_sink_told(
    open_queue: StagingQueue,
    use: Callable[[StagedSink[Any]], Awaitable[R]],
    says: Callable[[str], str],
) -> R:
    """Do what `with_sink` does; an error becomes one line, after `says(target)`.

    Raises:
        BatchQueueError: What `use` raised.
        Exception: What making the sink raised: it names the option.
    """
    failed: list[str] = []

    async def run(sink: StagedSink[Any]) -> R:
        try:
            return await use(sink)
        except Exception as error:
            target = getattr(sink, "target", Work.target)
            failed.append(f"{says(target)}: {in_one_line(error)}")
            raise

    try:
        return with_sink(open_queue, run)
    except Exception:
        if not failed:
            raise
    # Not in the `except`: Spark would show the first error's traceback as well.
    raise BatchQueueError(failed[0])


def in_one_line(error: BaseException) -> str:
    """Return an error in one line."""
    text = " ".join(without_secrets(text_of(error)).split())
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
        # The sink can't be reached; what it holds is unsealed, so nobody publishes it.
        return
