"""Two tables, one file or server, kills in the middle of commits: both are exact."""

import asyncio
import signal
import sys
from itertools import chain
from pathlib import Path

import pytest

from tests.sinks.databases import Database, Postgres, Sqlite, ids
from tests.sinks.killed import ids_of

# On one loop: the programs that are killed have theirs.
pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

EPOCHS = 3
ROOT = Path(__file__).parents[2]

# In a commit of each table, and in the gap between the two; with what SQLite and
# PostgreSQL call the statements.
KILLS = {
    "in the middle of the first": (
        "a:0:INSERT:after",
        "b:0:COMMIT:before",
        "a:2:COMMIT:after",
    ),
    "at the ends": ("a:0:COMMIT:after", "b:1:INSERT:before", "b:2:COMMIT:after"),
    "in the second only": ("b:0:INSERT:after", "b:1:COMMIT:before", "b:2:COMMIT:after"),
}


async def run(database: Database, kill: str) -> int:
    kind = "sqlite" if isinstance(database, Sqlite) else "postgres"
    assert isinstance(database, Sqlite | Postgres)
    where = str(database.path) if isinstance(database, Sqlite) else database.dsn
    arguments = ("-m", "tests.sinks.killed", kind, where, str(EPOCHS), kill)
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT)
    try:
        async with asyncio.timeout(60):
            return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("kills", KILLS.values(), ids=KILLS)
async def test_two_tables_are_exact_after_three_kills(
    database: Database, kills: tuple[str, ...]
) -> None:
    for kill in kills:
        assert await run(database, kill) == -signal.SIGKILL
        for table in ("a", "b"):
            # Nothing is there by half, after a kill, either.
            assert len(await ids(database, table)) % 100 == 0
    assert await run(database, "none") == 0

    for table in ("a", "b"):
        wanted = chain.from_iterable(ids_of(table, batch) for batch in range(EPOCHS))
        assert await ids(database, table) == [*wanted]


async def test_a_kill_while_old_fences_are_migrated_loses_none(
    database: Database,
) -> None:
    await database.run(
        """CREATE TABLE batchqueue_epochs (query TEXT, batch BIGINT,
        rows BIGINT NOT NULL, committed_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
        PRIMARY KEY (query, batch))"""
    )
    await database.run(
        "INSERT INTO batchqueue_epochs (query, batch, rows) VALUES ('query', 0, 1)"
    )
    is_sqlite = isinstance(database, Sqlite)
    for statement in (
        ("DROP TABLE", "CREATE TABLE", "COMMIT") if is_sqlite else ("ALTER",)
    ):
        for when in ("before", "after"):
            assert await run(database, f"any:any:{statement}:{when}") == -signal.SIGKILL
            if (statement, when) == ("COMMIT", "after"):
                break
            found = "SELECT query, batch, rows FROM batchqueue_epochs"
            assert await database.run(found) == [("query", 0, 1)]
    assert await run(database, "none") == 0

    for table in ("a", "b"):
        wanted = chain.from_iterable(ids_of(table, batch) for batch in range(1, EPOCHS))
        assert await ids(database, table) == [*wanted]
