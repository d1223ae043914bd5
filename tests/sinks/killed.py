"""A program that delivers epochs into two tables, and may be killed in a commit.

    python -m tests.sinks.killed <sqlite|postgres> <where> <epochs> <kill>

`kill` is "<table>:<epoch>:<statement>:<before|after>": at the statement of the commit
that begins like that, the process sends itself SIGKILL. "any" of both is at any time;
"none" is never.
"""

import asyncio
import os
import signal
import sqlite3
import sys
from typing import Any

import asyncpg

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.sqlite import SqliteEpochSink

COLUMNS = ("id", "name")
TABLES = ("a", "b")


def ids_of(table: str, batch: int) -> range:
    """What a table gets with a batch: numbers that no other pair has."""
    start = batch * 1_000 + (500 if table == "b" else 0)
    return range(start, start + 100)


class Killer:
    """Knows when it is time; told of each statement of the commit that is watched."""

    def __init__(self, kill: str) -> None:
        table, epoch, self._statement, self._when = (kill.split(":") + ["none"] * 3)[:4]
        self._at = (table, epoch)
        self._is_watching = table == "any"

    def watch(self, table: str, epoch: Epoch) -> None:
        self._is_watching = self._at in {(table, str(epoch.batch)), ("any", "any")}

    def look(self, when: str, statement: str) -> None:
        is_it = statement.lstrip().upper().startswith(self._statement)
        if self._is_watching and is_it and when == self._when:
            os.kill(os.getpid(), signal.SIGKILL)


def hook_into_sqlite(killer: Killer) -> None:
    class Connection(sqlite3.Connection):
        def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:  # noqa: ANN401
            killer.look("before", statement)
            done = super().execute(statement, *arguments)
            killer.look("after", statement)
            return done

    connect = sqlite3.connect

    def connect_hooked(*arguments: Any, **keywords: Any) -> sqlite3.Connection:  # noqa: ANN401
        return connect(*arguments, factory=Connection, **keywords)

    sqlite3.connect = connect_hooked  # type: ignore[assignment]


def hook_into_postgres(killer: Killer) -> None:
    execute = asyncpg.Connection.execute

    async def execute_hooked(
        self: Any,  # noqa: ANN401
        statement: str,
        *arguments: Any,  # noqa: ANN401
        **keywords: Any,  # noqa: ANN401
    ) -> str:
        killer.look("before", statement)
        done = await execute(self, statement, *arguments, **keywords)
        killer.look("after", statement)
        return done

    asyncpg.Connection.execute = execute_hooked  # type: ignore[assignment]


async def run(kind: str, where: str, epochs: int, killer: Killer) -> None:
    made: Any = SqliteEpochSink if kind == "sqlite" else PostgresEpochSink
    sinks = {table: made(where, table, COLUMNS) for table in TABLES}
    for epoch in (Epoch("query", batch) for batch in range(epochs)):
        # As a function for `foreachBatch` with two sinks: both are begun, then filled.
        todo = {t: s for t, s in sinks.items() if not await s.is_committed(epoch)}
        for sink in todo.values():
            await sink.begin(epoch)
        for table, sink in todo.items():
            rows = [(n, f"n{n}") for n in ids_of(table, epoch.batch)]
            await sink.write(epoch, rows[:50])
            await sink.write(epoch, rows[50:])
        for table, sink in todo.items():
            killer.watch(table, epoch)
            await sink.commit(epoch)
    for sink in sinks.values():
        await sink.close()


if __name__ == "__main__":
    kind, where, epochs, kill = sys.argv[1:]
    killer = Killer(kill)
    (hook_into_sqlite if kind == "sqlite" else hook_into_postgres)(killer)
    asyncio.run(run(kind, where, int(epochs), killer))
