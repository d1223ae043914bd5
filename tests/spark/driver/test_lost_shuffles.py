"""Shuffled rows are lost between the jobs that fetch them, as with an executor."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.spark import arrow_batches, whole_frame
from batchqueue_async.spark._shuffles import Shuffles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.real_time]

ROWS = 2_000
CHECKSUMS = [
    f"spark.sql.shuffle.orderIndependentChecksum.{name}"
    for name in ("enabled", "enableFullRetryOnMismatch")
]


def by_chance(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give each row another place with each computation."""
    for batch in batches:
        places = pa.array([*os.urandom(batch.num_rows)], pa.int64())
        yield pa.RecordBatch.from_arrays([batch.column(0), places], ["id", "place"])


def ids_around_a_loss(df: "DataFrame") -> list[int]:
    """Fetch a frame; after the first record batch all shuffled rows are gone."""
    shuffled = df._jdf.toArrowBatchRdd()
    batches = arrow_batches(df)
    ids: list[int] = next(batches).column("id").to_pylist()
    # What has been fetched ahead by now is of the first computation, too.
    shuffles = Shuffles(df.sparkSession, shuffled)
    for shuffle in shuffles._found():
        shuffles._tracker().unregisterAllMapAndMergeOutput(shuffle)
    for batch in batches:
        ids += batch.column("id").to_pylist()
    return ids


def test_rows_that_come_out_otherwise_are_no_rows(spark: "SparkSession") -> None:
    df = spark.range(0, ROWS, 1, 3).mapInArrow(by_chance, "id LONG, place LONG")

    with pytest.raises(BatchQueueError, match="came out otherwise"):
        ids_around_a_loss(df.repartition(40, "place"))


def test_rows_that_come_out_the_same_go_on(spark: "SparkSession") -> None:
    df = spark.range(0, ROWS, 1, 3).repartition(40, "id").union(spark.range(3))

    ids = ids_around_a_loss(df)

    assert sorted(ids) == sorted([*range(ROWS), 0, 1, 2])


def test_without_checksums_a_warning_says_what_nobody_knows(
    spark: "SparkSession", caplog: pytest.LogCaptureFixture
) -> None:
    for name in CHECKSUMS:
        spark.conf.set(name, "false")
    try:
        df = spark.range(0, ROWS, 1, 3).mapInArrow(by_chance, "id LONG, place LONG")
        assert ids_around_a_loss(df.repartition(40, "place"))
    finally:
        for name in CHECKSUMS:
            spark.conf.unset(name)

    (said,) = [each.getMessage() for each in caplog.records]
    assert f"nobody knows, since {CHECKSUMS[0]} is off" in said


def test_one_job_has_nothing_to_compare(spark: "SparkSession") -> None:
    df = spark.range(0, ROWS, 1, 3).mapInArrow(by_chance, "id LONG, place LONG")

    batches = whole_frame(df.repartition(40, "place"))

    assert sum(batch.num_rows for batch in batches) == ROWS
