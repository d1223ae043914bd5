"""The rows of the examples in this folder: who looked at which page, for how long."""

from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

ROWS = 10_000
SCHEMA = "page STRING, ms BIGINT"


class View(NamedTuple):
    page: str
    ms: int


def page_views(spark: SparkSession) -> DataFrame:
    """Return 10,000 views of five pages, in four partitions."""
    rows = spark.range(0, ROWS, 1, 4)
    return rows.selectExpr("'/page/' || id % 5 AS page", "id % 100 AS ms")


def page_view_files(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the same as a stream: four files, one in each micro-batch."""
    page_views(spark).write.mode("overwrite").parquet(str(folder))
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return stream.parquet(str(folder))
