"""Frames through queues on executors: batch, stream, and with a killed worker."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from batchqueue_async.spark import map_partitions_with_queue
from tests.spark.emitting.pipeline import sums

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.real_time, pytest.mark.spark]

ROOT = Path(__file__).parents[3]
SUMS = "k BIGINT, total BIGINT"


def totals(frame: "DataFrame") -> dict[int, int]:
    return {row.k: row["sum(total)"] for row in frame.groupBy("k").sum().collect()}


def pairs(spark: "SparkSession", rows: int = 10_000) -> "DataFrame":
    return spark.range(0, rows, 1, 3).selectExpr("id % 7 AS k", "id AS total")


def expected(rows: int = 10_000) -> dict[int, int]:
    return {k: sum(range(k, rows, 7)) for k in range(7)}


def test_each_partition_is_merged_before_the_shuffle(spark: "SparkSession") -> None:
    merged = map_partitions_with_queue(pairs(spark), sums, SUMS)

    assert merged.schema.simpleString() == "struct<k:bigint,total:bigint>"
    rows = merged.collect()
    assert len(rows) == 7 * 3
    again = map_partitions_with_queue(merged.repartition(2, "k"), sums, SUMS)
    assert {row.k: row.total for row in again.collect()} == expected()
    assert again.count() == 7


@pytest.mark.slow
def test_a_stream_s_micro_batches_are_merged_each(
    spark: "SparkSession", tmp_path: Path
) -> None:
    source = str(tmp_path / "in")
    pairs(spark).write.parquet(source)
    stream = spark.readStream.schema(SUMS).option("maxFilesPerTrigger", 1)
    merged = map_partitions_with_queue(stream.parquet(source), sums, SUMS)
    assert merged.isStreaming

    out = merged.writeStream.format("parquet").trigger(availableNow=True)
    out = out.option("checkpointLocation", str(tmp_path / "checkpoint"))
    out.start(str(tmp_path / "out")).awaitTermination(60)

    made = spark.read.parquet(str(tmp_path / "out"))
    assert made.count() == 7 * 3
    assert totals(made) == expected()


def test_rows_that_nobody_wants_are_no_failure(spark: "SparkSession") -> None:
    merged = map_partitions_with_queue(pairs(spark), sums, SUMS)

    assert len(merged.limit(2).collect()) == 2


def failing(loop_thread: Any, _: Any) -> Any:  # noqa: ANN401 - an `open_queue`
    def consume(_: list[Any]) -> None:
        msg = "these can't be handled"
        raise LookupError(msg)

    return loop_thread.open("failing", handlers={tuple: consume})


def test_what_a_handler_raises_fails_the_job(spark: "SparkSession") -> None:
    from pyspark.errors import PythonException  # noqa: PLC0415  # slow

    merged = map_partitions_with_queue(pairs(spark), failing, SUMS)

    with pytest.raises(PythonException, match=r"in queue 'failing'; first: .*can't be"):
        merged.collect()


@pytest.mark.parametrize(
    "arguments,says",
    [
        ({"df": 5}, "df must be a DataFrame, got 5"),
        ({"open_queue": 5}, "open_queue must be callable.*, got 5"),
        ({"to_items": 5}, "to_items must be callable.*, got 5"),
        ({"schema": 5}, "schema must be a StructType, or columns in DDL .* got 5"),
        ({"schema": "k INT, K INT"}, "columns whose names differ, not only in case"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(
    spark: "SparkSession", arguments: dict[str, Any], says: str
) -> None:
    given: dict[str, Any] = {"df": spark.range(1), "open_queue": sums, "schema": SUMS}

    with pytest.raises((TypeError, ValueError), match=says):
        map_partitions_with_queue(**{**given, **arguments})


PROGRAM = """
import sys
from batchqueue_async.spark import map_partitions_with_queue
from tests.spark.emitting.pipeline import Dying, sums
from tests.spark.emitting.test_map_partitions import SUMS, expected, pairs, totals
from tests.spark.executor.elsewhere import session

master, marker = sys.argv[1:]
spark = session(master)
opening = sums if master == "connect" else Dying(marker)
merged = map_partitions_with_queue(pairs(spark), opening, SUMS)
assert totals(merged) == expected(), totals(merged)
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "connect"])
def test_on_executors_one_of_which_dies_and_over_connect(
    tmp_path: Path, master: str
) -> None:
    """What a killed worker had emitted comes once, from the task's next attempt."""
    marker = tmp_path / "marker"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, master, str(marker)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    assert marker.exists() == (master != "connect")
