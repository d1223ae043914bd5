"""`writeStream.format("batchqueue")`: each micro-batch once, whatever happens."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from batchqueue_async import BatchQueueError
from tests.spark.executor.probes import FAULTY, PARQUET
from tests.spark.executor.test_data_source import ids, staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.real_time, pytest.mark.spark]

ROWS = list(range(60))


@pytest.fixture
def source(spark: "SparkSession", tmp_path: Path) -> "DataFrame":
    """Three files of 20 rows, one per micro-batch."""
    folder = tmp_path / "in"
    for start in (0, 20, 40):
        spark.range(start, start + 20, 1, 1).write.mode("append").parquet(str(folder))
    stream = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1)
    return stream.parquet(str(folder))


def run(
    frame: "DataFrame", home: Path, sink: str, **options: object
) -> "StreamingQuery":
    """Run the query until it has read everything, or fails."""
    made = frame.writeStream.format("batchqueue").option("sink", sink)
    made = made.option("checkpointLocation", f"{home / 'checkpoint'}")
    made = made.option("directory", f"{home / 'out'}")
    for name, value in options.items():
        made = made.option(name, str(value))
    query = made.trigger(availableNow=True).start()
    query.awaitTermination(60)
    return query


def test_each_micro_batch_is_an_epoch(
    spark: "SparkSession", source: "DataFrame", tmp_path: Path
) -> None:
    query = run(source, tmp_path, PARQUET)

    folders = sorted(
        path.name for path in (tmp_path / "out").glob("batchqueue_epoch=*")
    )
    assert folders == [f"batchqueue_epoch={query.id}-{batch:08d}" for batch in range(3)]
    assert ids(spark, tmp_path / "out") == ROWS
    assert staged(tmp_path / "out") == []


def test_a_batch_that_spark_delivers_again_changes_nothing(
    spark: "SparkSession", source: "DataFrame", tmp_path: Path
) -> None:
    """As after a crash between our commit and Spark's, with another parallelism."""
    run(source, tmp_path, PARQUET)
    (tmp_path / "checkpoint" / "commits" / "2").unlink()
    (tmp_path / "checkpoint" / "commits" / ".2.crc").unlink()

    again = run(source.repartition(3), tmp_path, PARQUET)

    assert [each["batchId"] for each in again.recentProgress] == [2]
    assert ids(spark, tmp_path / "out") == ROWS
    assert staged(tmp_path / "out") == []


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("stage", marks=pytest.mark.slow),
        pytest.param("sealed", marks=pytest.mark.slow),
        pytest.param("publish", marks=pytest.mark.slow),
        "published",
    ],
)
def test_a_failed_batch_is_retried_by_the_restart(
    spark: "SparkSession", source: "DataFrame", tmp_path: Path, fault: str
) -> None:
    frame = source.repartition(2)
    marker = tmp_path / "marker"

    with pytest.raises(Exception, match=f"planted at {fault}"):
        run(frame, tmp_path, FAULTY, fault=fault, marker=marker)
    assert ids(spark, tmp_path / "out") == (ROWS[:20] if fault == "published" else [])
    run(source.repartition(3), tmp_path, FAULTY, fault=fault, marker=marker)

    assert ids(spark, tmp_path / "out") == ROWS
    assert staged(tmp_path / "out") == []


@pytest.mark.slow
def test_rows_that_the_store_has_lost_end_the_query_until_it_is_restarted(
    spark: "SparkSession", source: "DataFrame", tmp_path: Path
) -> None:
    """Spark runs tasks again, never a commit: somebody has to start the query."""
    marker = tmp_path / "marker"

    with pytest.raises(Exception, match="20 rows were sealed, but 0 are staged"):
        run(source, tmp_path, FAULTY, fault="lost", marker=marker)
    assert ids(spark, tmp_path / "out") == []
    run(source.repartition(3), tmp_path, FAULTY, fault="lost", marker=marker)

    assert ids(spark, tmp_path / "out") == ROWS
    assert staged(tmp_path / "out") == []


@pytest.mark.slow
def test_a_name_takes_the_place_of_the_checkpoints_id(
    spark: "SparkSession", source: "DataFrame", tmp_path: Path
) -> None:
    run(source, tmp_path, PARQUET, query="mine")
    for name in ("2", ".2.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    run(source, tmp_path, PARQUET, query="mine")

    assert (tmp_path / "out" / "batchqueue_epoch=mine-00000002").is_dir()
    assert ids(spark, tmp_path / "out") == ROWS


def test_a_second_stream_of_one_query_is_refused_and_loses_nothing(
    spark: "SparkSession", source: "DataFrame", tmp_path: Path
) -> None:
    """Its batches were skipped as repetitions of the first one's, with a warning."""
    run(source, tmp_path, PARQUET, query="mine")
    (tmp_path / "checkpoint").rename(tmp_path / "first")
    told = "query must be one stream's alone, got 'mine': its batch 0 was written by"
    with pytest.raises(Exception, match=told):
        run(source.repartition(2), tmp_path, PARQUET, query="mine")
    assert ids(spark, tmp_path / "out") == ROWS
    assert staged(tmp_path / "out") == []

    run(source, tmp_path, PARQUET, query="second")
    assert ids(spark, tmp_path / "out") == sorted(ROWS * 2)


@pytest.mark.slow
def test_a_new_checkpoint_with_the_old_ones_id_is_the_same_stream(
    spark: "SparkSession", source: "DataFrame", tmp_path: Path
) -> None:
    """Whoever wants his batches to count deletes all of it but the metadata."""
    run(source, tmp_path, PARQUET, query="mine")
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "lost" / "metadata").rename(tmp_path / "checkpoint" / "metadata")

    again = run(source, tmp_path, PARQUET, query="mine")

    assert [each["batchId"] for each in again.recentProgress] == [0, 1, 2]
    assert ids(spark, tmp_path / "out") == ROWS


def test_what_cannot_be_exact_is_refused(source: "DataFrame", tmp_path: Path) -> None:
    with pytest.raises(Exception, match="batch must be left out for a stream"):
        run(source, tmp_path, PARQUET, batch=3)
    counts = source.groupBy("id").count().writeStream.outputMode("complete")
    counts = counts.format("batchqueue").option("sink", PARQUET)
    counts = counts.option("checkpointLocation", f"{tmp_path / 'other'}")

    with pytest.raises(
        Exception, match=r'outputMode must be "append": .* ForeachBatch'
    ):
        counts.option("directory", str(tmp_path)).trigger(
            availableNow=True
        ).start().awaitTermination(60)


@pytest.mark.slow
def test_a_continuous_trigger_publishes_and_commits_nothing(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Spark 4.3 gives the rows to nobody and asks for commits all the same.

    It logs what a commit raises and goes on, so that a query can't be ended from there.
    But it must not believe that rows arrived.
    """
    from batchqueue_async.spark.data_source import BatchQueueSource  # noqa: PLC0415

    checkpoint = tmp_path / "checkpoint"
    rate = spark.readStream.format("rate").option("numPartitions", 1).load()
    made = rate.writeStream.format("batchqueue").option("sink", PARQUET)
    made = made.option("directory", f"{tmp_path / 'out'}")
    made = made.option("checkpointLocation", str(checkpoint))
    query = made.trigger(continuous="1 second").start()
    try:
        until = time.monotonic() + 30
        while not (checkpoint / "offsets" / "2").exists():
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        query.stop()
    assert list((checkpoint / "commits").glob("[0-9]*")) == []
    assert not (tmp_path / "out").exists()

    source = BatchQueueSource({"sink": PARQUET, "directory": str(tmp_path / "out")})
    with pytest.raises(BatchQueueError, match=r"2 partitions, .* staged 0; a str"):
        source.streamWriter(rate.schema, overwrite=False).commit([None, None], 0)
