"""`df.write.format("batchqueue")`: staged on executors, published by the commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

from batchqueue_async import BatchQueueError
from batchqueue_async._validation import refuse
from batchqueue_async._wording import shown
from batchqueue_async.sinks.epochs import Epoch

from .data_source_writers import BatchWriter, StreamWriter, announce
from .frames import arrow_schema
from .staging import StagingQueue, find_factory

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT: Final = "batchqueue"

# Ours and Spark's; the rest is the sink's.
_OWN = {"sink", "query", "batch", "checkpointlocation", "path", "queryname"}


class BatchQueueSource(DataSource):
    """Writes a DataFrame, or a streaming query, into a `StagedSink`, exactly once.

    Spark finds it by itself, as `format("batchqueue")`, where this package is installed
    for the driver's and the executors' Python. Options:

    `sink`: "postgres", "parquet" or "sqlite", for `PostgresStagedSink` and the others,
        whose options have their arguments' names; or `package.module:factory`. A
        factory gets the options and returns a `StagedSink`; on executors it is called
        once per Python worker process, and where Spark commits once per commit.

    `query`: The name of who delivers. A stream's default is the id in its checkpoint. A
        batch write has none by default, so that each is a new one; with a name, a write
        of the same `query` and `batch` that was published before changes nothing.

    `batch`: With `query`, the whole number of this batch write. It is 0 by default, so
        a second write under the same `query` alone changes nothing.

    Others are the sink's. In SQL they go to the statement, since Spark keeps those of a
    table to itself: `INSERT INTO t WITH ('sink' = ...) SELECT ...`.

    The save mode is append, a stream's output mode append or update, and its trigger
    one that makes micro-batches. With `trigger(continuous=...)` nothing is published
    and nothing is committed: Spark gives the rows to no Python data source, and only
    logs what its commit raises. All of it works with Spark Connect, too.
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
        settings = Settings.of(self.options)
        if overwrite:
            msg = 'mode must be "append": staged rows are added, got "overwrite"'
            raise ValueError(msg)
        epoch = Epoch(settings.query or f"write-{uuid4()}", settings.batch)
        run = uuid4().hex
        columns = arrow_schema(schema)
        announce(settings.open_queue, epoch, run)
        return BatchWriter(settings.open_queue, epoch, run, columns)

    def streamWriter(  # noqa: N802  # Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001  # Spark's signature
    ) -> DataSourceStreamArrowWriter:
        """Check the options and return a writer; Spark makes one per micro-batch."""
        if overwrite:
            msg = (
                'outputMode must be "append" or "update": staged rows are added, '
                'got "complete"'
            )
            raise ValueError(msg)
        if "batch" in self.options:
            msg = (
                "batch must be left out for a stream, which numbers its batches itself,"
                f" got {shown(self.options['batch'])}"
            )
            raise ValueError(msg)
        settings = Settings.of(self.options)
        return StreamWriter(settings.open_queue, settings.query, arrow_schema(schema))


def _refused() -> BatchQueueError:
    msg = (
        'format("batchqueue") writes and cannot be read: read the table or directory'
        " that its sink has written"
    )
    return BatchQueueError(msg)


@dataclass(frozen=True)
class Settings:
    """The options, checked."""

    open_queue: StagingQueue
    query: str | None
    batch: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        """Read them."""
        options = {key.lower(): value for key, value in options.items()}
        sink, query, batch = (options.get(key) for key in ("sink", "query", "batch"))
        find_factory(sink)
        if query == "":
            refuse("query", "a name", query)
        if batch is not None and query is None:
            msg = f"batch must be given with query, got batch={batch!r} alone"
            raise ValueError(msg)
        if batch is not None and not batch.isdecimal():
            refuse("batch", "a whole number >= 0", batch)
        theirs = tuple(sorted((k, v) for k, v in options.items() if k not in _OWN))
        return cls(StagingQueue(str(sink), theirs), query, int(batch or 0))
