"""`df.write.format("batchqueue")`: staged on executors, published by the commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    WriterCommitMessage,
)

from batchqueue_async import BatchQueueError
from batchqueue_async._log import logger
from batchqueue_async._validation import refuse
from batchqueue_async._wording import shown
from batchqueue_async.sinks.epochs import Epoch, fields_of
from batchqueue_async.sinks.staged import Attempt, StagedSink, Token

from ._lost_epochs import warn_of_lost
from .frames import arrow_schema, with_types
from .staging import (
    StagingQueue,
    find_factory,
    in_one_line,
    stage_rows,
    with_sink,
    with_sink_told,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Spark sets these for the jobs of a streaming query, and passes them to its tasks.
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"

FORMAT: Final = "batchqueue"

# Why a stream's micro-batch may have been published before. A commit knows nothing of
# the run's others, so it can't tell a restart from a copied checkpoint.
_RESTARTED: Final = (
    "as it should be where the driver died before Spark's own commit; a query that goes"
    " on with a copy of another's checkpoint loses its rows, and needs a new one"
)
_NAMED: Final = (
    "as it should be where the driver died before Spark's own commit; a stream takes"
    " another `query` than others, and than batch writes"
)

# Options of ours and of Spark's; all others are the sink's.
_OWN = {"sink", "query", "batch", "checkpointlocation", "path", "queryname"}


class BatchQueueSource(DataSource):
    """Writes a DataFrame, or a streaming query, into a `StagedSink`, exactly once.

    Spark finds it by itself, as `format("batchqueue")`, where this package is installed
    for the driver's and the executors' Python. Options:

    `sink`: "postgres", "parquet" or "sqlite", for `PostgresStagedSink` and the others,
        whose options have their arguments' names; or `package.module:factory`. A
        factory gets the options and returns a `StagedSink`; on executors it is called
        once per Python worker process, and where Spark commits once per commit.

    `query`: The name of the delivering query. A stream's default is the id in its
        checkpoint; with a name, a stream of another checkpoint under the same one ends
        with an error, and so does one whose last batch comes again by another name. A
        batch write has none by default, so that each is a new one; with a name, a write
        of the same `query` and `batch` that was published before changes nothing.

    `batch`: With `query`, the whole number of this batch write. It is 0 by default, so
        a second write under the same `query` alone changes nothing.

    All other options are the sink's. In SQL options go to the statement, since Spark
    does not pass on those of a table: `INSERT INTO t WITH ('sink' = ...) SELECT ...`.

    The save mode is append, and so is a stream's output mode: Spark refuses update for
    all data sources of Python. For update or complete there is `ForeachBatchSink`, with
    a sink that has `on_conflict`. A stream's trigger is one that makes micro-batches.
    With `trigger(continuous=...)` nothing is published and nothing is committed: Spark
    gives the rows to no Python data source, and only logs what its commit raises. All
    of it works with Spark Connect, too.
    """

    @classmethod
    def name(cls) -> str:
        """Return what `format` expects."""
        return FORMAT

    def schema(self) -> StructType | str:
        """Refuse to be read."""
        raise _refused()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Refuse to be read."""
        raise _refused()

    def streamReader(  # noqa: N802  # Spark's name
        self, schema: StructType
    ) -> DataSourceStreamReader:
        """Refuse to be read."""
        raise _refused()

    def writer(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001  # Spark's signature
    ) -> DataSourceArrowWriter:
        """Check the options, announce the job and return its writer."""
        open_queue, query, batch = _settings(self.options)
        if overwrite:
            msg = 'mode must be "append": staged rows are added, got "overwrite"'
            raise ValueError(msg)
        epoch = Epoch(query or f"write-{uuid4()}", batch)
        run = uuid4().hex
        columns = arrow_schema(schema)
        announce(open_queue, epoch, run)
        return BatchWriter(open_queue, epoch, run, columns)

    def streamWriter(  # noqa: N802  # Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001  # Spark's signature
    ) -> DataSourceStreamArrowWriter:
        """Check the options and return a writer; Spark makes one per micro-batch."""
        if overwrite:
            msg = (
                'outputMode must be "append": staged rows are added, got "complete"; a'
                " ForeachBatchSink takes it, into a sink with on_conflict"
            )
            raise ValueError(msg)
        if "batch" in self.options:
            msg = (
                "batch must be left out for a stream, which numbers its batches itself,"
                f" got {shown(self.options['batch'])}"
            )
            raise ValueError(msg)
        open_queue, query, _ = _settings(self.options)
        return StreamWriter(open_queue, query, arrow_schema(schema))


def _refused() -> BatchQueueError:
    msg = (
        'format("batchqueue") writes and cannot be read: read the table or directory'
        " that its sink has written"
    )
    return BatchQueueError(msg)


def _settings(options: Mapping[str, str]) -> tuple[StagingQueue, str | None, int]:
    """Return the options, checked: how to stage, the query and the batch."""
    options = {key.lower(): value for key, value in options.items()}
    sink, query, batch = (options.get(key) for key in ("sink", "query", "batch"))
    if sink is None:
        # Spark passes no option of a table in SQL on, nor one of `insertInto`.
        msg = (
            "sink must be given as an option, got None: in SQL with the statement, as"
            " in INSERT INTO t WITH ('sink' = ...) SELECT ..., since a table's own"
            " options don't come here; with writeTo(...).option(...), not insertInto"
        )
        raise ValueError(msg)
    find_factory(sink)
    if query == "":
        refuse("query", "a name", query)
    if batch is not None and query is None:
        msg = f"batch must be given with query, got batch={batch!r} alone"
        raise ValueError(msg)
    if batch is not None and not batch.isdecimal():
        refuse("batch", "a whole number >= 0", batch)
    theirs = tuple(sorted((k, v) for k, v in options.items() if k not in _OWN))
    return StagingQueue(sink, theirs), query, int(batch or 0)


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task tells the commit."""

    token: Token


@dataclass(frozen=True)
class BatchWriter(DataSourceArrowWriter):
    """Writes one batch job. Spark pickles it to tasks, and to where it commits."""

    open_queue: StagingQueue
    epoch: Epoch
    run: str
    columns: pa.Schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage one partition, on an executor."""
        attempt = _attempt(_task(), self.epoch, self.run, is_announced=True)
        rows = with_types(iterator, self.columns)
        return Staged(stage_rows(self.open_queue, attempt, rows))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish all partitions, beside the driver; log it if they already were."""
        tokens = _all_tokens(messages)
        nobody = _nobody(self.epoch, self.run, tokens, is_announced=True)
        if not publish(self.open_queue, nobody, tokens, self.columns):
            logger.warning(
                "%s is published already, so this write of it changes nothing: another"
                " write takes another `query` or `batch`",
                self.epoch,
                **fields_of(self.epoch),
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove whatever the job has staged, beside the driver."""
        discard(self.open_queue, self.epoch, self.run)


@dataclass(frozen=True)
class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. Spark makes a new one for each, and another to commit it.

    So the commit knows the query only from the tasks' messages. A `query` option
    replaces the checkpoint's id in the epoch.
    """

    open_queue: StagingQueue
    query: str | None
    columns: pa.Schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage one partition of a micro-batch, on an executor."""
        task = _task()
        query, batch, run = map(task.getLocalProperty, (_QUERY, _BATCH, _RUN))
        if not (query and batch and run):
            msg = (
                "the trigger must make micro-batches: this task has no "
                f"{_QUERY}, {_BATCH} and {_RUN}, got {(query, batch, run)}"
            )
            raise BatchQueueError(msg)
        epoch = Epoch(self.query or query, int(batch), checkpoint=query)
        attempt = _attempt(task, epoch, run)
        rows = with_types(iterator, self.columns)
        return Staged(stage_rows(self.open_queue, attempt, rows))

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803  # Spark's name
    ) -> None:
        """Publish the micro-batch, beside the driver; log one published before.

        One without partitions has no rows: there is nothing to publish.

        A missing token is an error. With `trigger(continuous=...)` all are missing:
        Spark 4.3 gives the rows to nobody, and asks for a commit of nothing. It logs
        the error and goes on, but it commits no epoch any more.
        """
        tokens = _all_tokens(messages)
        if not tokens:
            return
        epoch, run = tokens[0].attempt.epoch, tokens[0].attempt.run
        if epoch.batch != batchId:
            msg = f"the tasks staged {epoch}, but Spark commits batch {batchId}"
            raise BatchQueueError(msg)
        nobody = _nobody(epoch, run, tokens)
        if not publish(self.open_queue, nobody, tokens, self.columns, follows=True):
            logger.warning(
                "%s is published already, so this micro-batch changes nothing: %s",
                epoch,
                _RESTARTED if self.query is None else _NAMED,
                **fields_of(epoch),
            )

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803  # Spark's name
    ) -> None:
        """Remove what the micro-batch has staged, beside the driver.

        If no task has sealed anything, the query's name is not known here. A task that
        failed has undone its own rows; one that was killed right after sealing leaves
        rows that the next `publish` of the same batch removes.
        """
        for token in _tokens(messages)[:1]:
            discard(self.open_queue, token.attempt.epoch, token.attempt.run)


def announce(open_queue: StagingQueue, epoch: Epoch, run: str) -> None:
    """Tell a sink that has `announce` of a run whose tasks will start; blocking."""

    async def tell(sink: StagedSink[Any]) -> None:
        if (heard := getattr(sink, "announce", None)) is not None:
            await heard(epoch, run)

    with_sink_told(open_queue, tell, lambda it: f"{epoch} cannot be staged into {it}")


def publish(
    open_queue: StagingQueue,
    attempt: Attempt,
    tokens: list[Token],
    columns: pa.Schema,
    *,
    follows: bool = False,
) -> bool:
    """Publish with a sink of its own, blocking.

    `attempt` tells a sink that `wants_columns` those of an epoch without rows; one that
    `follows` another has that looked for.
    """

    async def run(sink: StagedSink[Any]) -> bool:
        all_tokens, epoch = tokens, attempt.epoch
        wants_columns = getattr(sink, "wants_columns", False)
        has_rows = any(token.rows for token in tokens)
        # A published epoch's tokens have none, either; its `publish` removes leftovers.
        if wants_columns and not has_rows and not await sink.is_published(epoch):
            await sink.stage(attempt, [pa.RecordBatch.from_pylist([], columns)])
            all_tokens = [*tokens, await sink.seal(attempt)]
        if follows:
            await warn_of_lost(epoch, sink.is_published)
        return await sink.publish(epoch, all_tokens)

    # If the connection broke the epoch may be published: the text leaves it open.
    says = f"publishing {attempt.epoch} into"
    return with_sink_told(open_queue, run, lambda it: f"{says} {it} failed")


def discard(open_queue: StagingQueue, epoch: Epoch, run: str) -> None:
    """Discard with a sink of its own, blocking; log it if the sink can't.

    Spark aborts because something has failed. If this raised, too, Spark would only say
    "Writing job failed", and nothing of that first error.
    """
    try:
        with_sink(open_queue, lambda sink: sink.discard(epoch, run))
    except Exception as error:  # noqa: BLE001  # whatever a sink raises
        logger.warning(
            "what was staged for %s cannot be removed now: %s",
            epoch,
            in_one_line(error),
            error_type=type(error).__qualname__,
            **fields_of(epoch),
        )


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


def _nobody(
    epoch: Epoch, run: str, tokens: list[Token], *, is_announced: bool = False
) -> Attempt:
    """Return the commit's own attempt; it treats case in names as the tasks' do."""
    exact = all(token.attempt.is_case_sensitive for token in tokens)
    return Attempt(epoch, run, 0, uuid4().hex, is_announced, exact)
