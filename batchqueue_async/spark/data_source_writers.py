"""The two writers: what runs on executors, and what runs where Spark commits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks.epochs import Epoch
from batchqueue_async.sinks.staged import Attempt, StagedSink, Token

from .frame_schema import with_types
from .sink_factory import make_sink
from .staging import StagingQueue, in_one_line, stage_rows

if TYPE_CHECKING:
    from pyarrow import RecordBatch

logger: logging.Logger = logging.getLogger("batchqueue_async")

R = TypeVar("R")

# Spark sets these for the jobs of a streaming query, and takes them to its tasks.
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task tells the commit."""

    token: Token


class BatchWriter(DataSourceArrowWriter):
    """Writes one batch job. Spark pickles it to tasks, and to where it commits."""

    def __init__(
        self, open_queue: StagingQueue, epoch: Epoch, run: str, columns: pa.Schema
    ) -> None:
        self._open_queue = open_queue
        self._epoch = epoch
        self._run = run
        self._columns = columns

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        """Stage one partition, on an executor."""
        attempt = _attempt(_task(), self._epoch, self._run, is_announced=True)
        rows = with_types(iterator, self._columns)
        return Staged(stage_rows(self._open_queue, attempt, rows))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish all partitions, beside the driver; log if they were before."""
        tokens = _all_tokens(messages)
        nobody = Attempt(self._epoch, self._run, 0, uuid4().hex, is_announced=True)
        if not publish(self._open_queue, nobody, tokens, self._columns):
            logger.warning(
                "%s is published already, so this write of it changes nothing: another"
                " write takes another `query` or `batch`",
                self._epoch,
                extra={"query": self._epoch.query, "batch": self._epoch.batch},
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove whatever the job has staged, beside the driver."""
        discard(self._open_queue, self._epoch, self._run)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. Spark makes a new one for each, and another to commit it.

    So what the commit knows of the query came with the tasks' messages.

    Args:
        open_queue: Names the sink.
        query: Replaces the id of the checkpoint as the name of who delivers.
        columns: The frame's.
    """

    def __init__(
        self, open_queue: StagingQueue, query: str | None, columns: pa.Schema
    ) -> None:
        self._open_queue = open_queue
        self._query = query
        self._columns = columns

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        """Stage one partition of a micro-batch, on an executor."""
        task = _task()
        query, batch, run = map(task.getLocalProperty, (_QUERY, _BATCH, _RUN))
        if not (query and batch and run):
            msg = (
                "the trigger must make micro-batches: this task has no "
                f"{_QUERY}, {_BATCH} and {_RUN}, got {(query, batch, run)}"
            )
            raise BatchQueueError(msg)
        attempt = _attempt(task, Epoch(self._query or query, int(batch)), run)
        rows = with_types(iterator, self._columns)
        return Staged(stage_rows(self._open_queue, attempt, rows))

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803  # Spark's name
    ) -> None:
        """Publish the micro-batch, beside the driver; log if a named one was before.

        One without partitions has no rows: there is nothing to publish.

        Raises:
            BatchQueueError: A partition's receipt is missing. With
                `trigger(continuous=...)` all are: Spark 4.3 gives the rows to nobody,
                and asks for a commit of nothing. It logs this error and goes on, but
                it commits no epoch any more.
        """
        tokens = _all_tokens(messages)
        if tokens:
            epoch, run = tokens[0].attempt.epoch, tokens[0].attempt.run
            if epoch.batch != batchId:
                msg = f"the tasks staged {epoch}, but Spark commits batch {batchId}"
                raise BatchQueueError(msg)
            nobody = Attempt(epoch, run, 0, uuid4().hex)
            is_new = publish(self._open_queue, nobody, tokens, self._columns)
            # With the checkpoint's own id it is a restart, for certain.
            if not is_new and self._query is not None:
                logger.warning(
                    "%s is published already, so this micro-batch changes nothing: a"
                    " stream with a new checkpoint, or of its own, takes another"
                    " `query`",
                    epoch,
                    extra={"query": epoch.query, "batch": epoch.batch},
                )

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803  # Spark's name
    ) -> None:
        """Remove what the micro-batch has staged, beside the driver.

        If no task has sealed anything, then nobody here knows the query's name. A task
        that failed has undone its own; one that was killed right after sealing leaves
        rows that the next `publish` of the same batch removes.
        """
        for token in _tokens(messages)[:1]:
            discard(self._open_queue, token.attempt.epoch, token.attempt.run)


def announce(open_queue: StagingQueue, epoch: Epoch, run: str) -> None:
    """Tell the sink of a run whose tasks will start, blocking; if it wants to know."""

    async def tell(sink: StagedSink[Any]) -> None:
        if (heard := getattr(sink, "announce", None)) is not None:
            await heard(epoch, run)

    _with_sink(open_queue, tell)


def publish(
    open_queue: StagingQueue, attempt: Attempt, tokens: list[Token], columns: pa.Schema
) -> bool:
    """Publish with a sink of its own, blocking.

    Args:
        open_queue: Names the sink.
        attempt: For a sink that wants to know the columns of an epoch without rows.
        tokens: What tasks have staged.
        columns: The frame's.
    """

    async def run(sink: StagedSink[Any]) -> bool:
        all_tokens = tokens
        wants_columns = getattr(sink, "wants_columns", False)
        if wants_columns and not any(token.rows for token in tokens):
            if await sink.is_published(attempt.epoch):
                return False
            await sink.stage(attempt, [pa.RecordBatch.from_pylist([], columns)])
            all_tokens = [*tokens, await sink.seal(attempt)]
        return await sink.publish(attempt.epoch, all_tokens)

    return _with_sink(open_queue, run)


def discard(open_queue: StagingQueue, epoch: Epoch, run: str) -> None:
    """Discard with a sink of its own, blocking; log it where the sink can't.

    Something has failed before, or Spark would not abort. Of an abort that raises it
    says "Writing job failed", and nothing of what came first.
    """
    try:
        _with_sink(open_queue, lambda sink: sink.discard(epoch, run))
    except Exception as error:  # noqa: BLE001  # whatever a sink raises
        fields = {"query": epoch.query, "batch": epoch.batch}
        logger.warning(
            "what was staged for %s cannot be removed now: %s",
            epoch,
            in_one_line(error),
            extra=fields | {"error_type": type(error).__qualname__},
        )


def _with_sink(
    open_queue: StagingQueue, use: Callable[[StagedSink[Any]], Awaitable[R]]
) -> R:
    async def run() -> R:
        sink = make_sink(open_queue.sink, dict(open_queue.options))
        try:
            return await use(sink)
        finally:
            await sink.close()

    return asyncio.run(run())


def _all_tokens(messages: Sequence[WriterCommitMessage | None]) -> list[Token]:
    tokens = _tokens(messages)
    if len(tokens) < len(messages):
        msg = (
            f"Spark commits {len(messages)} partitions, but the tasks staged"
            f" {len(tokens)}; a stream's trigger must make micro-batches: with"
            " trigger(continuous=...) Spark gives the rows to nobody"
        )
        raise BatchQueueError(msg)
    return tokens


def _tokens(messages: Sequence[WriterCommitMessage | None]) -> list[Token]:
    return [message.token for message in messages if isinstance(message, Staged)]


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        msg = "rows are staged by Spark's tasks only; there is none here"
        raise BatchQueueError(msg)
    return task


def _attempt(
    task: TaskContext, epoch: Epoch, run: str, *, is_announced: bool = False
) -> Attempt:
    is_case_sensitive = task.getLocalProperty("spark.sql.caseSensitive") == "true"
    # Spark's numbers start again with every driver, so they can't tell attempts apart.
    name = uuid4().hex
    return Attempt(
        epoch, run, task.partitionId(), name, is_announced, is_case_sensitive
    )
