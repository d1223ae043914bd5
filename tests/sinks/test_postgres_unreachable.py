"""A server lets go of a client whose machine is gone, so that its epoch comes again."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from batchqueue_async.sinks._postgres.copied_batches import CopiedBatches
from batchqueue_async.sinks._postgres.fences import Fences
from batchqueue_async.sinks._postgres.staging_table import StagingTable
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from tests.sinks.databases import Postgres
from tests.sinks.places import EPOCH, attempt, batch, sealed
from tests.support.settle import settle
from tests.support.unreachable import unreachable

# On one loop: what is waited for is the server.
pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

# The server drops who is out of reach for half of it, or a second or two.
LIMIT = 2.0
# Of who comes again, and waits for what the first one has locked.
PATIENCE = 30.0


@pytest.fixture
async def table(postgres: Postgres) -> Postgres:
    """A database with a table for both kinds of sinks."""
    await postgres.run("CREATE TABLE t (id BIGINT, word TEXT)")
    return postgres


class Machine:
    """What runs a sink, and is gone in the middle of a call."""

    def __init__(self, sink: Any) -> None:  # noqa: ANN401 - either kind
        self._connections = sink._connections
        self._gone = asyncio.Event()
        self._kept: list[Any] = []

    def vanish(self) -> None:
        """Called by what the sink calls."""
        self._kept.append(unreachable(self._connections._taken[-1]))
        self._gone.set()

    @asynccontextmanager
    async def calling(self, call: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
        """Begin a call, and wait until the machine is gone."""
        task = asyncio.create_task(call)
        try:
            await asyncio.wait_for(self._gone.wait(), PATIENCE)
            yield
        finally:
            task.cancel()
            await settle()  # for asyncpg, which tells a COPY's end where it can
            self._connections.close()
            await asyncio.wait([task])
            for socket in self._kept:
                socket.close()


def epoch_sink(table: Postgres, limit: float) -> PostgresEpochSink[Any]:
    return PostgresEpochSink(table.dsn, "t", ("id", "word"), statement_timeout=limit)


async def again(table: Postgres) -> list[Any]:
    """Return what is in the table when the epoch has come again."""
    sink = epoch_sink(table, PATIENCE)
    try:
        assert not await sink.is_committed(EPOCH)
        await sink.begin(EPOCH)
        await sink.write(EPOCH, [batch(1)])
        await sink.commit(EPOCH)
    finally:
        await sink.close()
    return await table.run("SELECT id FROM t")


async def test_a_machine_is_gone_in_the_middle_of_a_copy(
    table: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = epoch_sink(table, LIMIT)
    machine = Machine(sink)
    await sink.begin(EPOCH)

    async def endless(_self: CopiedBatches) -> AsyncIterator[bytes]:
        machine.vanish()
        await asyncio.Event().wait()
        yield b""

    with monkeypatch.context() as patch:
        patch.setattr(CopiedBatches, "_source", endless)
        async with machine.calling(sink.write(EPOCH, [batch(1)])):
            patch.undo()
            assert await again(table) == [(1,)]


async def test_a_machine_is_gone_between_a_statement_and_its_values(
    table: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = epoch_sink(table, LIMIT)
    machine, publish = Machine(sink), StagingTable.publish
    await sink.begin(EPOCH)
    await sink.write(EPOCH, [batch(1)])

    async def publish_unheard(*args: Any) -> int:  # noqa: ANN401
        machine.vanish()
        return await publish(*args)

    with monkeypatch.context() as patch:
        patch.setattr(StagingTable, "publish", publish_unheard)
        async with machine.calling(sink.commit(EPOCH)):
            patch.undo()
            assert await again(table) == [(1,)]


async def test_a_machine_is_gone_while_it_seals(
    table: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = PostgresStagedSink(table.dsn, "t", statement_timeout=LIMIT)
    machine = Machine(sink)
    lost = attempt()
    await sink.stage(lost, [batch(1)])

    async def has(*_args: object) -> bool:
        machine.vanish()
        await asyncio.Event().wait()
        return False

    with monkeypatch.context() as patch:
        patch.setattr(Fences, "has", has)
        async with machine.calling(sink.seal(lost)):
            patch.undo()
            again = PostgresStagedSink(table.dsn, "t", statement_timeout=PATIENCE)
            assert await again.publish(EPOCH, [await sealed(again, attempt(), 1)])
            await again.close()
    assert await table.run("SELECT id FROM t") == [(1,)]
