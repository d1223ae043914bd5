"""The harness's own connection to PostgreSQL, and locks that stop a transaction."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

import asyncpg

T = TypeVar("T")

GATES = {"while publishing": 1, "while committing": 2}
"""Points within the transaction that makes rows visible, and their locks."""

_GATE = """
CREATE OR REPLACE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(TG_ARGV[0]::bigint);
    RETURN NULL;
END $$;
"""

_CREATE = """
CREATE TABLE {table} (id BIGINT NOT NULL);
CREATE TRIGGER publishing AFTER INSERT ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION pass_gate(1);
-- Deferred: it runs when COMMIT has come, beyond the client's control.
CREATE CONSTRAINT TRIGGER committing AFTER INSERT ON {table}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pass_gate(2);
"""


class Database:
    """Blocking calls; connects again after the server was stopped."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._runner = asyncio.Runner()
        self._connection: asyncpg.Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()
        self._runner.close()

    def create_gates(self) -> None:
        """Make the function that triggers at `GATES` call: `public.pass_gate`."""
        self.execute(_GATE)

    def create_table(self, table: str) -> None:
        """Make a table with one column `id` that takes everything, also twice."""
        self.execute(_CREATE.format(table=table))

    def ids(self, table: str) -> list[int]:
        """What is in the table."""
        return [row[0] for row in self.rows(f"SELECT id FROM {table}")]

    def execute(self, script: str) -> None:
        """Run statements."""
        self._run(self._execute(script))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What a query finds."""
        return [tuple(row) for row in self._run(self._fetch(query))]

    def close_gate(self, point: str) -> None:
        """From now on transactions stop at this point."""
        self._run(self._fetch(f"SELECT pg_advisory_lock({GATES[point]})"))

    def stands_at_gate(self, point: str) -> bool:
        """Whether a transaction has stopped there."""
        waiting = (
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            f" AND (classid, objid) = (0, {GATES[point]})"
        )
        return bool(self._run(self._fetch(waiting)))

    def open_gates(self) -> None:
        """Let them all go on."""
        self._run(self._fetch("SELECT pg_advisory_unlock_all()"))

    def is_quiet(self) -> bool:
        """Whether nobody else is in a transaction."""
        busy = (
            "SELECT 1 FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND backend_type = 'client backend' AND state <> 'idle'"
        )
        return not self._run(self._fetch(busy))

    def disconnect(self) -> None:
        """Give up the connection, which may be dead, with its locks."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _execute(self, script: str) -> None:
        await (await self._connect()).execute(script)

    async def _fetch(self, query: str) -> list[asyncpg.Record]:
        connection = await self._connect()
        return list(await connection.fetch(query))

    async def _connect(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self.dsn, timeout=10)
        return self._connection

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)
