"""Each of Spark's types: into Python, and into the stores, as the docs' table says."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from batchqueue_async.spark import arrow_batches, to_dicts, to_objects, to_tuples
from tests.spark.types.cases import CASES, REFUSED, Case
from tests.support.ask_postgres import ask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.real_time, pytest.mark.spark]

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "spark_types.md"


@pytest.fixture(scope="module")
def session(spark: "SparkSession") -> "Iterator[SparkSession]":
    """One whose time zone is far from UTC, which must change nothing."""
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.fixture(scope="module")
def batch(session: "SparkSession") -> pa.RecordBatch:
    """A row of values, and one of nulls, as Spark delivers them."""
    (found,) = arrow_batches(frame_of(session, CASES, "UNION ALL SELECT {nulls}"))
    return found


def frame_of(
    session: "SparkSession", cases: "dict[str, Case]", more: str = ""
) -> "DataFrame":
    values = ", ".join(f"{case.sql} AS {column}" for column, case in cases.items())
    nulls = ", ".join(["NULL"] * len(cases))
    return session.sql(f"SELECT {values} {more.format(nulls=nulls)}").coalesce(1)


def stored(kept: str) -> dict[str, Case]:
    return {
        column: case
        for column, case in CASES.items()
        if getattr(case, kept) not in (REFUSED, None) or column == "absent"
    }


class Writer:
    """Writes a row with a value of each case, in a batch or as a stream's."""

    def __init__(self, session: "SparkSession", home: Path, *, streams: bool) -> None:
        self._session = session
        self._home = home
        self._streams = streams

    def write(self, cases: dict[str, Case], sink: str, **options: object) -> None:
        if self._streams:
            self._stream(cases, sink, options)
        else:
            write(frame_of(self._session, cases), sink, **options)

    def _stream(
        self, cases: dict[str, Case], sink: str, options: dict[str, object]
    ) -> None:
        source = str(self._home / "in")
        self._session.range(1).write.parquet(source)
        rows = self._session.readStream.schema("id BIGINT").parquet(source)
        frame = rows.selectExpr(*(f"{it.sql} AS {name}" for name, it in cases.items()))
        made = frame.writeStream.format("batchqueue").option("sink", sink)
        for name, value in options.items():
            made = made.option(name, str(value))
        made = made.option("checkpointLocation", str(self._home / "at"))
        made.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture(params=["batch", "stream"])
def writer(
    session: "SparkSession", tmp_path: Path, request: pytest.FixtureRequest
) -> Writer:
    return Writer(session, tmp_path, streams=request.param == "stream")


def write(frame: "DataFrame", sink: str, **options: object) -> None:
    made = frame.write.format("batchqueue").mode("append").option("sink", sink)
    for name, value in options.items():
        made = made.option(name, str(value))
    made.save()


def test_dicts_and_tuples_have_python_s_values(batch: pa.RecordBatch) -> None:
    row, nulls = to_dicts(batch)

    assert row == {column: case.plain for column, case in CASES.items()}
    assert [type(value) for value in row.values()] == [
        type(case.plain) for case in CASES.values()
    ]
    assert {*nulls.values()} == {None}
    assert [*to_tuples(batch)] == [(*row.values(),), (*nulls.values(),)]


TYPED = [
    (column, annotation) for column, case in CASES.items() for annotation in case.typed
]


@pytest.mark.parametrize(
    "column, annotation", TYPED, ids=[f"{column}-{it}" for column, it in TYPED]
)
def test_an_annotation_says_what_a_field_gets(
    batch: pa.RecordBatch, column: str, annotation: object
) -> None:
    make = make_dataclass("Made", [(column, annotation)])

    value, null = (
        getattr(it, column) for it in to_objects(make)(batch.select([column]))
    )

    expected = CASES[column].typed[annotation]
    assert (value, type(value)) == (expected, type(expected))
    assert null is None


@pytest.mark.parametrize("column", CASES)
def test_what_does_not_fit_is_refused_with_the_column_s_name(
    batch: pa.RecordBatch, column: str
) -> None:
    fitting = {"bytes": str}.get(type(CASES[column].plain).__name__, bytes)
    if CASES[column].plain is None:
        return  # NULL fits everything
    make = make_dataclass("Made", [("other", fitting)])

    with pytest.raises(TypeError) as told:
        to_objects(make)(batch.select([column]))

    assert f"column {column!r} of type" in str(told.value)
    assert f"'other' of Made is annotated {fitting.__name__}" in str(told.value)


def test_sqlite_keeps_them_so(writer: Writer, tmp_path: Path) -> None:
    cases = stored("sqlite")
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        database.execute(f"CREATE TABLE t ({', '.join(cases)})")

    writer.write(cases, "sqlite", file=tmp_path / "t.db", table="t")

    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        (row,) = database.execute("SELECT * FROM t")
    assert row == tuple(case.sqlite for case in cases.values())


def test_postgresql_keeps_them_so(writer: Writer, postgres_dsn: str) -> None:
    cases = stored("postgres")
    columns = ", ".join(f"{name} {it.postgres_type}" for name, it in cases.items())
    ask(postgres_dsn, "DROP TABLE IF EXISTS types")
    ask(postgres_dsn, f"CREATE TABLE types ({columns})")

    writer.write(cases, "postgres", url=postgres_dsn, table="types")

    (row,) = ask(postgres_dsn, "SELECT * FROM types")
    assert tuple(row) == tuple(case.postgres for case in cases.values())


def test_parquet_keeps_them_so(
    session: "SparkSession", writer: Writer, tmp_path: Path
) -> None:
    cases = stored("parquet")

    writer.write(cases, "parquet", directory=tmp_path / "out")

    read = session.read.parquet(str(tmp_path / "out")).select(*cases)
    kinds = [field.dataType.simpleString() for field in read.schema]
    assert [*zip(kinds, read.collect()[0], strict=True)] == [
        case.parquet for case in cases.values()
    ]


@pytest.mark.slow
def test_parquet_keeps_collations(session: "SparkSession", tmp_path: Path) -> None:
    """Spark compares texts by them, and its own files have them."""
    frame = session.sql("SELECT 'A' COLLATE UTF8_LCASE AS word, ARRAY('a') AS words")

    write(frame, "parquet", directory=tmp_path / "out")

    read = session.read.parquet(str(tmp_path / "out"))
    assert read.select("word", "words").dtypes == frame.dtypes
    assert read.where("word = 'a'").count() == 1


@pytest.mark.slow
def test_parquet_keeps_vectors(session: "SparkSession", tmp_path: Path) -> None:
    """A user-defined type, such as those of Spark's ML, and its own files have it."""
    from pyspark.ml.linalg import Vectors  # noqa: PLC0415  # slow

    frame = session.createDataFrame([(1, Vectors.dense([1.0, 2.0]))], ["id", "vector"])

    write(frame, "parquet", directory=tmp_path / "out")

    read = session.read.parquet(str(tmp_path / "out")).select("id", "vector")
    assert (read.dtypes, read.collect()) == (frame.dtypes, frame.collect())


@pytest.mark.slow  # A job for each, that Spark gives up.
@pytest.mark.parametrize(
    "column", [column for column, case in CASES.items() if case.sqlite is REFUSED]
)
def test_what_has_parts_is_refused_by_tables(
    session: "SparkSession", postgres_dsn: str, tmp_path: Path, column: str
) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        database.execute(f"CREATE TABLE t ({column})")
    ask(postgres_dsn, f"CREATE TABLE of_{column} ({column} JSONB)")
    frame = frame_of(session, {column: CASES[column]})

    with pytest.raises(Exception, match=f"column {column} must be a number, a text"):
        write(frame, "sqlite", file=tmp_path / "t.db", table="t")
    with pytest.raises(Exception, match=f"column '{column}'"):
        write(frame, "postgres", url=postgres_dsn, table=f"of_{column}")


def test_python_s_calendar_begins_with_the_year_1(session: "SparkSession") -> None:
    (found,) = arrow_batches(session.sql("SELECT DATE '-0044-03-15' AS ides"))

    with pytest.raises(ValueError, match="column 'ides' has a value of type date32"):
        to_dicts(found)
    # The message proposes a cast.
    (found,) = arrow_batches(session.sql("SELECT STRING(DATE '-0044-03-15') AS ides"))
    assert [*to_dicts(found)] == [{"ides": "-0044-03-15"}]


@pytest.mark.parametrize("zone", ["Z", "PST", "GMT-05:30"])
def test_a_zone_that_only_java_knows_is_told_with_the_column_s_name(zone: str) -> None:
    """As the session's zone; it counts for nested times alone."""
    moments = pa.array([0], pa.timestamp("us", zone))
    assert [*to_tuples(pa.record_batch({"at": moments}))] == [(0,)]
    nested = pa.ListArray.from_arrays([0, 1], moments)
    for to_items in (to_tuples, to_dicts):
        with pytest.raises(ValueError, match=f"column 'times' .* Python .*'{zone}'"):
            to_items(pa.record_batch({"times": nested}))


@pytest.mark.parametrize("key", [{"x": 1}, [1]], ids=["struct", "array"])
def test_a_map_whose_keys_have_parts_is_told_with_the_column_s_name(
    key: object,
) -> None:
    kind = pa.map_(pa.array([key]).type, pa.int64())
    for column in (
        pa.array([[(key, 1)]], kind),
        pa.array([[[(key, 1)]]], pa.list_(kind)),
    ):
        with pytest.raises(
            TypeError, match=r"column 'by' has a map of .* map_entries in"
        ):
            to_tuples(pa.record_batch({"by": column}))


def test_a_stop_iteration_of_a_class_is_not_the_rows_end() -> None:
    def make(number: int) -> int:
        return next(each for each in (0, 1) if each == number)

    objects = to_objects(make)

    assert [*objects(pa.record_batch({"id": [0, 1]}))] == [0, 1]
    with pytest.raises(RuntimeError, match=r"make raised StopIteration for row 1 of"):
        objects(pa.record_batch({"id": [0, 2, 1]}))


def test_the_guide_s_table_has_each_type_and_its_value() -> None:
    row = re.compile(r"^\| (`[A-Z][^|]*?) \| ([^|]+) \|", re.MULTILINE)
    rows = row.findall(GUIDE.read_text("utf-8"))
    table = {name.replace("`", ""): value for name, value in rows}

    for case in CASES.values():
        assert case.name in table
        if case.name != "VARIANT":
            assert f"`{case.plain!r}`" in table[case.name]
