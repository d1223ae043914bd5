"""Values are the same in a table of PostgreSQL, whichever way they come."""

import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from batchqueue_async.spark import to_tuples
from tests.sinks.databases import Postgres
from tests.sinks.places import attempt

pytestmark = pytest.mark.real_time

Way: TypeAlias = Callable[[Postgres, pa.RecordBatch], Awaitable[None]]

EPOCH = Epoch("query", 0)
NOON = datetime(2026, 1, 2, 12)
MIDNIGHT = datetime(2026, 1, 2)
NTZ, IN_BERLIN = pa.timestamp("us"), pa.timestamp("us", "Europe/Berlin")
ONLY_JAVA_S = pa.timestamp("us", "PST")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine's zone is New York's."""
    with monkeypatch.context() as there:
        there.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


async def publish(postgres: Postgres, rows: pa.RecordBatch) -> None:
    sink, mine = PostgresStagedSink(postgres.dsn, "t"), attempt(epoch=EPOCH)
    try:
        await sink.stage(mine, [rows])
        await sink.publish(EPOCH, [await sink.seal(mine)])
    finally:
        await sink.close()


async def commit(postgres: Postgres, rows: Any) -> None:  # noqa: ANN401
    sink = PostgresEpochSink[Any](postgres.dsn, "t", ("v", "n"))
    try:
        await sink.begin(EPOCH)
        await sink.write(EPOCH, [rows])
        await sink.commit(EPOCH)
    finally:
        await sink.close()


async def commit_rows(postgres: Postgres, rows: pa.RecordBatch) -> None:
    for row in to_tuples(rows):
        await commit(postgres, row)


def batch(value: object, kind: pa.DataType, number: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array([value], kind), "n": pa.array([1], number)})


# The second number has no binary form for the table's column.
@pytest.mark.parametrize("number", [pa.int32(), pa.int64()], ids=["binary", "read"])
@pytest.mark.parametrize("way", [publish, commit, commit_rows])
@pytest.mark.usefixtures("elsewhere")
async def test_no_moment_depends_on_a_zone_of_the_server_or_of_this_machine(
    postgres: Postgres, way: Way, number: pa.DataType
) -> None:
    await postgres.run(f"ALTER DATABASE {postgres.name} SET timezone = 'Asia/Tokyo'")
    for column in ("TIMESTAMPTZ", "TIMESTAMP"):
        for kind in (NTZ, IN_BERLIN, ONLY_JAVA_S):
            await postgres.run(f"CREATE TABLE t (v {column}, n INTEGER)")
            value = NOON if kind == NTZ else NOON.replace(tzinfo=UTC)
            await way(postgres, batch(value, kind, number))

            (seen,) = await postgres.run("SELECT v FROM t")
            assert seen == (NOON.replace(tzinfo=UTC) if "Z" in column else NOON,)
            await postgres.run("DROP TABLE t")


@pytest.mark.parametrize("way", [publish, commit])
@pytest.mark.usefixtures("elsewhere")
async def test_a_day_of_a_record_batch_begins_in_utc(
    postgres: Postgres, way: Way
) -> None:
    await postgres.run(f"ALTER DATABASE {postgres.name} SET timezone = 'Asia/Tokyo'")
    await postgres.run("CREATE TABLE t (v TIMESTAMPTZ, n INTEGER)")
    await way(postgres, batch(NOON.date(), pa.date32(), pa.int32()))

    assert await postgres.run("SELECT v FROM t") == [(MIDNIGHT.replace(tzinfo=UTC),)]


@pytest.mark.parametrize("way", [publish, commit])
async def test_no_moment_loses_its_time_or_its_day(
    postgres: Postgres, way: Way
) -> None:
    await postgres.run("CREATE TABLE t (v DATE, n INTEGER)")
    for kind in (NTZ, IN_BERLIN):
        with pytest.raises(ValueError, match="column v must be of days without a time"):
            await way(postgres, batch(NOON, kind, pa.int32()))
    await way(postgres, batch(MIDNIGHT, NTZ, pa.int32()))
    assert await postgres.run("SELECT v FROM t") == [(date(2026, 1, 2),)]

    await postgres.run("DROP TABLE t")
    await postgres.run("CREATE TABLE t (v TIME, n INTEGER)")
    with pytest.raises(ValueError, match="column v must be of times without a day"):
        await way(postgres, batch(NOON, NTZ, pa.int32()))


async def test_nor_does_one_of_a_row(postgres: Postgres) -> None:
    await postgres.run("CREATE TABLE t (v DATE, n INTEGER)")
    with pytest.raises(ValueError, match="v must be a day without a time, got a datet"):
        await commit(postgres, (NOON, 1))
    await commit(postgres, (MIDNIGHT, 1))
    assert await postgres.run("SELECT v FROM t") == [(date(2026, 1, 2),)]

    await postgres.run("DROP TABLE t")
    await postgres.run("CREATE TABLE t (v TIME, n INTEGER)")
    with pytest.raises(ValueError, match="v must be a time without a day or a zone"):
        await commit(postgres, (NOON, 1))


@pytest.mark.parametrize("number", [pa.int32(), pa.int64()], ids=["binary", "read"])
@pytest.mark.parametrize("way", [publish, commit, commit_rows])
async def test_a_float_has_the_same_digits(
    postgres: Postgres, way: Way, number: pa.DataType
) -> None:
    third = 0.3333333432674408  # as DOUBLE(FLOAT(1 / 3)) is in Spark
    for column, kind, value, expected in (
        ("FLOAT8", pa.float32(), 1 / 3, third),
        ("FLOAT8", pa.float64(), 0.1, 0.1),
        ("REAL", pa.float32(), 1 / 3, third),
        ("NUMERIC", pa.float32(), 1 / 3, Decimal(repr(third))),
        ("NUMERIC", pa.float64(), 0.1, Decimal("0.1")),
        ("NUMERIC", pa.float64(), float("inf"), Decimal("inf")),
        ("NUMERIC(20, 2)", pa.float64(), 2.675, Decimal("2.68")),
    ):
        await postgres.run(f"CREATE TABLE t (v {column}, n INTEGER)")
        await way(postgres, batch(value, kind, number))

        (seen,) = await postgres.run("SELECT v FROM t")
        assert seen == (expected,)
        await postgres.run("DROP TABLE t")
