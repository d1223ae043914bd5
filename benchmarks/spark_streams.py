"""Streams of files for the benchmarks: every micro-batch is one file."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.spark_setup import COUNTING, frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_FILES = 3

Function = Callable[["DataFrame", int], object]
Choose = Callable[["DataStreamWriter"], "DataStreamWriter"]
Sample = tuple[float, float]
"""Seconds on the clock, and CPU seconds of this process."""


class Streams:
    """Runs a query over the same files, again and again.

    Args:
        spark: The session.
        rows: How many a micro-batch has.
        folder: Where files and checkpoints go.
        partitions: How many files make a micro-batch, read by as many tasks.
    """

    def __init__(
        self, spark: "SparkSession", rows: int, folder: Path, partitions: int = 1
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._files = folder / "files"
        self._schema = frame_of(spark, 1, 1).schema
        self._partitions = partitions
        self.rows = rows
        self.batches = _FILES
        for number in range(_FILES):
            path = self._files / f"{number}"
            frame_of(spark, rows, partitions).write.parquet(str(path))

    def foreach_batch(self, function: Function) -> list[Sample]:
        """Return what the function's calls took, without the first, which warms up."""
        samples: list[Sample] = []

        def timed(df: "DataFrame", batch: int) -> None:
            started, cpu = time.perf_counter(), time.process_time()
            function(df, batch)
            took = time.perf_counter() - started, time.process_time() - cpu
            samples.append(took)

        self._run(lambda stream: stream.foreachBatch(timed))
        return samples[1:]

    def data_source(self) -> list[float]:
        """Return each micro-batch's seconds, Spark's part included; not the first's."""
        return self.durations(
            lambda stream: stream.format("batchqueue").option("sink", COUNTING)
        )

    def durations(self, choose: Choose) -> list[float]:
        """Return the same for a stream into whatever is chosen."""
        return [milliseconds / 1000 for milliseconds in self._run(choose)[1:]]

    def _run(self, choose: Choose) -> list[int]:
        with tempfile.TemporaryDirectory(dir=self._folder) as checkpoint:
            stream = (
                self._spark.readStream.schema(self._schema)
                .option("maxFilesPerTrigger", self._partitions)
                .parquet(f"{self._files}/*")
                .writeStream.option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
            )
            query = choose(stream).start()
            query.awaitTermination()
            return [each["batchDuration"] for each in query.recentProgress]
