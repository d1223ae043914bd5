"""The demo as a Structured Streaming job, which may be killed at any time.

What it needs to go on lies in one folder: the months that it reads and Spark's
checkpoint. The folder is made when the tables are empty, and removed after the proof.
So as long as it is there the tables belong to it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from batchqueue_async.spark import (
    ForeachBatchSink,
    QueryRecord,
    QueueProgressListener,
)
from batchqueue_async.spark.progress_listener import cause_of

from .data import InputFiles
from .events import Event
from .interruption import Interruption
from .months import divide
from .options import Options
from .problems import Problem
from .reading import CSV, FLIGHTS, WEATHER, all_events, events_of, text_columns
from .stream_pipeline import StreamPipeline

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LATEST_TOLD = 10.0
"""Seconds that a busy machine may take to tell of a query's end."""


class Job:
    """One stream, from its first micro-batch to its last, over several processes.

    Args:
        options: What the user asked for.
    """

    def __init__(self, options: Options) -> None:
        self._folder = options.out.resolve() / "stream"
        self._rate = options.events_per_second
        where = options.on_executors
        asked = (options.sample, str(options.data), options.sink, where)
        # As a digest: the sink's URL may hold a password.
        self._settings = hashlib.sha256(json.dumps(asked).encode()).hexdigest()

    def is_unfinished(self) -> bool:
        """Tell whether an earlier process with the same options was not done."""
        with suppress(OSError):
            return (self._folder / "settings").read_text() == self._settings
        return False

    def begin(self, files: InputFiles, empty_tables: Callable[[], None]) -> None:
        """Make the folder; it appears as a whole, and after the tables are empty."""
        self.end()
        new = self._folder.with_name("stream.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        divide(files, new)
        (new / "settings").write_text(self._settings)
        empty_tables()
        new.rename(self._folder)

    def end(self) -> None:
        """Remove the folder: the next stream begins afresh."""
        # The settings first: half of a folder must not look like a job.
        (self._folder / "settings").unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def checkpoint(self, name: str) -> Path:
        """Return the folder of a stream's checkpoint."""
        return self._folder / "checkpoint" / name

    def events(self, spark: SparkSession) -> DataFrame:
        """Return the stream of all events, a month in each micro-batch."""
        flights = self._read(spark, "flights", FLIGHTS)
        weather = self._read(spark, "weather", WEATHER)
        return all_events(flights, weather)

    def run(
        self,
        spark: SparkSession,
        pipeline: StreamPipeline,
        interruption: Interruption,
        say: Callable[[str], None],
    ) -> bool:
        """Process what is left; returns whether nothing is left any more."""
        # What goes wrong in a micro-batch is told in one line, below.
        for name in ("py4j", "batchqueue_async"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        to_items = _paced(events_of, self._rate)
        sink = ForeachBatchSink(pipeline.events, to_items, pipeline.writer)
        is_told = threading.Event()
        listener = QueueProgressListener(pipeline.events, _teller(say, is_told))
        spark.streams.addListener(listener)
        try:
            query = self._start(spark, sink)
            is_done = _wait_for(query, interruption)
        except StreamingQueryException as error:
            msg = (
                f"the stream stopped; the same command goes on: {cause_of(str(error))}"
            )
            raise Problem(msg) from error
        else:
            # Spark tells of the last micro-batch some time after the query has ended.
            is_told.wait(_LATEST_TOLD)
            return is_done
        finally:
            spark.streams.removeListener(listener)

    def _start(
        self, spark: SparkSession, sink: ForeachBatchSink[Event]
    ) -> StreamingQuery:
        return (
            self.events(spark)
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(self.checkpoint("all")))
            .trigger(availableNow=True)
            .start()
        )

    def _read(self, spark: SparkSession, name: str, query: str) -> DataFrame:
        folder = self._folder / name
        schema = text_columns(next(folder.iterdir()))
        stream = spark.readStream.option("maxFilesPerTrigger", 1)
        stream.csv(str(folder), schema, **CSV).createOrReplaceTempView("months")
        return spark.sql(query.format(source="months"))


def _wait_for(query: StreamingQuery, interruption: Interruption) -> bool:
    while not query.awaitTermination(1):
        if interruption.is_requested:
            query.stop()
            return False
    return True


def _paced(
    events_of: Callable[[pa.RecordBatch], Iterable[Event]], rate: float | None
) -> Callable[[pa.RecordBatch], Iterable[Event]]:
    if rate is None:
        return events_of

    def paced(batch: pa.RecordBatch) -> Iterator[Event]:
        started = time.monotonic()
        for number, event in enumerate(events_of(batch)):
            if number % 100 == 0:
                time.sleep(max(0, started + number / rate - time.monotonic()))
            yield event

    return paced


def _teller(
    say: Callable[[str], None], is_told: threading.Event
) -> Callable[[QueryRecord], None]:
    def tell(record: QueryRecord) -> None:
        if record.event == "terminated":
            is_told.set()
        if record.event == "progress":
            found = record.attributes
            say(
                f"Micro-batch {found['spark.query.batch_id']}:"
                f" {found['spark.query.input_rows']:,} rows in"
                f" {found['spark.query.batch_seconds']:.1f} s, committed."
            )

    return tell
