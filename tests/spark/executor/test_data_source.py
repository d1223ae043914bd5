"""`format("batchqueue")` for batch writes: all of it once, or nothing."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from batchqueue_async.spark.staging import StagingQueue
from tests.spark.executor.probes import FAULTY, NOT_A_SINK, PARQUET

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

pytestmark = [pytest.mark.real_time, pytest.mark.spark]


def writer(frame: "DataFrame", sink: str, **options: object) -> "DataFrameWriter":
    made = frame.write.format("batchqueue").mode("append").option("sink", sink)
    for name, value in options.items():
        made = made.option(name, str(value))
    return made


def ids(spark: "SparkSession", folder: Path) -> list[int]:
    """What anybody sees who reads the directory."""
    if not list(folder.glob("batchqueue_epoch=*")):
        return []
    frame = spark.read.parquet(str(folder)).select("id")
    return sorted(row.id for row in frame.collect())


def staged(folder: Path) -> list[Path]:
    return [path for path in folder.glob("_staged/**/*") if path.is_file()]


def test_its_options_are_not_shown() -> None:
    queue = StagingQueue("module:factory", (("url", "postgresql://u:hunter2@h/d"),))

    assert "hunter2" not in repr(queue)
    assert pickle.loads(pickle.dumps(queue)) == queue


def test_rows_arrive_once_with_their_types(
    spark: "SparkSession", tmp_path: Path
) -> None:
    frame = spark.range(0, 1000, 1, 4).selectExpr(
        "id", "CAST(id AS STRING) AS s", "timestamp_micros(id) AS t", "array(id) AS a"
    )

    for _ in range(2):
        writer(frame, PARQUET, directory=tmp_path).save()

    seen = spark.read.parquet(str(tmp_path)).drop("batchqueue_epoch")
    assert seen.dtypes == frame.dtypes
    assert ids(spark, tmp_path) == sorted([*range(1000), *range(1000)])
    assert seen.filter("s = '999' AND a[0] = 999").count() == 2
    assert staged(tmp_path) == []


def test_a_named_write_that_comes_again_changes_nothing(
    spark: "SparkSession", tmp_path: Path
) -> None:
    frame = spark.range(0, 10, 1, 2)
    named = {"directory": tmp_path, "query": "nightly"}

    writer(frame, PARQUET, **named).save()
    writer(frame.repartition(3), PARQUET, **named).save()
    writer(frame, PARQUET, **named, batch=1).save()

    assert ids(spark, tmp_path) == sorted([*range(10), *range(10)])
    assert staged(tmp_path) == []


def test_sql_can_write_into_it(spark: "SparkSession", tmp_path: Path) -> None:
    spark.sql("CREATE TABLE into_queue (id BIGINT) USING batchqueue")
    try:
        # The options of the table don't reach a Python data source.
        spark.sql(
            f"INSERT INTO into_queue WITH ('sink' = '{PARQUET}', "
            f"'directory' = '{tmp_path}') SELECT id FROM range(5)"
        )
    finally:
        spark.sql("DROP TABLE into_queue")

    assert ids(spark, tmp_path) == [0, 1, 2, 3, 4]


def test_options_of_a_table_in_sql_are_told_to_belong_to_the_statement(
    spark: "SparkSession", tmp_path: Path
) -> None:
    options = f"sink '{PARQUET}', directory '{tmp_path}'"
    spark.sql(f"CREATE TABLE told (id BIGINT) USING batchqueue OPTIONS ({options})")
    says = "sink must be given as an option, got None: in SQL with the statement"
    try:
        with pytest.raises(Exception, match=says):
            spark.sql("INSERT INTO told SELECT id FROM range(5)")
        with pytest.raises(Exception, match=r"with writeTo.* not insertInto"):
            spark.range(5).write.option("sink", PARQUET).insertInto("told")
        written = spark.range(5).writeTo("told").option("sink", PARQUET)
        written.option("directory", str(tmp_path)).append()
    finally:
        spark.sql("DROP TABLE told")

    assert ids(spark, tmp_path) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("fault", ["stage", "seal", "publish"])
def test_a_failed_write_leaves_nothing(
    spark: "SparkSession", tmp_path: Path, fault: str
) -> None:
    faulty = writer(
        spark.range(0, 100, 1, 4), FAULTY, directory=tmp_path, fault=fault, partition=2
    )
    if fault == "publish":
        faulty = faulty.option("partition", "-1")

    with pytest.raises(Exception, match=f"planted at {fault}"):
        faulty.save()

    assert ids(spark, tmp_path) == []
    assert staged(tmp_path) == []


@pytest.mark.parametrize("fault", ["stage", "publish"])
def test_what_failed_is_told_where_nothing_can_be_removed(
    spark: "SparkSession", tmp_path: Path, fault: str
) -> None:
    """As on a full disk, or where the server is gone; Spark would hide the cause."""
    faulty = writer(
        spark.range(0, 100, 1, 4), FAULTY, directory=tmp_path, fault=fault, stuck="true"
    )

    with pytest.raises(PySparkException, match=f"planted at {fault}"):
        faulty.save()

    assert ids(spark, tmp_path) == []


def test_rows_that_cannot_be_computed_leave_nothing(
    spark: "SparkSession", tmp_path: Path
) -> None:
    def broken(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        msg = "no more rows"
        raise RuntimeError(msg)

    frame = spark.range(0, 100, 1, 1)

    with pytest.raises(Exception, match="no more rows"):
        writer(
            frame.mapInArrow(broken, frame.schema), PARQUET, directory=tmp_path
        ).save()

    assert ids(spark, tmp_path) == []
    assert staged(tmp_path) == []


@pytest.mark.parametrize(
    "options, told",
    [
        (
            {"sink": "nothing"},
            'sink must be "parquet", "postgres", "sqlite" or "package.module:factory",',
        ),
        (
            {"sink": "parquet", "directory": "d", "row_groups": "5"},
            "has the options directory, row_group, compression, got 'row_groups'",
        ),
        ({"sink": "parquet", "directory": "d", "row_group": "x"}, "row_group must be"),
        (
            {"sink": "postgres", "url": "x", "tabel": "t"},
            "has the options url, table, on_conflict, .* got 'tabel'",
        ),
        ({"sink": "no.such:name"}, "sink must name a factory .* got 'no.such:name'"),
        ({"sink": "json:nope"}, "sink must name a factory .* got 'json:nope'"),
        ({"sink": "sys:path"}, "sink must name something callable, got 'sys:path'"),
        ({"sink": PARQUET, "batch": "1"}, "batch must be given with query, got batch"),
        ({"sink": PARQUET, "query": "q", "batch": "-1"}, "batch must be .* got '-1'"),
        ({"sink": PARQUET, "query": ""}, "query must be a name, got ''"),
        ({"sink": PARQUET}, "directory must be given as an option, got None"),
        ({"sink": NOT_A_SINK}, "must return a StagedSink"),
    ],
)
def test_wrong_options_are_named(
    spark: "SparkSession", options: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        spark.range(1).write.format("batchqueue").options(**options).mode(
            "append"
        ).save()


def test_a_built_in_sink_has_a_short_name(
    spark: "SparkSession", tmp_path: Path
) -> None:
    frame = spark.range(0, 9, 1, 2)

    writer(frame, "parquet", directory=tmp_path, row_group=3, compression="none").save()

    assert ids(spark, tmp_path) == [*range(9)]


def test_parquet_that_spark_would_not_read_again_is_refused(
    spark: "SparkSession", tmp_path: Path
) -> None:
    frame = spark.sql("SELECT 1L AS id, 2L AS ID")
    told = "'ID' must have another name than 'id', from which it differs in case only"

    with pytest.raises(Exception, match=told):
        writer(frame, "parquet", directory=tmp_path).save()
    assert ids(spark, tmp_path) == []

    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        writer(frame, "parquet", directory=tmp_path).save()
        writer(frame.limit(0), "parquet", directory=tmp_path).save()
        assert ids(spark, tmp_path) == [1]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_reading_is_refused_with_a_sentence(spark: "SparkSession") -> None:
    with pytest.raises(Exception, match="writes and cannot be read: read the table"):
        spark.read.format("batchqueue").load()
    with pytest.raises(Exception, match="writes and cannot be read: read the table"):
        spark.read.format("batchqueue").schema("id INT").load().collect()
    with pytest.raises(Exception, match="writes and cannot be read: read the table"):
        spark.readStream.format("batchqueue").load()


def test_overwriting_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(Exception, match='mode must be "append"'):
        writer(spark.range(1), PARQUET, directory=tmp_path).mode("overwrite").save()
