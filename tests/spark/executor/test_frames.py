"""Frames of any columns through `format("batchqueue")`: kept, matched or refused."""

import logging
import re
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks.epochs import Epoch
from batchqueue_async.sinks.staged import Attempt
from tests.spark.executor.test_data_source import staged, writer
from tests.support.ask_postgres import ask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.real_time, pytest.mark.spark]

Table = Callable[..., Path]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Makes a table of a SQLite file."""

    def make(name: str, columns: str) -> Path:
        path = tmp_path / "store.db"
        with closing(sqlite3.connect(path)) as database:
            database.execute(f'CREATE TABLE "{name}" ({columns})')
        return path

    return make


@pytest.fixture
def no_queues_left() -> Iterator[None]:
    """Close what a test has opened as if it were a worker process."""
    yield
    from batchqueue_async.spark import close_executor_queues  # noqa: PLC0415

    close_executor_queues()


def into_sqlite(frame: "DataFrame", path: Path, name: str, **options: object) -> None:
    writer(frame, "sqlite", file=path, table=name, **options).save()


def test_what_parquet_tells_not_of_spark_s_types_is_kept(
    spark: "SparkSession", tmp_path: Path
) -> None:
    frame = spark.sql(
        """SELECT id, 100 AS epoch, INTERVAL '1' DAY * id AS i, array(INTERVAL '2' HOUR)
        AS a, named_struct('v', parse_json('{"a": 1}')) AS s FROM range(3)"""
    )
    writer(frame, "parquet", directory=tmp_path / "out").save()

    seen = spark.read.parquet(str(tmp_path / "out"))
    kinds = dict(seen.dtypes)
    assert kinds.pop("batchqueue_epoch") == "string"
    assert kinds == dict(frame.dtypes)
    assert seen.where("epoch = 100 AND i = INTERVAL '1' DAY * id").count() == 3
    with pytest.raises(Exception, match="column 'm' must be of a type that Arrow has"):
        writer(
            spark.sql("SELECT INTERVAL '1' MONTH AS m"), "parquet", directory=tmp_path
        ).save()


def test_a_directory_of_empty_writes_can_be_read(
    spark: "SparkSession", tmp_path: Path
) -> None:
    frame = spark.range(5).selectExpr("id", "current_timestamp() AS t")
    for empty in (frame.where("id > 9"), frame.limit(0)):
        writer(empty, "parquet", directory=tmp_path).save()

    seen = spark.read.parquet(str(tmp_path))
    assert seen.drop("batchqueue_epoch").dtypes == frame.dtypes
    assert seen.count() == 0
    assert staged(tmp_path) == []


def test_columns_are_matched_as_spark_does_it(
    spark: "SparkSession", tmp_path: Path, postgres_dsn: str
) -> None:
    name = f"t_{uuid4().hex[:8]}"
    ask(postgres_dsn, f"CREATE TABLE {name} (id BIGINT, word TEXT)")
    frame = spark.sql("SELECT 'x' AS Word, 1L AS ID")
    made = writer(frame, "postgres", url=postgres_dsn, table=name)
    made.save()
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(Exception, match=f"'Word' must be one of table {name}: "):
            made.save()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")

    (row,) = ask(postgres_dsn, f"SELECT id, word FROM {name}")
    assert tuple(row) == (1, "x")


def test_what_the_sink_refuses_is_told_in_one_line(
    spark: "SparkSession", table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    path = table("good", "id INTEGER, x REAL")
    frame = spark.sql("SELECT id, CAST('NaN' AS DOUBLE) AS x FROM range(77770, 77771)")

    with pytest.raises(Exception, match="was not staged into table good") as told:
        into_sqlite(frame, path, "good")

    (line,) = [
        line
        for line in str(told.value).splitlines()
        if "was not staged into" in line and "BatchQueueError" in line
    ]
    assert "partition " in line
    assert "ValueError: column x must be a number or None, got a NaN" in line
    assert "77770" not in str(told.value)
    assert "good_staged" not in str(told.value)
    assert str(told.value).count("Traceback") == 1


@pytest.mark.parametrize(
    "ids, name, told",
    [
        ("1, 1", "keyed", r"publishing batch 0 of query \S+ into table keyed failed"),
        ("1", "nosuch", r"batch 0 of query \S+ cannot be staged into table nosuch"),
    ],
)
def test_what_stops_a_job_or_its_commit_is_told_in_one_line(
    spark: "SparkSession", table: Table, ids: str, name: str, told: str
) -> None:
    """Both run beside the driver, in an event loop whose frames are no news."""
    path = table("keyed", "id INTEGER PRIMARY KEY")
    frame = spark.sql(f"SELECT EXPLODE(ARRAY({ids})) AS id")

    with pytest.raises(Exception, match=told) as raised:
        into_sqlite(frame, path, name)

    text = str(raised.value)
    assert re.search(rf"BatchQueueError: {told}: \w+Error: ", text)
    assert text.count("Traceback") == 1
    assert "asyncio" not in text


@pytest.mark.usefixtures("no_queues_left")
def test_one_line_of_the_log_tells_of_what_was_refused(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a worker process, whose log nobody else writes to."""
    from batchqueue_async.spark.staging import StagingQueue, stage_rows  # noqa: PLC0415

    path = table("good", "id INTEGER")
    options = (("file", str(path)), ("table", "good"))
    attempt = Attempt(Epoch("q", 0), "run", 3, uuid4().hex)
    batch = pa.record_batch({"id": [1], "nope": ["somebody's"]})
    with pytest.raises(BatchQueueError, match=r"^partition 3 of batch 0") as told:
        stage_rows(StagingQueue("sqlite", options), attempt, [batch, batch])

    records = [r for r in caplog.records if r.name == "batchqueue_async"]
    assert [record.getMessage() for record in records] == [str(told.value)]
    assert "somebody's" not in caplog.text
    assert told.value.__context__ is None
    assert "\n" not in str(told.value)


@pytest.mark.usefixtures("no_queues_left")
def test_a_named_write_that_is_skipped_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from batchqueue_async.spark.data_source import (  # noqa: PLC0415
        BatchWriter,
        Staged,
        announce,
    )
    from batchqueue_async.spark.staging import StagingQueue, stage_rows  # noqa: PLC0415

    sink = StagingQueue("parquet", (("directory", str(tmp_path)),))
    epoch, batch = Epoch("nightly", 0), pa.record_batch({"id": [1]})
    for _ in range(2):
        made = BatchWriter(sink, epoch, uuid4().hex, batch.schema)
        announce(sink, epoch, made.run)
        attempt = Attempt(epoch, made.run, 0, uuid4().hex, is_announced=True)
        with caplog.at_level(logging.WARNING):
            made.commit([Staged(stage_rows(sink, attempt, [batch]))])

    (record,) = [r for r in caplog.records if r.name == "batchqueue_async"]
    assert record.levelno == logging.WARNING
    assert "batch 0 of query nightly is published already" in record.getMessage()
    assert not [*tmp_path.glob("_staged/*")]


@pytest.mark.usefixtures("no_queues_left")
@pytest.mark.parametrize(
    "query, told",
    [("mine", "takes another `query` than others"), (None, "a copy of another's")],
)
def test_a_micro_batch_of_a_stream_that_is_skipped_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, query: str | None, told: str
) -> None:
    """Two streams of one name, or with one checkpoint, lost rows without a word."""
    from batchqueue_async.spark.data_source import (  # noqa: PLC0415
        Staged,
        StreamWriter,
    )
    from batchqueue_async.spark.staging import StagingQueue, stage_rows  # noqa: PLC0415

    sink = StagingQueue("parquet", (("directory", str(tmp_path)),))
    epoch, batch = Epoch("mine", 0), pa.record_batch({"id": [1]})
    for _ in range(2):
        attempt = Attempt(epoch, "run", 0, uuid4().hex)
        with caplog.at_level(logging.WARNING):
            staged = Staged(stage_rows(sink, attempt, [batch]))
            StreamWriter(sink, query, batch.schema).commit([staged], 0)

    (record,) = [r for r in caplog.records if r.name == "batchqueue_async"]
    assert record.levelno == logging.WARNING
    assert "batch 0 of query mine is published already" in record.getMessage()
    assert told in record.getMessage()


@pytest.mark.usefixtures("no_queues_left")
def test_a_micro_batch_that_the_sink_has_lost_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from batchqueue_async.spark.data_source import (  # noqa: PLC0415
        Staged,
        StreamWriter,
    )
    from batchqueue_async.spark.staging import StagingQueue, stage_rows  # noqa: PLC0415

    sink = StagingQueue("parquet", (("directory", str(tmp_path)),))
    batch = pa.record_batch({"id": [1]})
    for number in (0, 1, 3, 4):
        attempt = Attempt(Epoch("mine", number), "run", 0, uuid4().hex)
        staged = Staged(stage_rows(sink, attempt, [batch]))
        StreamWriter(sink, None, batch.schema).commit([staged], number)

    (record,) = [r for r in caplog.records if r.name == "batchqueue_async"]
    assert record.levelno == logging.WARNING
    assert "batch 3 of query mine comes, but batch 2 of " in record.getMessage()


def test_any_thread_finds_the_format(spark: "SparkSession", tmp_path: Path) -> None:
    """Java's threads know no session but the one that made it does."""
    from batchqueue_async.spark import use_session  # noqa: PLC0415

    def write(number: int) -> None:
        frame = spark.range(number, number + 1, 1, 1)
        writer(frame, "parquet", directory=tmp_path).save()

    def is_active() -> bool:
        sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
        return bool(sessions.getActiveSession().isDefined())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(3)))
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(is_active).result()
    with ThreadPoolExecutor(1, initializer=use_session, initargs=(spark,)) as pool:
        assert pool.submit(is_active).result()

    seen = spark.read.parquet(str(tmp_path)).select("id").collect()
    assert sorted(row.id for row in seen) == [0, 1, 2]


def test_frames_of_each_session_find_a_source_that_is_not_installed(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark asks the thread's session for it, and the frame's own for what it is."""
    from batchqueue_async.spark import registered_source  # noqa: PLC0415
    from batchqueue_async.spark.data_source import BatchQueueSource  # noqa: PLC0415

    name = f"sent_{uuid4().hex}"

    class Sent(BatchQueueSource):  # nested, so that it travels by value
        @classmethod
        def name(cls) -> str:
            return name

    monkeypatch.setattr(registered_source, "FORMAT", name)
    monkeypatch.setattr(registered_source, "BatchQueueSource", Sent)
    sessions = [spark.newSession(), spark, spark.newSession()]

    def write(number: int) -> None:
        frame = sessions[number].range(number, number + 1, 1, 1)
        made = frame.write.format(name).mode("append").option("sink", "parquet")
        made.option("directory", str(tmp_path)).save()

    active = spark._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession  # type: ignore[union-attr]
    for number in range(2):
        write(number)
    assert active().get().equals(spark._jsparkSession)
    with ThreadPoolExecutor(1) as pool:
        list(pool.map(write, (2, 0, 1)))

    seen = spark.read.parquet(str(tmp_path)).select("id").collect()
    assert sorted(row.id for row in seen) == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("sink", ["sqlite", "postgres", "parquet"])
def test_an_option_that_no_sink_knows_is_refused(
    spark: "SparkSession", sink: str
) -> None:
    needed = {"sqlite": "file", "postgres": "url", "parquet": "directory"}
    for wrong in ("tabel", "row_groups"):
        options = {needed[sink]: "x", "table": "t", wrong: "1"}
        options = {
            k: v for k, v in options.items() if (k, sink) != ("table", "parquet")
        }
        with pytest.raises(Exception, match=f"has the options .* got '{wrong}'"):
            writer(spark.range(1), sink, **options).save()
