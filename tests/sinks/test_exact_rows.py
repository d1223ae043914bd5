"""What asyncpg would cut off is refused, in domains and arrays of PostgreSQL's, too."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from asyncpg import Range

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.postgres import PostgresEpochSink
from tests.sinks.databases import Postgres

pytestmark = pytest.mark.real_time

EPOCH = Epoch("query", 0)
NANOSECONDS = pd.Timestamp("2026-01-02 12:00:00.123456789")
NOON, MIDNIGHT = datetime(2026, 1, 2, 12), datetime(2026, 1, 2)


async def commit(postgres: Postgres, item: Any) -> None:  # noqa: ANN401
    sink = PostgresEpochSink[Any](postgres.dsn, "t", ("v",))
    try:
        await sink.begin(EPOCH)
        await sink.write(EPOCH, [item])
        await sink.commit(EPOCH)
    finally:
        await sink.close()


@pytest.mark.parametrize("type_", ["positive", "priority"])
async def test_a_domain_of_whole_numbers_takes_whole_numbers(
    postgres: Postgres, type_: str
) -> None:
    await postgres.run("CREATE DOMAIN positive AS INTEGER CHECK (value > 0)")
    await postgres.run("CREATE DOMAIN priority AS positive")
    await postgres.run(f"CREATE TABLE t (v {type_})")
    for value in (1.5, Decimal("1.5")):
        for item in ((value,), pa.record_batch({"v": [value]})):
            with pytest.raises(ValueError, match="column v must be a whole number"):
                await commit(postgres, item)
    await commit(postgres, (2.0,))

    assert await postgres.run("SELECT v FROM t") == [(2,)]


@pytest.mark.parametrize(
    "type_, value, kept",
    [
        ("INTEGER[]", [1, None, 1.5], [1, None, 2.0]),
        ("BIGINT[]", [[1, 2], [3, Decimal("4.5")]], [[1, 2], [3, Decimal(4)]]),
        ("DATE[]", [NOON], [MIDNIGHT]),
        ("TIME[]", [NOON], [NOON.time()]),
        ("TIME[]", [NOON.time().replace(tzinfo=UTC)], [NOON.time()]),
        ("TIMESTAMP[]", [NANOSECONDS], [NOON]),
        ("positive[]", [1, Decimal("1.5")], [1, Decimal(2)]),
        ("priority[]", [1, 1.5], [1, 2.0]),
        ("vector", [1, 1.5], [1, 2.0]),
        ("INT4RANGE", Range(Decimal("1.5"), 3), Range(Decimal(1), 3)),
        ("INT8MULTIRANGE", [Range(1, 2.5)], [Range(1, 2)]),
        ("DATERANGE", Range(NOON), Range(MIDNIGHT)),
        ("TSRANGE", Range(None, NANOSECONDS), Range(None, NOON)),
    ],
    ids=repr,
)
async def test_an_array_s_elements_are_looked_at(
    postgres: Postgres, type_: str, value: object, kept: object
) -> None:
    await postgres.run("CREATE DOMAIN positive AS INTEGER")
    await postgres.run("CREATE DOMAIN priority AS positive")
    await postgres.run("CREATE DOMAIN vector AS INTEGER[]")
    await postgres.run(f"CREATE TABLE t (v {type_})")
    with pytest.raises(ValueError, match=r"an element of column v must be a .*, got a"):
        await commit(postgres, (value,))
    await commit(postgres, (kept,))

    assert await postgres.run("SELECT count(v) FROM t") == [(1,)]


@pytest.mark.parametrize(
    "type_, value, kept",
    [
        ("NUMERIC[]", [0.1, None, Decimal("0.1"), 1], "{0.1,NULL,0.1,1}"),
        ("NUMERIC(10, 2)[]", ([2.675], [0.1]), "{{2.68},{0.10}}"),
        ("price[]", [0.1], "{0.1}"),
        ("NUMRANGE", Range(0.1, 0.3, upper_inc=True), "[0.1,0.3]"),
        ("NUMRANGE", Range(0.1, 0.3, empty=True), "empty"),
        ("NUMRANGE", (0.1, 0.3), "[0.1,0.3]"),
        ("NUMMULTIRANGE", [Range(0.1, 0.3), (0.5, None)], "{[0.1,0.3),[0.5,)}"),
    ],
    ids=repr,
)
async def test_a_float_in_an_array_or_a_range_has_the_digits_of_its_text(
    postgres: Postgres, type_: str, value: object, kept: str
) -> None:
    await postgres.run("CREATE DOMAIN price AS NUMERIC")
    await postgres.run(f"CREATE TABLE t (v {type_})")
    await commit(postgres, (value,))

    assert await postgres.run("SELECT v::TEXT FROM t") == [(kept,)]


async def test_a_time_s_zone_is_kept_or_refused(postgres: Postgres) -> None:
    noon = NOON.time().replace(tzinfo=UTC)
    await postgres.run("CREATE TABLE t (v TIME)")
    with pytest.raises(ValueError, match="column v must be a time without a day or a"):
        await commit(postgres, (noon,))
    await postgres.run("ALTER TABLE t ALTER COLUMN v TYPE TIMETZ")
    await commit(postgres, (noon,))

    assert await postgres.run("SELECT v FROM t") == [(noon,)]


async def test_what_pandas_has_for_moments_is_kept_or_refused(
    postgres: Postgres,
) -> None:
    await postgres.run("CREATE TABLE t (v TIMESTAMPTZ)")
    with pytest.raises(ValueError, match="column v must be a moment in microseconds"):
        await commit(postgres, (NANOSECONDS,))
    await commit(postgres, (NANOSECONDS.floor("us").tz_localize("UTC"),))
    await postgres.run("ALTER TABLE t ALTER COLUMN v TYPE DATE USING NULL")
    with pytest.raises(ValueError, match=r"an item must be of .*, got v: a NaTType"):
        await commit(postgres, (pd.NaT,))


@pytest.mark.parametrize("value, told", [((1,), "a tuple"), ({"x": 1}, "a dict")])
async def test_a_value_without_all_its_parts_is_told_by_its_column(
    postgres: Postgres, value: object, told: str
) -> None:
    await postgres.run("CREATE TABLE t (v POINT)")
    with pytest.raises(ValueError, match=f"an item must be of .*, got v: {told}"):
        await commit(postgres, (value,))
