"""Spark's `Observation` of a frame is complete when its rows have come."""

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pytest
from pyspark.sql import Observation
from pyspark.sql.functions import count, lit

from batchqueue_async.spark import arrow_batches, whole_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.real_time]

PATIENCE = 30.0
Fetch: TypeAlias = "Callable[[DataFrame], Iterator[pa.RecordBatch]]"


@pytest.mark.parametrize("fetch", [arrow_batches, whole_frame])
@pytest.mark.parametrize("columns", [["id"], ["id", "ARRAY(id) AS ids"]])
def test_it_has_what_it_counted(
    spark: "SparkSession", fetch: Fetch, columns: list[str]
) -> None:
    observation, got = Observation(), []
    frame = spark.range(0, 100, 1, 4).selectExpr(*columns)
    observed = frame.observe(observation, count(lit(1)).alias("rows"))

    rows = sum(batch.num_rows for batch in fetch(observed))

    # It blocks until Spark has told it, so not on this thread.
    thread = threading.Thread(target=lambda: got.append(observation.get), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert (rows, got) == (100, [{"rows": 100}])
