"""Commits that wait for a standby: what was seen of one may not be on it yet."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from tests.sinks.places import EPOCH, attempt, sealed
from tests.sinks.stores import connected
from tests.support.postgres import find_binaries, server

# On one loop: what is waited for is the server.
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.asyncio(loop_factories=["asyncio"]),
]

_WRITE = "SELECT pg_logical_emit_message(true, 'test', '')"
_WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


class Primary:
    """A server, seen by its administrator, whose own commits wait for nobody."""

    def __init__(
        self, dsn: str, connection: "asyncpg.Connection[asyncpg.Record]"
    ) -> None:
        self.dsn = dsn
        self._connection = connection

    async def run(self, statement: str) -> list[Any]:
        await self._connection.execute("SET synchronous_commit = local")
        return [row[0] for row in await self._connection.fetch(statement)]

    async def lose_standby(self) -> None:
        """Have each commit wait; return when one does."""
        await self._configure("SET synchronous_standby_names = 'away'")
        async with connected(self.dsn) as other:
            while True:
                call = asyncio.create_task(other.fetch(_WRITE))
                if await self.waits_or_ends(call):
                    break
                await call  # the server had not read its settings yet
            await self.end_waiting()

    async def regain_standby(self) -> None:
        await self._configure("RESET synchronous_standby_names")

    async def _configure(self, change: str) -> None:
        await self.run(f"ALTER SYSTEM {change}")
        await self.run("SELECT pg_reload_conf()")

    async def waits_or_ends(self, call: "asyncio.Task[Any]") -> bool:
        """Return whether it comes to wait for the standby, before it ends."""
        call.add_done_callback(lambda done: done.cancelled() or done.exception())
        while not call.done():
            if await self.run(_WAITING):
                return True
            await asyncio.sleep(0.01)
        return False

    async def end_waiting(self) -> None:
        """End what waits, as an administrator does; a restart does the same."""
        ended = f"SELECT pg_terminate_backend(pid, 60000) FROM ({_WAITING}) AS waiting"
        await self.run(ended)


@pytest.fixture
async def primary() -> AsyncIterator[Primary]:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("needs PostgreSQL: no initdb and pg_ctl on this machine")
    with server(binaries) as running:
        async with connected(running.dsn) as connection:
            made = Primary(running.dsn, connection)
            await made.run("CREATE TABLE t (id BIGINT, word TEXT)")
            yield made


async def cut_off(primary: Primary, commit: "asyncio.Task[Any]") -> None:
    """End a commit that waits for the standby: it is done, and its client in doubt."""
    assert await primary.waits_or_ends(commit)
    await primary.end_waiting()
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await commit
    assert await primary.run("SELECT id FROM t") == [1]


async def require_waits(primary: Primary, call: "asyncio.Task[Any]") -> Any:  # noqa: ANN401 - what the call returns
    assert await primary.waits_or_ends(call)
    await primary.regain_standby()
    return await call


@pytest.mark.parametrize("by", ["is_committed", "commit"])
async def test_an_epoch_is_committed_when_its_standby_has_it(
    primary: Primary, by: str
) -> None:
    """Spark went on with the next, and a primary that failed then had lost this one."""
    sink = PostgresEpochSink[Any](primary.dsn, "t", ("id", "word"))
    await sink.begin(EPOCH)
    await sink.write(EPOCH, [(1, "one")])
    await primary.lose_standby()
    await cut_off(primary, asyncio.create_task(sink.commit(EPOCH)))

    again = asyncio.create_task(getattr(sink, by)(EPOCH))
    assert await require_waits(primary, again) is (True if by != "commit" else None)
    await sink.close()


@pytest.mark.parametrize("by", ["is_published", "publish"])
async def test_an_epoch_is_published_when_its_standby_has_it(
    primary: Primary, by: str
) -> None:
    sink = PostgresStagedSink(primary.dsn, "t")
    tokens = [await sealed(sink, attempt(), 1)]
    await primary.lose_standby()
    await cut_off(primary, asyncio.create_task(sink.publish(EPOCH, tokens)))

    if by == "publish":
        again = asyncio.create_task(sink.publish(EPOCH, tokens))
    else:
        again = asyncio.create_task(sink.is_published(EPOCH))
    assert await require_waits(primary, again) is (by != "publish")
    await sink.close()


@pytest.mark.parametrize(
    "asked,had", [("off", "on"), ("remote_write", "on"), ("remote_apply",) * 2]
)
async def test_who_asks_for_more_than_the_disk_has_it(
    primary: Primary, asked: str, had: str
) -> None:
    """A standby that is read from was to show what was committed, and did not yet."""
    await primary.run("CREATE TABLE seen (id BIGINT, word TEXT, had TEXT)")
    setting = "DEFAULT current_setting('synchronous_commit')"
    await primary.run(f"ALTER TABLE seen ALTER COLUMN had SET {setting}")
    await primary.run(f"ALTER ROLE CURRENT_USER SET synchronous_commit = {asked}")

    sink = PostgresEpochSink[Any](primary.dsn, "seen", ("id", "word"))
    await sink.begin(EPOCH)
    await sink.write(EPOCH, [(1, "one")])
    await sink.commit(EPOCH)
    await sink.close()

    assert await primary.run("SELECT had FROM seen") == [had]
