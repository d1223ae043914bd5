"""Behind a pooler sinks work in transaction mode, and leave no settings to others."""

import asyncio
from typing import Any

import asyncpg
import pytest

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from tests.sinks.databases import Postgres
from tests.sinks.places import attempt, batch
from tests.support.pgbouncer import pooled

# On one loop: what is waited for is the server.
pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

EPOCHS = 3
CLIENTS = 4
# Fewer than there are clients, so that they share the server's ends of connections.
SERVERS = 3
# The driver itself turns `jit` off, and on again.
SETTINGS = (
    "SELECT name, setting FROM pg_settings"
    " WHERE source = 'session' AND setting <> reset_val"
)
COUNTED = "SELECT id, word, count(*) FROM t GROUP BY id, word ORDER BY id"


@pytest.fixture
async def table(postgres: Postgres) -> Postgres:
    """A database with a table for both kinds of sinks."""
    await postgres.run("CREATE TABLE t (id BIGINT, word TEXT)")
    return postgres


async def write_epochs(sink: PostgresEpochSink[Any], client: int) -> None:
    """Write some epochs, each in two writes: rows, and a record batch."""
    for number in range(EPOCHS):
        epoch = Epoch(f"client {client}", number)
        await sink.begin(epoch)
        await sink.write(epoch, [(client, f"w{client}")])
        await sink.write(epoch, [batch(client)])
        await sink.commit(epoch)
        assert await sink.is_committed(epoch)


async def publish_epochs(sink: PostgresStagedSink, client: int) -> None:
    """Publish some epochs of two attempts each, of which one was abandoned before."""
    for number in range(EPOCHS):
        epoch = Epoch(f"client {client}", number)
        lost = attempt(epoch=epoch)
        await sink.stage(lost, [batch(client)])
        await sink.abandon(lost)
        tokens = []
        for partition in range(2):
            mine = attempt(partition, epoch=epoch)
            await sink.stage(mine, [batch(client)])
            tokens.append(await sink.seal(mine))
        assert await sink.publish(epoch, tokens)
        assert await sink.is_published(epoch)


async def write_by_both(url: str) -> None:
    """Write by several sinks of each kind at once; then close them."""
    sinks: list[PostgresEpochSink[Any] | PostgresStagedSink] = [
        *(PostgresEpochSink[Any](url, "t", ("id", "word")) for _ in range(CLIENTS)),
        *(PostgresStagedSink(url, "t") for _ in range(CLIENTS)),
    ]
    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for client, sink in enumerate(sinks):
                if isinstance(sink, PostgresEpochSink):
                    group.create_task(write_epochs(sink, client))
                else:
                    group.create_task(publish_epochs(sink, client))
    finally:
        for sink in sinks:
            await sink.close()


async def test_sinks_share_the_connections_of_a_pooler(table: Postgres) -> None:
    with pooled(table.dsn, SERVERS) as url:
        await write_by_both(url)

    wanted = [(n, f"w{n}", 2 * EPOCHS) for n in range(2 * CLIENTS)]
    assert await table.run(COUNTED) == wanted


async def test_who_shares_a_connection_finds_its_settings_as_they_were(
    table: Postgres,
) -> None:
    """Without waits for the disk a crash would take what others have committed."""
    with pooled(table.dsn, SERVERS) as url:
        await write_by_both(url)
        others = [
            await asyncpg.connect(url, statement_cache_size=0) for _ in range(SERVERS)
        ]
        try:
            for other in others:  # each has an end of its own while it is in one
                await other.execute("BEGIN")
            settings = [await other.fetch(SETTINGS) for other in others]
        finally:
            for other in others:
                await other.close()
    assert settings == [[]] * SERVERS


async def test_without_a_pooler_too_nothing_is_set_for_a_session(
    table: Postgres,
) -> None:
    epochs = PostgresEpochSink[Any](table.dsn, "t", ("id", "word"))
    staged = PostgresStagedSink(table.dsn, "t")
    try:
        await write_epochs(epochs, 0)
        await publish_epochs(staged, 1)
        kept = [*epochs._connections._idle, *staged._connections._idle]
        settings = [await connection.fetch(SETTINGS) for connection, _ in kept]
    finally:
        await epochs.close()
        await staged.close()
    assert len(settings) >= 2
    assert not any(settings)
