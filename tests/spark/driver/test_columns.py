"""A stream's columns go into those of the same name, in SQLite and PostgreSQL alike."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

from batchqueue_async import BatchQueueConfig, LoopThread
from batchqueue_async.sinks import EpochSink, EpochWriter
from batchqueue_async.sinks.parquet import ParquetEpochSink
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from batchqueue_async.spark import (
    ForeachBatchSink,
    arrow_batches,
    map_async,
    to_batches,
    to_dicts,
    to_tuples,
    whole_frame,
    write_partitions,
)
from batchqueue_async.telemetry import with_links
from tests.spark.executor.probes import OpenFileQueue
from tests.support.ask_postgres import ask

pytestmark = [pytest.mark.spark, pytest.mark.real_time]

COLUMNS = ("id", "v", "at")
AT = datetime(2026, 11, 22, 1, 2, 3, 4, tzinfo=UTC)
QUERY = "SELECT 'x' AS v, timestamp_micros({}) AS at, 1L AS id"


@pytest.fixture
def run(
    spark: SparkSession, loop_thread: LoopThread, tmp_path: Path
) -> Callable[[str, EpochSink[Any]], None]:
    """Runs a stream of what a query selects, right into a sink."""

    def stream(
        query: str,
        sink: EpochSink[Any],
        *,
        by_type: type | None = None,
        stand_in: Callable[[Any], Any] = lambda writer: writer,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        home = tmp_path / uuid4().hex
        frame: DataFrame = spark.sql(query)
        frame.write.parquet(f"{home}/in")
        writer = EpochWriter(sink)
        handler = stand_in(writer)
        consumer = handler if by_type is None else None
        queue = loop_thread.open(
            home.name,
            BatchQueueConfig[Any](consumer=consumer),
            handlers={by_type: handler} if by_type is not None else None,
        )
        into = ForeachBatchSink(queue, sink=writer, **settings)
        started = spark.readStream.schema(frame.schema).parquet(f"{home}/in")
        going = started.writeStream.foreachBatch(into).trigger(availableNow=True)
        going.option("checkpointLocation", f"{home}/at").start().awaitTermination()

    return stream


def test_columns_are_matched_by_name(run: Callable[..., None], tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (id, v, at)")
        micros = int(AT.timestamp() * 1_000_000)
        query = QUERY.format(micros)
        run(query, SqliteEpochSink(path, "t", COLUMNS))
        run(query, SqliteEpochSink(path, "t", COLUMNS), to_items=to_tuples)
        run(query, SqliteEpochSink(path, "t", COLUMNS), by_type=tuple)
        run("SELECT 'x' AS V, 1L AS ID", SqliteEpochSink(path, "t", ("id", "v")))

        seen = database.execute("SELECT id, v, at FROM t ORDER BY at").fetchall()
        assert seen == [(1, "x", None), *[(1, "x", micros)] * 3]
        for query, told in (
            ("SELECT 1 AS id, 2 AS w", "column 'v' must be one of the frame's columns"),
            ("SELECT 1 AS id, 2 AS v, 3 AS w", "must have the sink's columns"),
        ):
            with pytest.raises(Exception, match=told):
                run(query, SqliteEpochSink(path, "t", ("id", "v")))


@pytest.mark.slow
def test_who_stands_in_for_the_writer_changes_no_columns(
    run: Callable[..., None], tmp_path: Path
) -> None:
    """Its method, and one that is traced; rows went in by their places in the frame."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (id, v)")
        query = "SELECT 'x' AS v, 1L AS id"
        for stand_in in (attrgetter("consume"), with_links):
            for by_type in (None, tuple, object):
                sink = SqliteEpochSink[Any](path, "t", ("id", "v"))
                run(query, sink, by_type=by_type, stand_in=stand_in)

        assert database.execute("SELECT id, v FROM t").fetchall() == [(1, "x")] * 6


def test_the_same_code_fills_postgresql(
    run: Callable[..., None], postgres_dsn: str
) -> None:
    name = f"t_{uuid4().hex[:8]}"
    ask(postgres_dsn, f"CREATE TABLE {name} (id BIGINT, v TEXT, at TIMESTAMPTZ)")
    micros = int(AT.timestamp() * 1_000_000)
    run(QUERY.format(micros), PostgresEpochSink(postgres_dsn, name, COLUMNS))

    (row,) = ask(postgres_dsn, f"SELECT id, v, at FROM {name}")
    assert tuple(row) == (1, "x", AT)


def test_a_name_may_have_a_dot_wherever_rows_travel(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark takes it for the way to a part."""
    frame = spark.sql("SELECT 1L AS `a.b`, 2L AS `c``d`, 3L AS e")
    (batch,) = arrow_batches(frame)
    assert batch.schema.names == frame.columns
    assert batch.to_pylist() == [{"a.b": 1, "c`d": 2, "e": 3}]
    assert next(whole_frame(frame)).schema.names == frame.columns

    files = OpenFileQueue(str(tmp_path))
    assert write_partitions(frame, files, to_items=to_dicts).rows == 1
    assert files.handled() == ["{'a.b': 1, 'c`d': 2, 'e': 3}"]


def test_names_may_differ_in_case_only_or_not_at_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.sql("SELECT 1L AS a, 2L AS A")
    assert [batch.to_pylist() for batch in arrow_batches(frame)] == [[{"a": 1, "A": 2}]]
    made = map_async(frame, added, "y BIGINT")
    assert [row.y for row in made.collect()] == [3]

    frame = spark.sql("SELECT 1L AS a, 2L AS a")
    files = OpenFileQueue(str(tmp_path))
    assert write_partitions(frame, files).rows == 1
    assert files.handled() == ["(1, 2)"]
    # A dict would have one of them.
    sentence = "df must have columns whose names differ for dicts, got 'a' more than"
    with pytest.raises(ValueError, match=sentence):
        map_async(frame, added, "y BIGINT")
    with pytest.raises(ValueError, match=sentence):
        to_dicts(next(arrow_batches(frame)))


async def added(batch: list[dict[str, int]]) -> list[tuple[int]]:
    return [(sum(item.values()),) for item in batch]


@pytest.mark.parametrize(
    "query, told",
    [
        ("SELECT 1 AS a, 2 AS a", "names differ for a sink, got 'a' more than once"),
        ("SELECT 1 AS a, ARRAY() AS b", "column 'b' must be of a type that Arrow has"),
    ],
)
def test_what_no_sink_can_keep_is_refused_before_any_task_runs(
    spark: SparkSession, tmp_path: Path, query: str, told: str
) -> None:
    writer = spark.sql(query).write.format("batchqueue").mode("append")
    writer = writer.option("sink", "parquet").option("directory", str(tmp_path / "out"))

    with pytest.raises(Exception, match=told):
        writer.save()

    assert not (tmp_path / "out").exists()


def test_an_empty_epoch_has_columns_in_parquet(
    spark: SparkSession, run: Callable[..., None], tmp_path: Path
) -> None:
    query = "SELECT id, 'x' AS s FROM range(0)"
    run(query, ParquetEpochSink(tmp_path / "out"), to_items=to_batches)

    seen = spark.read.parquet(str(tmp_path / "out")).drop("batchqueue_epoch")
    assert seen.dtypes == [("id", "bigint"), ("s", "string")]
