"""Neither a database's password nor a row gets into an error, a log line or a repr."""

import logging
import sqlite3
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import pyarrow as pa
import pytest
import yarl

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.parquet import ParquetEpochSink
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from tests.sinks.databases import Database, Postgres
from tests.sinks.places import attempt
from tests.sinks.stores import SCHEMA

pytestmark = pytest.mark.real_time

FIRST = Epoch("query", 0)
SECRET = "hunter2"
CARD = "4111111111111111"
LONG = f"{CARD}{'x' * 5_000_000}"


@dataclass
class Dsn:
    """What a settings library has for a URL."""

    url: str


def everything(error: BaseException) -> str:
    """What a program may print of an error, and of those behind it."""
    behind: list[BaseException] = [error]
    for each in behind:
        behind += [e for e in (each.__cause__, each.__context__) if e is not None]
    told = [f"{each} {each!r} {each.args} {vars(each)}" for each in behind]
    return "".join([*told, *traceback.format_exception_only(error)])


DSN = f"postgresql://me:{SECRET}@localhost:1/db"
WRONG: dict[str, Any] = {
    "yarl": yarl.URL(DSN),
    "bytes": DSN.encode(),
    "of settings": Dsn(DSN),
    "dict": {"host": "localhost", "password": SECRET},
    "list": [DSN],
    "NUL": f"{DSN}\0",
}


@pytest.mark.parametrize("dsn", WRONG.values(), ids=WRONG)
def test_a_dsn_of_another_type_is_not_told(dsn: Any) -> None:  # noqa: ANN401
    makers: list[tuple[str, Callable[[], object]]] = [
        ("url", lambda: PostgresEpochSink(dsn, "t", ("id",))),
        ("url", lambda: PostgresStagedSink(dsn, "t")),
        ("url", lambda: PostgresStagedSink.from_options({"url": dsn, "table": "t"})),
    ]
    for field, make in makers:
        with pytest.raises(
            (TypeError, ValueError), match=f"^{field} must be "
        ) as error:
            make()
        assert SECRET not in everything(error.value)


@pytest.mark.parametrize(
    "dsn",
    [
        DSN,
        f"{SECRET}://me@host/db",
        f"postgresql://me:12@{SECRET}:word@host/db",
        f"postgresql://me:{SECRET}/word@host/db",
        f"postgresql://me:{SECRET}#word@[host/db",
        f"host=localhost port=1 user=me password={SECRET}",
        f"postgresql://me@localhost:1/db?password={SECRET}&sslmode={SECRET}",
    ],
    ids=map(str, range(7)),
)
async def test_a_dsn_that_leads_nowhere_is_not_told(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sinks: list[Any] = [
        PostgresEpochSink(dsn, "t", ("id",), timeout=1.0),
        PostgresStagedSink(dsn, "t", timeout=1.0),
    ]
    for sink in sinks:
        ask = getattr(sink, "is_committed", None) or sink.is_published
        with pytest.raises((OSError, ValueError)) as error:
            await ask(FIRST)
        assert SECRET not in everything(error.value)
        assert SECRET not in repr(sink)
        await sink.close()
    assert SECRET not in caplog.text


BAD_ITEMS: dict[str, Any] = {
    "too long": (1, CARD, LONG),
    "too short": (CARD,),
    "mapping": {"id": 1, CARD: LONG},
    "text": LONG,
    "number": int(CARD),
    "object": Dsn(CARD),
    "surrogate": (1, f"{CARD}\ud800"),
}


@pytest.mark.parametrize("item", BAD_ITEMS.values(), ids=BAD_ITEMS)
async def test_an_item_that_no_sink_takes_is_not_told(
    database: Database,
    tmp_path: Path,
    item: Any,  # noqa: ANN401
) -> None:
    sinks: list[Any] = [database.sink("a"), ParquetEpochSink(tmp_path, schema=SCHEMA)]
    for sink in sinks:
        await sink.begin(FIRST)
        with pytest.raises((TypeError, ValueError)) as error:
            await sink.write(FIRST, [(0, "good"), item])
        check(error.value)
        try:
            await sink.commit(FIRST)
        except BatchQueueError as late:
            check(late)
    await sinks[0].close()


def check(error: BaseException) -> None:
    told = everything(error)
    assert CARD not in told
    assert len(told) < 10_000


async def test_a_value_that_postgresql_refuses_is_told_by_its_column(
    postgres: Postgres,
) -> None:
    await postgres.run(
        """CREATE TABLE odd (id BIGINT PRIMARY KEY, code VARCHAR(3) NOT NULL,
        amount NUMERIC(3, 1) CHECK (amount > 0), at UUID)"""
    )
    columns = ("id", "code", "amount", "at")
    good = (1, "a", Decimal("1.5"), None)
    bad: list[tuple[Any, ...]] = [
        (CARD, "a", None, None),
        (int(CARD) * 10**9, "a", None, None),
        (1, int(CARD), None, None),
        (1, CARD, None, None),
        (1, "a", CARD, None),
        (1, "a", Decimal(CARD), None),
        (1, "a", None, CARD),
        (1, None, Decimal(9), None),
        (int(CARD), "a", Decimal(-1), None),
        (1, "a\0", None, None),
    ]
    for number, row in enumerate(bad):
        sink = PostgresEpochSink[Any](postgres.dsn, "odd", columns)
        epoch = Epoch("query", number)
        with pytest.raises((ValueError, TypeError, asyncpg.PostgresError)) as error:  # noqa: PT012
            await sink.begin(epoch)
            await sink.write(epoch, [good, row])
            await sink.commit(epoch)
        check(error.value)
        await sink.close()
    with pytest.raises(asyncpg.UniqueViolationError, match="odd_pkey") as twice:  # noqa: PT012
        sink = PostgresEpochSink[Any](postgres.dsn, "odd", columns)
        await sink.begin(FIRST)
        await sink.write(FIRST, [(int(CARD), *good[1:])] * 2)
        await sink.commit(FIRST)
    check(twice.value)
    await sink.close()


async def test_a_value_that_a_staged_table_refuses_is_told_by_its_column(
    postgres: Postgres,
) -> None:
    await postgres.run(
        """CREATE TABLE odd (id BIGINT PRIMARY KEY, word VARCHAR(3), words TSVECTOR,
        data JSON, price NUMERIC(4, 2))"""
    )
    sink = PostgresStagedSink(postgres.dsn, "odd")
    for values, says in (
        ({"id": [CARD * 2]}, "column id"),
        ({"id": [1], "word": [CARD]}, r"too long .*\(3\), in column word$"),
        ({"id": [1], "words": [f"'{CARD}"]}, "a value of column words: SQLSTATE 42601"),
        ({"id": [1], "data": [f"x, column {CARD}: "]}, "json, in column data$"),
        ({"id": [1], "price": [int(CARD)]}, "overflow, in column price$"),
        ({"id": [f"{CARD}:x"]}, "column id"),
    ):
        mine = attempt()
        with pytest.raises(asyncpg.PostgresError, match=says) as error:
            await sink.stage(mine, [pa.RecordBatch.from_pydict(values)])
        check(error.value)
        await sink.abandon(mine)
    mine = attempt()
    await sink.stage(mine, [pa.RecordBatch.from_pydict({"id": [int(CARD)] * 2})])
    with pytest.raises(asyncpg.UniqueViolationError, match="odd_pkey") as twice:
        await sink.publish(mine.epoch, [await sink.seal(mine)])
    check(twice.value)
    await sink.close()


# As the server's own translations have it: its messages are in `lc_messages`.
TRANSLATED = {
    "German": ("COPY t, Zeile 1, Spalte words: »{}«", "Syntaxfehler in tsvector: »{}«"),
    "French": ("COPY t, ligne 1, colonne words : « {} »", "erreur : « {} »"),
    "Russian": ('COPY t, строка 1, столбец words: "{}"', 'ошибка в tsvector: "{}"'),
    "Japanese": ('tのCOPY、行 1、列 words: "{}"', "tsvector内の構文エラー: {}"),
    "Korean": ('t 복사, 1번째 줄, words 열: "{}"', '구문 오류가 있음: "{}"'),
}


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_value_is_not_told_in_any_language(language: str) -> None:
    context, message = (
        each.format(f"{CARD}, line 2, column {CARD}: ") for each in TRANSLATED[language]
    )
    fields = {"S": "ERROR", "C": "42601", "M": message, "W": context}
    connections = PostgresStagedSink("postgresql://localhost/x", "t")._connections
    says = "a value of column words"
    with (
        pytest.raises(asyncpg.PostgresSyntaxError, match=says) as error,
        connections.errors(),
    ):
        raise asyncpg.PostgresError.new(fields)
    check(error.value)


async def test_a_value_that_parquet_refuses_is_told_by_its_column(
    tmp_path: Path,
) -> None:
    schema = pa.schema([("id", pa.int8()), ("name", pa.string())])
    bad = [
        (CARD, "a"),
        (int(CARD), "a"),
        (1, int(CARD)),
        pa.RecordBatch.from_pydict({"id": [CARD], "name": ["a"]}),
        pa.RecordBatch.from_pydict({"id": [int(CARD)], "name": ["a"]}),
    ]
    for number, item in enumerate(bad):
        sink = ParquetEpochSink[Any](tmp_path, schema=schema)
        epoch = Epoch("query", number)
        await sink.begin(epoch)
        with pytest.raises(
            (ValueError, TypeError), match=r"^column (id|name) must"
        ) as e:
            await sink.write(epoch, [item])
        check(e.value)
        await sink.abort(epoch)


async def test_a_value_that_sqlite_refuses_is_not_told(tmp_path: Path) -> None:
    sink = SqliteEpochSink[Any](tmp_path / "db", "t", ("id", "name"))
    with closing(sqlite3.connect(tmp_path / "db")) as database:
        database.execute(
            "CREATE TABLE t (id INTEGER UNIQUE CHECK (id > 0), name TEXT NOT NULL)"
        )
    bad = [(int(CARD) * 10**9, "a"), (1, [CARD]), (-int(CARD), "a"), (1, None)]
    for number, row in enumerate([*bad, (int(CARD), "a")]):
        epoch = Epoch("query", number)
        await sink.begin(epoch)
        with pytest.raises((sqlite3.Error, ValueError)) as error:  # noqa: PT012
            await sink.write(epoch, [row, row])
            await sink.commit(epoch)
        check(error.value)
        await sink.abort(epoch)
    await sink.close()
