"""A fence of each epoch stays; to look for one goes through none of the others."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks._postgres.fences import EPOCHS, Fences
from batchqueue_async.sinks._postgres.target import find_target
from batchqueue_async.sinks._sqlite.fences import SqliteFences
from tests.sinks.databases import Postgres
from tests.sinks.stores import connected

pytestmark = pytest.mark.real_time

MANY = 20_000


def test_sqlite_asks_the_primary_key(tmp_path: Path) -> None:
    fences = SqliteFences("fences")
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as database:
        database.execute("CREATE TABLE t (v)")
        database.execute("CREATE TABLE other (v)")
        fences.prepare(database)
        for table in ("t", "other"):
            fences.add(database, table, Epoch("query", 0), 1)
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 1

        def look() -> int:
            nonlocal steps
            steps = 0
            assert fences.has(database, "t", Epoch("query", 0))
            assert not fences.has(database, "t", Epoch("query", MANY + 1))
            return steps

        database.set_progress_handler(count, 1)
        before = look()
        database.set_progress_handler(None, 1)
        database.execute(
            f"""WITH RECURSIVE one (batch) AS
                (SELECT 1 UNION ALL SELECT batch + 1 FROM one WHERE batch < {MANY})
            INSERT INTO fences (target, query, batch, rows, identity)
            SELECT target, query, one.batch, 1, identity FROM fences, one"""
        )
        database.set_progress_handler(count, 1)
        assert look() <= before + 100


class Explained:
    """A connection that counts the pages that queries look at."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection
        self.pages = 0

    async def fetch(self, query: str, *values: object) -> list[Any]:
        return await self._connection.fetch(query, *values)

    async def fetchval(self, query: str, *values: object) -> Any:  # noqa: ANN401
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}"
        (told,) = json.loads(await self._connection.fetchval(explain, *values))
        plan = told["Plan"]
        self.pages += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return await self._connection.fetchval(query, *values)


async def test_postgres_asks_the_primary_key(postgres: Postgres) -> None:
    await postgres.run("CREATE TABLE t (v INTEGER)")
    async with connected(postgres.dsn) as connection, connection.transaction():
        fences = Fences(EPOCHS)
        await fences.prepare(connection, await find_target(connection, "t"))
        await fences.add(connection, Epoch("query", 0), 1)
        await connection.execute(
            f"""INSERT INTO {EPOCHS}
                (target, query, batch, rows, target_oid, fences_oid)
            SELECT target, query, number, 1, target_oid, fences_oid
            FROM {EPOCHS}, generate_series(1, {MANY}) AS number"""
        )
        await connection.execute(f"ANALYZE {EPOCHS}")
        explained = Explained(connection)

        assert await fences.has(explained, Epoch("query", 0))  # type: ignore[arg-type]
        # The table has 300 pages, and the key's index 100.
        assert 0 < explained.pages < 50
