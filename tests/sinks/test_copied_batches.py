"""Record batches of all types reach a table as they are, in whatever form they go."""

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import pyarrow as pa
import pytest

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks._postgres.copied_batches import BatchCopier, require_plain
from batchqueue_async.sinks._postgres.target import Target, column_types
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from tests.sinks.places import attempt
from tests.sinks.stores import connected

pytestmark = pytest.mark.real_time

EPOCH = Epoch("query", 0)
AT = datetime(2013, 1, 1, 5, 6, 7, 8, tzinfo=UTC)
EARLY, LATE = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)
# The type in Arrow, the column's, and values.
TYPES: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "flag": (pa.bool_(), "BOOLEAN", [True, False]),
    "tiny": (pa.int8(), "SMALLINT", [-128, 127]),
    "small": (pa.int16(), "SMALLINT", [-(2**15), 2**15 - 1]),
    "wider": (pa.int16(), "INTEGER", [-(2**15), 2**15 - 1]),
    "whole": (pa.int32(), "INTEGER", [-(2**31), 2**31 - 1]),
    "widest": (pa.int32(), "BIGINT", [-(2**31), 2**31 - 1]),
    "big": (pa.int64(), "BIGINT", [-(2**63), 2**63 - 1]),
    "real": (pa.float32(), "REAL", [-0.0, 1.5]),
    "double": (pa.float64(), "FLOAT8", [1 / 3, float("inf")]),
    "words": (pa.string(), "TEXT", ["", 'a "b",\n\t\\N Größe 日本 🙂']),
    "large": (pa.large_string(), "VARCHAR(9)", ["", "nine char"]),
    "padded": (pa.string(), "CHAR(3)", ["a  ", "abc"]),
    "json": (pa.string(), "JSON", ['{"a": 1}', "[]"]),
    "raw": (pa.binary(), "BYTEA", [b"", b"\x00\\x\xff"]),
    "raws": (pa.large_binary(), "BYTEA", [b"", bytes(range(256))]),
    "day": (pa.date32(), "DATE", [date(1, 1, 1), date(9999, 12, 31)]),
    "local": (pa.timestamp("us"), "TIMESTAMP", [EARLY, LATE]),
    "at": (
        pa.timestamp("us", "America/New_York"),
        "TIMESTAMPTZ",
        [AT, EARLY.replace(tzinfo=UTC) + timedelta(days=1)],
    ),
}
# These have no binary form: the server has to read them.
READ: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "narrow": (pa.int64(), "INTEGER", [-(2**31), 2**31 - 1]),
    "sum": (pa.decimal128(20, 2), "NUMERIC", [Decimal("-1.20"), Decimal("1e17")]),
    "seconds": (
        pa.timestamp("s", "UTC"),
        "TIMESTAMPTZ",
        [AT.replace(microsecond=0)] * 2,
    ),
    "word": (pa.string(), "UUID", [uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)]),
    "parsed": (pa.string(), "JSONB", ['{"a": 1}', "[]"]),
}


class Table:
    """A table of its own with columns of such types, and what comes to be in it."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.name = f"t_{uuid.uuid4().hex[:8]}"

    async def run(self, query: str) -> list[asyncpg.Record]:
        async with connected(self.dsn) as connection:
            return await connection.fetch(query)

    async def make(self, **columns: str) -> None:
        listed = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        await self.run(f"CREATE TABLE {self.name} ({listed})")

    async def rows(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.run(f"SELECT * FROM {self.name}")]

    async def publish(self, *batches: pa.RecordBatch) -> None:
        sink = PostgresStagedSink(self.dsn, self.name)
        mine = attempt(epoch=EPOCH)
        try:
            await sink.stage(mine, [*batches])
            await sink.publish(EPOCH, [await sink.seal(mine)])
        finally:
            await sink.close()

    async def commit(self, *items: Any) -> None:  # noqa: ANN401
        columns = [row[0] for row in await self.run(_COLUMNS.format(self.name))]
        sink = PostgresEpochSink[Any](self.dsn, self.name, columns)
        try:
            await sink.begin(EPOCH)
            await sink.write(EPOCH, [*items])
            await sink.commit(EPOCH)
        finally:
            await sink.close()


_COLUMNS = """SELECT attname::text FROM pg_attribute
    WHERE attrelid = '{}'::regclass AND attnum > 0 ORDER BY attnum"""


@pytest.fixture
async def table(postgres_dsn: str) -> AsyncIterator[Table]:
    made = Table(postgres_dsn)
    yield made
    await made.run(f"DROP TABLE IF EXISTS {made.name}, {made.name}_staged")


def batch_of(types: dict[str, tuple[pa.DataType, str, list[Any]]]) -> pa.RecordBatch:
    """Rows with the values, with nulls between them; and more, that are sliced off."""
    arrays = {
        name: pa.array(
            [_plain(v) for v in (values[0], None, *values, None, values[1])], kind
        )
        for name, (kind, _, values) in types.items()
    }
    return pa.record_batch(arrays).slice(1, 4)


def _plain(value: Any) -> Any:  # noqa: ANN401
    return str(value) if isinstance(value, uuid.UUID) else value


def expected(
    types: dict[str, tuple[pa.DataType, str, list[Any]]],
) -> list[tuple[Any, ...]]:
    columns = [[None, *values, None] for _, _, values in types.values()]
    return [*zip(*columns, strict=True)]


@pytest.mark.parametrize("way", ["publish", "commit"])
@pytest.mark.parametrize("types", [TYPES, TYPES | {"sum": READ["sum"]}])
async def test_values_arrive_as_they_are(
    table: Table, way: str, types: dict[str, tuple[pa.DataType, str, list[Any]]]
) -> None:
    await table.make(**{name: kind for name, (_, kind, _) in types.items()})
    batch = batch_of(types)
    whole = batch.slice(1, 2)

    await getattr(table, way)(batch, whole, whole.slice(0, 0))

    rows = expected(types)
    assert await table.rows() == [*rows, *rows[1:3]]


@pytest.mark.parametrize("name", READ)
async def test_what_has_no_binary_form_is_read_by_the_server(
    table: Table, name: str
) -> None:
    await table.make(id="BIGINT", **{name: READ[name][1]})
    numbers = {"id": pa.array([1, 2, 3, 4])}
    read = pa.record_batch(numbers | {name: batch_of({name: READ[name]})[name]})

    await table.publish(read)

    assert [row[1] for row in await table.rows()] == [
        row[0] for row in expected({name: READ[name]})
    ]


@pytest.mark.parametrize(
    "column, value, told",
    [
        ("BYTEA", r"C:\\x", "must be of BINARY for a BYTEA"),
        ("BYTEA", r"\x41", "must be of BINARY for a BYTEA"),
        ("TEXT", b"abc", "must be of STRING for texts"),
        ("VARCHAR(9)", b"abc", "must be of STRING for texts"),
        ("NAME", b"abc", "must be of STRING for texts"),
        ("XML", b"<a/>", "must be of STRING for texts"),
    ],
)
async def test_texts_are_no_bytes_and_bytes_no_texts(
    table: Table, column: str, value: object, told: str
) -> None:
    """The server would take one for the other's spelling."""
    await table.make(v=column)
    for way in (table.publish, table.commit):
        with pytest.raises(TypeError, match=told if way == table.publish else "got v"):
            await way(pa.record_batch({"v": [value]}))
    assert await table.rows() == []


@pytest.mark.parametrize("column", ["TIMESTAMP", "TIMESTAMPTZ"])
async def test_a_whole_number_is_no_other_moment_by_another_way(
    table: Table, column: str
) -> None:
    """In rows it is microseconds; the server would read a day out of its digits."""
    await table.make(v=column)
    numbers = pa.record_batch({"v": [20_260_102]})
    told = r"column 'v' must be of TIMESTAMP for a timestamp \(timestamp_micros"
    with pytest.raises(TypeError, match=told):
        await table.publish(numbers)

    await table.commit(numbers)
    ((moment,),) = await table.rows()
    assert moment.replace(tzinfo=UTC) == datetime(1970, 1, 1, 0, 0, 20, 260_102, UTC)


def numbered(batches: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"id": [n, n + 1000]}) for n in range(batches)]


@pytest.mark.parametrize(
    "kind,way_out",
    [
        (pa.list_(pa.int32()), "without parts (to_json makes texts of them), got 'lis"),
        (pa.duration("us"), "no INTERVAL (a cast to STRING makes a text of it), got"),
        (pa.month_day_nano_interval(), "no INTERVAL (a cast to STRING makes a text"),
    ],
)
def test_a_type_that_is_refused_is_told_with_the_way_out(
    kind: pa.DataType, way_out: str
) -> None:
    with pytest.raises(TypeError, match="column 'v' must be of ") as refused:
        require_plain(pa.schema({"v": kind}))

    assert way_out in str(refused.value)


async def test_connections_share_the_record_batches_of_a_write(table: Table) -> None:
    await table.make(id="BIGINT")

    await table.commit(*numbered(50))

    assert sorted(await table.rows()) == [
        *((n,) for n in range(50)),
        *((n + 1000,) for n in range(50)),
    ]


async def test_a_write_that_fails_on_one_connection_counts_for_nothing(
    table: Table,
) -> None:
    await table.make(id="BIGINT")
    wrong = pa.record_batch({"id": ["no number"]})
    sink = PostgresEpochSink[Any](table.dsn, table.name, ["id"])
    await sink.begin(EPOCH)
    with pytest.raises(TypeError, match="got id: a str"):
        await sink.write(EPOCH, [*numbered(20), wrong, *numbered(20)])
    await sink.write(EPOCH, numbered(1))

    await sink.commit(EPOCH)

    assert sorted(await table.rows()) == [(0,), (1000,)]
    await sink.close()


async def test_wide_rows_go_in_several_pieces(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    from batchqueue_async.sinks._postgres import binary_rows  # noqa: PLC0415

    monkeypatch.setattr(binary_rows, "_MOST_BYTES", 50)
    await table.make(id="BIGINT", word="TEXT")
    ids = [*range(100)]
    words = ["x" * n for n in ids]

    await table.publish(pa.record_batch({"id": ids, "word": words}))

    assert await table.rows() == [*zip(ids, words, strict=True)]


async def test_days_before_christ_arrive(table: Table) -> None:
    """As the server counts: its calendar begins on 4714-11-24 BC."""
    await table.make(day="DATE", at="TIMESTAMP")
    days = pa.array([-2_440_588, -719_529], pa.int32())
    at = pa.array([-210_866_803_200_000_000, -62_167_305_600_000_000], pa.int64())
    await table.publish(
        pa.record_batch(
            {"day": days.cast(pa.date32()), "at": at.cast(pa.timestamp("us"))}
        )
    )

    found = await table.run(f"SELECT day::TEXT, at::TEXT FROM {table.name}")
    assert [tuple(row) for row in found] == [
        ("4714-11-24 BC", "4714-11-24 00:00:00 BC"),
        ("0002-12-31 BC", "0002-12-31 00:00:00 BC"),
    ]


@pytest.mark.parametrize("beyond", [0, 1, 946_684_800_000_000, 10**18])
async def test_what_is_too_long_ago_is_refused_and_never_infinity(
    table: Table, beyond: int
) -> None:
    """The least numbers mean -infinity to the server."""
    await table.make(at="TIMESTAMP")
    least = pa.array([-(2**63) + beyond], pa.int64()).cast(pa.timestamp("us"))

    with pytest.raises(asyncpg.DataError, match="out of range"):
        await table.publish(pa.record_batch({"at": least}))


@pytest.mark.parametrize("beyond", [0, 10_957, 20_000])
async def test_a_day_too_long_ago_is_refused_and_never_infinity(
    table: Table, beyond: int
) -> None:
    await table.make(day="DATE")
    least = pa.array([-(2**31) + beyond], pa.int32()).cast(pa.date32())

    with pytest.raises(asyncpg.DataError, match="out of range"):
        await table.publish(pa.record_batch({"day": least}))


async def test_a_value_that_the_server_refuses_is_told_by_its_column_alone(
    table: Table,
) -> None:
    await table.make(id="BIGINT", word="TEXT")
    secret = pa.record_batch({"id": [1], "word": ["a secret\0"]})
    for way in (table.publish, table.commit):
        with pytest.raises(asyncpg.DataError, match=r"NUL.* of column word") as caught:
            await way(secret)
        assert "secret" not in str(caught.value)


async def test_a_column_s_type_may_change_between_attempts(table: Table) -> None:
    await table.make(number="BIGINT")
    staged = PostgresStagedSink(table.dsn, table.name)
    sink = PostgresEpochSink[Any](table.dsn, table.name, ["number"])
    batch = pa.record_batch({"number": [7]})
    try:
        for number in range(2):
            mine = attempt(epoch=Epoch("staged", number))
            await staged.stage(mine, [batch])
            await staged.publish(mine.epoch, [await staged.seal(mine)])
            epoch = Epoch("epochs", number)
            await sink.begin(epoch)
            await sink.write(epoch, [batch])
            await sink.commit(epoch)
            # As wide, and other bytes.
            await table.run(f"ALTER TABLE {table.name} ALTER number TYPE FLOAT8")
    finally:
        await staged.close()
        await sink.close()

    assert await table.rows() == [(7.0,)] * 4


async def test_rows_and_record_batches_may_be_mixed(table: Table) -> None:
    await table.make(id="BIGINT", word="TEXT")
    one = pa.record_batch({"word": ["b"], "id": [2]})  # in another order
    other = pa.record_batch({"id": pa.array([4], pa.int32()), "word": ["d"]})

    await table.commit((1, "a"), one, {"word": "c", "id": 3}, other, (5, "e"))

    assert await table.rows() == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]


async def test_record_batches_of_an_attempt_are_matched_by_name(table: Table) -> None:
    await table.make(id="BIGINT", word="TEXT")
    one = pa.record_batch({"id": [1], "word": ["a"]})
    other = pa.record_batch({"word": ["b"], "id": pa.array([2], pa.int32())})

    await table.publish(one, other)
    with pytest.raises(ValueError, match="a record batch with the columns"):
        await table.publish(one, pa.record_batch({"id": [3]}))

    assert await table.rows() == [(1, "a"), (2, "b")]


async def test_columns_keep_their_types_for_as_long_as_an_epoch(table: Table) -> None:
    """A column of another type, since: the next epoch's batches go in its form."""
    await table.make(id="INTEGER", word="TEXT")
    sink = PostgresEpochSink[Any](table.dsn, table.name, ("id", "word"))
    batch = pa.record_batch({"id": pa.array([1], pa.int32()), "word": ["a"]})
    for number in range(2):
        epoch = Epoch("query", number)
        await sink.begin(epoch)
        await sink.write(epoch, [batch])
        await sink.commit(epoch)
        await table.run(f"ALTER TABLE {table.name} ALTER id TYPE BIGINT")
    await sink.close()

    assert await table.rows() == [(1, "a"), (1, "a")]


async def test_all_of_these_types_have_a_binary_form(table: Table) -> None:
    """Else the tests above would try something else."""
    await table.make(**{name: kind for name, (_, kind, _) in TYPES.items()})
    async with connected(table.dsn) as connection:
        target = Target("public", table.name)
        types = await column_types(connection, target.place)
    copier = BatchCopier("mark", types)
    for name, column in TYPES.items():
        copied = copier.copied([batch_of({name: column})], 1)
        assert copied.format == "binary", name
    for name, column in READ.items():
        copied = BatchCopier("mark", {}).copied([batch_of({name: column})], 1)
        assert copied.format == "csv", name
