"""Calls inside of frames: batch and streaming, by processes that are used again."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas
import pytest
from pyspark.sql.types import ArrayType, NullType, StructField, StructType

from batchqueue_async import Retry
from batchqueue_async.spark import CallCounts, call_counts, map_async, to_batches
from tests.spark.calls.in_spark import (
    AnsweringFirst,
    Client,
    FailingOnce,
    process_of,
    tenfold,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.real_time, pytest.mark.spark]

SCHEMA = "id BIGINT, y BIGINT"


def test_rows_keep_their_partitions_and_their_order(spark: "SparkSession") -> None:
    frame = spark.range(0, 25_000, 1, 2)

    made = map_async(frame, tenfold, SCHEMA)

    # Lazy: nothing was called yet.
    assert call_counts(made) == CallCounts()
    assert [(row.id, row.y) for row in made.collect()] == [
        (n, n * 10) for n in range(25_000)
    ]
    counts = call_counts(made)
    assert (counts.items, counts.retried, counts.failed) == (25_000, 0, 0)
    assert counts.calls >= 250


def test_without_order_all_rows_are_there(spark: "SparkSession") -> None:
    frame = spark.range(0, 5000, 1, 3)

    made = map_async(frame, tenfold, SCHEMA, ordered=False)

    assert made.selectExpr("sum(y)", "count(*)").first() == (124_975_000, 5000)


def test_a_process_opens_one_client_for_all_of_its_tasks(
    spark: "SparkSession", tmp_path: Path
) -> None:
    made = map_async(
        spark.range(0, 600, 1, 12),
        process_of,
        "id BIGINT, process BIGINT",
        open=Client(str(tmp_path)),
        max_batch=10,
    )

    rows = made.collect() + made.collect()

    opened = {int(each.name) for each in tmp_path.iterdir()}
    assert {row.process for row in rows} == opened
    assert 1 <= len(opened) <= 2


def test_spark_gets_the_first_rows_while_later_calls_have_no_answer(
    spark: "SparkSession", tmp_path: Path
) -> None:
    marker = tmp_path / "go on"
    frame = spark.range(0, 30, 1, 1)

    made = map_async(frame, AnsweringFirst(str(marker)), SCHEMA, max_batch=10)

    assert [row.y for row in made.limit(3).collect()] == [0, 10, 20]
    marker.touch()


def test_times_keep_their_moment_whatever_the_session_s_zone(
    spark: "SparkSession",
) -> None:
    async def same(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"again": item["at"], "plain": item["plain"]} for item in batch]

    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        frame = spark.range(3).selectExpr(
            "timestamp_seconds(id * 1e6) AS at",
            "timestamp_ntz '2026-01-02 03:04:05' AS plain",
        )
        made = map_async(
            frame, same, "again TIMESTAMP, plain TIMESTAMP_NTZ", on_error="column"
        )
        rows = made.selectExpr("again = at", "plain", "error").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))

    assert all(row[0] for row in rows)
    assert [str(row.plain) for row in rows] == ["2026-01-02 03:04:05"] * 3


def test_errors_stand_beside_the_input(spark: "SparkSession") -> None:
    async def odd(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if any(item["id"] % 2 for item in batch):
            msg = "odd"
            raise ValueError(msg)
        return [{"y": item["id"]} for item in batch]

    made = map_async(
        spark.range(0, 6, 1, 1),
        odd,
        "y BIGINT NOT NULL",
        max_batch=1,
        on_error="column",
    )

    assert made.columns == ["id", "y", "error"]
    assert [tuple(row) for row in made.collect()] == [
        (n, None, "ValueError: odd") if n % 2 else (n, n, None) for n in range(6)
    ]
    assert call_counts(made).failed == 3


def test_what_a_call_raises_fails_the_job(spark: "SparkSession") -> None:
    from pyspark.errors import PythonException  # noqa: PLC0415  # slow

    async def broken(_: list[Any]) -> list[Any]:
        msg = "the service is gone"
        raise ConnectionError(msg)

    with pytest.raises(PythonException, match="ConnectionError: the service is gone"):
        map_async(spark.range(5), broken, SCHEMA).collect()


def test_who_wants_few_rows_gets_them(spark: "SparkSession") -> None:
    made = map_async(spark.range(0, 100_000, 1, 1), tenfold, SCHEMA, max_batch=5)

    assert [row.y for row in made.limit(3).collect()] == [0, 10, 20]


@pytest.mark.slow
def test_a_stream_s_rows_are_called_for_once(
    spark: "SparkSession", tmp_path: Path
) -> None:
    source = str(tmp_path / "in")
    spark.range(0, 60, 1, 3).write.parquet(source)
    frame = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1)

    made = map_async(frame.parquet(source), tenfold, SCHEMA, max_batch=7)
    query = (
        made.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "at"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(100)

    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("id").collect()
    assert [(row.id, row.y) for row in rows] == [(n, n * 10) for n in range(60)]
    assert call_counts(made).items == 60


def test_one_frame_may_be_made_of_another(spark: "SparkSession") -> None:
    twice = map_async(
        map_async(spark.range(0, 300, 1, 1), tenfold, SCHEMA).selectExpr("y AS id"),
        tenfold,
        SCHEMA,
    )

    assert [row.y for row in twice.collect()] == [n * 100 for n in range(300)]


async def with_client(client: object, batch: list[Any]) -> list[Any]:
    return [client, batch]


def at_once(batch: list[Any]) -> list[Any]:
    return batch


class AtOnce:
    def __call__(self, batch: list[Any]) -> list[Any]:
        return batch


async def opened_late() -> None: ...


@contextmanager
def plainly() -> Iterator[None]:
    yield


async def undecorated() -> AsyncIterator[None]:
    yield


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"call": 5}, "call must be callable.*, got 5"),
    (
        {"call": at_once},
        r"call must be an async function \(async def\), got the function at_once",
    ),
    ({"call": AtOnce()}, r"call must be an async function .* got an AtOnce"),
    ({"call": partial(at_once)}, r"call must be an async function .* got a partial"),
    ({"call": with_client}, r"call must take \(batch\) without open: missing"),
    ({"open": Client("x")}, r"call must take \(client, batch\) with open: too many"),
    ({"open": 5}, "open must be callable.*, got 5"),
    *(
        (
            {"call": with_client, "open": wrong},
            f"open must be a function that returns an async context manager.* {name}",
        )
        for wrong, name in (
            (opened_late, "opened_late"),
            (plainly, "not a plain one, got the function plainly"),
            (undecorated, r"\(as @asynccontextmanager makes it\)"),
            (dict, "got <class 'dict'>"),
        )
    ),
    (
        {"call": with_client, "open": process_of},
        r"open must be a function that returns",
    ),
    ({"to_items": 5}, "to_items must be callable.*, got 5"),
    ({"max_batch": 0}, "max_batch must be >= 1, got 0"),
    ({"max_batch": 1.5}, "max_batch must be an int, got 1.5"),
    ({"linger": -1}, "linger must be >= 0, got -1"),
    ({"in_flight": 0}, "in_flight must be >= 1, got 0"),
    ({"in_flight": 65_537}, "in_flight must be <= 65536, got 65537"),
    ({"ordered": "yes"}, "ordered must be a bool, got 'yes'"),
    ({"reorder_buffer": -1}, "reorder_buffer must be >= 0, got -1"),
    (
        {"reorder_buffer": 3, "ordered": False},
        "reorder_buffer must be 0 with ordered=False, got 3",
    ),
    ({"timeout": 0}, "timeout must be > 0, got 0"),
    ({"retry": 3}, "retry must be a Retry .*, got 3"),
    ({"rate": 0}, "rate must be > 0, got 0"),
    ({"rate": float("inf")}, "rate must be finite, got inf"),
    ({"flat": 1}, "flat must be a bool, got 1"),
    ({"on_error": "ignore"}, '"raise", "null" or "column", got \'ignore\''),
    ({"error_column": ""}, "error_column must be a name, got ''"),
    ({"schema": 5}, "schema must be a StructType, or columns in DDL"),
    ({"schema": "y BIGNUM"}, r"schema must be a StructType.*got 'y BIGNUM': "),
    ({"schema": "BIGINT"}, "schema must be a StructType, or columns in DDL"),
    ({"schema": "y INT, Y INT"}, "columns whose names differ, not only in case"),
    ({"schema": "y VARIANT"}, "got column 'y' of type VARIANT"),
    ({"schema": "y VARCHAR(3)"}, r"got column 'y' of type VARCHAR\(3\)"),
    ({"schema": "y ARRAY<CHAR(3)>"}, r"got column 'y' of type CHAR\(3\)"),
    (
        {
            "schema": StructType(
                [StructField("y", ArrayType(NullType(), containsNull=False))]
            )
        },
        "got column 'y' of type ARRAY<VOID>",
    ),
    (
        {"on_error": "column", "schema": "id STRING"},
        "schema must have column 'id' as BIGINT, as the input has it .* got STRING",
    ),
    (
        {"on_error": "column", "error_column": "ID"},
        "error_column must be a name that no other column has, got 'ID'",
    ),
    ({"df": 5}, "df must be a DataFrame, got 5"),
    (
        {"df": pandas.DataFrame({"id": [1]})},
        "df must be a DataFrame of Spark's, got one of pandas",
    ),
]


@pytest.mark.parametrize(
    "wrong, sentence",
    REFUSED,
    ids=[f"{n}-{'-'.join(wrong)}" for n, (wrong, _) in enumerate(REFUSED)],
)
def test_wrong_options_are_one_sentence_before_anything_runs(
    spark: "SparkSession", wrong: dict[str, Any], sentence: str
) -> None:
    options = {"df": spark.range(3), "call": tenfold, "schema": SCHEMA, **wrong}

    with pytest.raises((TypeError, ValueError), match=sentence) as told:
        map_async(**options)

    assert "\n" not in str(told.value)


def test_counts_are_those_of_a_frame_of_map_async(spark: "SparkSession") -> None:
    with pytest.raises(ValueError, match="df must be what map_async returned"):
        call_counts(spark.range(3))
    with pytest.raises(ValueError, match="df must be what map_async returned, got 3"):
        call_counts(3)  # type: ignore[arg-type]


def test_record_batches_come_and_go_as_columns(spark: "SparkSession") -> None:
    made = map_async(
        spark.range(0, 1000, 1, 2), _doubled(), "y BIGINT", to_items=to_batches
    )

    assert [row.y for row in made.collect()] == [2 * n for n in range(1000)]


def _doubled() -> Callable[[list[Any]], Any]:
    async def doubled(batches: list[Any]) -> list[Any]:
        import pyarrow as pa  # noqa: PLC0415  # on executors

        columns = [batch.column(0).to_pylist() for batch in batches]
        return [pa.record_batch({"y": [2 * n for n in each]}) for each in columns]

    return doubled


def test_what_stands_beside_an_input_without_nulls_inside_may_have_some(
    spark: "SparkSession",
) -> None:
    tags, place = "ARRAY(id)", "NAMED_STRUCT('at', MAP('x', TIMESTAMP_SECONDS(id)))"
    given = spark.range(0, 2, 1, 1).selectExpr("id", f"{tags} tags", f"{place} place")

    made = map_async(
        given,
        _kept_or_null(),
        "tags ARRAY<BIGINT>, place STRUCT<at: MAP<STRING, TIMESTAMP>>",
        max_batch=1,
        on_error="column",
    )

    first, second = made.collect()
    assert (first.tags, first.place) == ([None], ({"x": None},))
    assert (second.tags, second.place) == given.collect()[1][1:]
    assert second.error.startswith("LookupError")


def _kept_or_null() -> Callable[[list[Any]], Any]:
    async def kept_or_null(batch: list[Any]) -> list[Any]:
        if batch[0]["id"]:
            raise LookupError
        return [{"tags": [None], "place": {"at": {"x": None}}}]

    return kept_or_null


def test_retries_happen_on_executors(spark: "SparkSession", tmp_path: Path) -> None:
    once = FailingOnce(str(tmp_path / "marker"))

    made = map_async(
        spark.range(0, 20, 1, 1),
        once,
        SCHEMA,
        max_batch=10,
        retry=Retry(attempts=2),
    )

    assert [row.id for row in made.collect()] == [*range(20)]
    assert call_counts(made) == CallCounts(calls=3, items=20, retried=10, failed=0)
