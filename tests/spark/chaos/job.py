"""The driver process under test: one streaming query until it fails or is killed.

python -m tests.spark.chaos.job '{"way": ..., ...}'
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from batchqueue_async.spark import ensure_java
from examples.spark_session import SETTINGS
from tests.spark.chaos.checkpoint import ROWS_PER_SECOND
from tests.spark.chaos.halts import FOLDER, halt
from tests.spark.chaos.ways import WAYS
from tests.support.cluster import ROOT, java_options

if TYPE_CHECKING:
    import pyarrow as pa

FILES_PER_BATCH = 4


@dataclass(frozen=True)
class Job:
    """What a driver process is told; all but the last two is the same at each start."""

    way: str
    source: str
    master: str
    dsn: str
    table: str
    checkpoint: str
    files: str
    halts: str
    cores: int = 2
    parallelism: int = 2

    def to_json(self) -> str:
        """The process's argument."""
        return json.dumps(asdict(self))


def main() -> None:
    """Run the job that the only argument describes."""
    job = Job(**json.loads(sys.argv[1]))
    spark = open_session(job)
    frame = read(spark, job)
    WAYS[job.way](frame, job.dsn, job.table, job.checkpoint)


def open_session(job: Job) -> SparkSession:
    """Connect to the cluster with the job's number of cores and parallelism."""
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    java = " ".join(java_options(Path(tempfile.gettempdir())))
    settings = SETTINGS | {
        "spark.cores.max": str(job.cores),
        "spark.default.parallelism": str(job.parallelism),
        "spark.driver.extraJavaOptions": java,
        "spark.driver.memory": "512m",
        "spark.executor.extraJavaOptions": java,
        "spark.executor.memory": "512m",
        f"spark.executorEnv.{FOLDER}": job.halts,
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        # Small files are then cut by parallelism, as big ones always are.
        "spark.sql.files.openCostInBytes": "1",
        # The oracle reads the whole log.
        "spark.sql.streaming.minBatchesToRetain": "1000000",
    }
    builder = SparkSession.builder.appName("chaos").master(job.master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read(spark: SparkSession, job: Job) -> DataFrame:
    """The stream of ids, through a Python worker."""
    if job.source == "rate":
        stream = spark.readStream.format("rate").option(
            "rowsPerSecond", ROWS_PER_SECOND
        )
        frame = stream.load().selectExpr("value AS id")
    else:
        files = spark.readStream.schema("id long")
        frame = files.option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(job.files)
    return frame.mapInArrow(_pass_on, "id long")


def _pass_on(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    for batch in batches:
        halt("in a task")
        yield batch


if __name__ == "__main__":
    main()
