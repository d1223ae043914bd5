"""Rows come to the driver as columns, in order, with their types."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from batchqueue_async.spark import arrow_batches, to_tuples, whole_frame

pytestmark = [pytest.mark.spark, pytest.mark.real_time]

Fetch = Callable[[DataFrame], Iterator[pa.RecordBatch]]
both = pytest.mark.parametrize("fetch", [arrow_batches, whole_frame])


@both
def test_rows_come_in_their_order(spark: SparkSession, fetch: Fetch) -> None:
    df = spark.range(0, 25_000, 1, 3)

    numbers = [
        number for batch in fetch(df) for number in batch.column("id").to_pylist()
    ]

    assert numbers == [*range(25_000)]
    assert max(batch.num_rows for batch in fetch(df)) <= 10_000


@both
def test_types_are_kept(spark: SparkSession, fetch: Fetch) -> None:
    df = spark.sql(
        """SELECT TIMESTAMP'2013-01-01 05:00:00+01:00' AS at,
        TIMESTAMP_NTZ'2013-01-01 05:00:00' AS local, DATE'2013-01-01' AS day,
        CAST(1.50 AS DECIMAL(9, 2)) AS price, ARRAY(1, 2) AS list,
        NAMED_STRUCT('x', 1) AS struct, X'00FF' AS bytes, CAST(NULL AS DOUBLE) AS none
        UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1.5"""
    )

    table = pa.Table.from_batches(fetch(df.coalesce(1).orderBy("day")))

    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table.schema.field("local").type == pa.timestamp("us")
    rows = table.to_pylist()
    assert rows[0]["none"] == 1.5
    assert rows[1]["at"] == datetime(2013, 1, 1, 4, tzinfo=UTC)
    assert (rows[1]["list"], rows[1]["struct"]) == ([1, 2], {"x": 1})


def test_both_have_the_same_types_and_rows(spark: SparkSession) -> None:
    """`whole_frame` fetches columns without parts another way: zones as well."""
    columns = """TIMESTAMP'2013-01-01 05:00:00' AS at, TIMESTAMP_NTZ'2013-01-01' AS ntz,
        DATE'2013-01-01' AS day, 1.50BD AS price, X'00FF' AS bytes, TRUE AS yes,
        'x' AS `a.b`, 1Y AS i8, 2S AS i16, 3 AS i32, 4L AS i64, 5F AS f32, 6D AS f64,
        CAST(NULL AS TIMESTAMP) AS none, 'y' AS YES, CAST('z' AS CHAR(3)) AS padded"""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        df = spark.range(0, 3, 1, 2).selectExpr(*columns.split(","), "id")
        by_parts, at_once = list(arrow_batches(df)), list(whole_frame(df))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))

    assert at_once == by_parts
    assert [batch.schema for batch in at_once] == [batch.schema for batch in by_parts]
    assert at_once[0].schema.field("at").type.tz == "Asia/Kathmandu"


@both
@pytest.mark.parametrize("parts", ["'none'", "ARRAY('none')"])
def test_texts_are_as_large_as_the_session_has_them(
    spark: SparkSession, fetch: Fetch, parts: str
) -> None:
    """Read with the wrong width of offsets they were others, mostly empty ones."""
    setting = "spark.sql.execution.arrow.useLargeVarTypes"
    df = spark.range(0, 3, 1, 1).selectExpr(
        "REPEAT('ab', id + 1) AS text", "ENCODE(id, 'UTF-8') AS raw", f"{parts} AS more"
    )
    expected = [tuple(row) for row in df.collect()]
    spark.conf.set(setting, "true")
    try:
        (batch,) = fetch(df)
    finally:
        spark.conf.unset(setting)

    assert [*to_tuples(batch)] == expected
    kinds = [pa.large_string(), pa.large_binary()]
    assert [field.type for field in batch.schema][:2] == kinds


@both
def test_tasks_have_the_sessions_settings(spark: SparkSession, fetch: Fetch) -> None:
    """A format that is a column's is looked up by tasks; "u" was Sunday's 7 once."""
    policy = "spark.sql.legacy.timeParserPolicy"
    df = spark.range(1).selectExpr(
        "date_format(DATE'2023-01-01', IF(id = 0, 'u', '')) AS day", "ARRAY(id) AS ids"
    )
    spark.conf.set(policy, "LEGACY")
    try:
        days = [each for batch in fetch(df) for each in batch.column("day").to_pylist()]
    finally:
        spark.conf.unset(policy)

    assert days == ["7"]


@both
def test_an_empty_frame_has_no_batches(spark: SparkSession, fetch: Fetch) -> None:
    assert list(fetch(spark.range(0))) == []


def test_it_may_be_left_early(spark: SparkSession) -> None:
    batches = arrow_batches(spark.range(0, 1_000_000, 1, 8))
    assert next(batches).num_rows
    batches.close()  # type: ignore[attr-defined]

    assert sum(batch.num_rows for batch in arrow_batches(spark.range(5))) == 5


def test_what_is_left_early_is_cancelled(spark: SparkSession) -> None:
    """The partitions that Spark computes ahead would take an hour."""

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.column(0)[0].as_py():
                time.sleep(3600)
            yield batch

    batches = arrow_batches(spark.range(0, 3, 1, 3).mapInArrow(slow, "id LONG"))
    assert next(batches).num_rows

    batches.close()  # type: ignore[attr-defined]

    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []


@pytest.mark.slow
def test_the_jvm_keeps_nothing_of_it(spark: SparkSession) -> None:
    """Spark 4.3's `DataFrame.toLocalIterator` keeps all of it: 3 x 20 MB here."""
    runtime = spark._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
    df = spark.range(0, 10_000, 1, 4).selectExpr("id", "repeat('x', 2000) AS text")

    def read() -> None:
        assert sum(batch.num_rows for batch in arrow_batches(df)) == 10_000

    def megabytes() -> float:
        spark._jvm.java.lang.System.gc()  # type: ignore[union-attr]
        return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6

    read()
    first = megabytes()
    for _ in range(3):
        read()
    # What Spark's threads still clear away after a look at it is gone at a later one.
    for number in range(10):
        time.sleep(0.2 * number)
        if (more := megabytes() - first) < 20:
            break
    assert more < 20
