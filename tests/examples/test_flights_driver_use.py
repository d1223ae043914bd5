"""What the demo says of its driver grows when rows are collected there."""

from typing import TYPE_CHECKING

import pytest

from examples.flights.driver_use import DriverUse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.real_time]

ROWS = 200_000


def test_collected_rows_are_seen(spark: "SparkSession") -> None:
    frame = spark.range(0, ROWS, 1, 3)
    before = DriverUse.of(spark)
    frame.write.format("noop").mode("overwrite").save()
    written = DriverUse.of(spark)
    frame.toArrow()
    collected = DriverUse.of(spark)

    assert written.tasks - before.tasks == 3
    assert 0 < written.received - before.received < 30_000
    assert collected.received - written.received > 8 * ROWS
    assert before.heap is None  # The executors' rows are in it.
    told = collected.told_since(before)
    assert told.startswith("The driver: 6 tasks have sent it ")
    assert "JVM" not in told
