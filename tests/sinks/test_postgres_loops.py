"""A PostgreSQL sink that outlives its loop works on the next one."""

import asyncio
import gc
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks._postgres.connections import Connections
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from tests.sinks.places import attempt, batch
from tests.sinks.stores import COLUMNS, connected


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    """On asyncio's own loop, as programs do, whatever the tests run on."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(coroutine)


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_a_sink_that_nobody_closed_goes_on_on_the_next_loop(
    postgres_dsn: str, asyncio_errors: list[logging.LogRecord]
) -> None:
    async def make_table() -> None:
        async with connected(postgres_dsn) as connection:
            await connection.execute("DROP TABLE IF EXISTS of_loops")
            await connection.execute("CREATE TABLE of_loops (id BIGINT, name TEXT)")

    async def write(epoch: Epoch) -> None:
        assert not await sink.is_committed(epoch)
        await sink.begin(epoch)
        await sink.write(epoch, [(epoch.batch, "name")])
        await sink.commit(epoch)

    run(make_table())
    sink = PostgresEpochSink[Any](postgres_dsn, "of_loops", COLUMNS)
    for number in range(3):
        run(write(Epoch("loops", number)))
    run(sink.close())
    # Sockets that the closed loops left open, and what asyncpg leaves unsaid on them.
    gc.collect()
    asyncio_errors.clear()


def test_connections_that_were_waited_for_are_bounded_on_the_next_loop(
    postgres_dsn: str,
) -> None:
    async def prepare(connection: object) -> None:
        pass

    connections = Connections(postgres_dsn, 5.0, 5.0, prepare, connections=1)
    lent, most = 0, 0

    async def lend() -> None:
        nonlocal lent, most
        async with connections.lent():
            lent += 1
            most = max(lent, most)
            await asyncio.sleep(0.01)
            lent -= 1

    async def lend_to_three() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(lend())
        connections.close()
        await asyncio.sleep(0)

    for _ in range(2):
        run(lend_to_three())
    assert most == 1


def test_a_second_loop_is_refused_while_the_first_uses_the_sink(
    postgres_dsn: str,
) -> None:
    """Who waits there would never be woken: the connection is the first loop's."""

    async def prepare(connection: object) -> None:
        pass

    async def lend() -> None:
        async with connections.lent():
            pass

    async def close() -> None:
        connections.close()
        await asyncio.sleep(0)

    async def lend_and_close() -> None:
        await lend()
        await close()

    def on_another_loop() -> None:
        run(lend_and_close())

    async def lend_on_two() -> None:
        await lend()
        told = "on another event loop.* for each loop"
        with pytest.raises(BatchQueueError, match=told):
            await asyncio.to_thread(on_another_loop)
        await close()
        await asyncio.to_thread(on_another_loop)

    connections = Connections(postgres_dsn, 5.0, 5.0, prepare)
    run(lend_on_two())


def test_a_close_on_a_second_loop_leaves_the_first_ones_calls_alone(
    postgres_dsn: str,
) -> None:
    """As of a queue whose epochs were refused; the first's call was never woken."""
    sink = PostgresStagedSink(postgres_dsn, "of_two_loops")
    epoch = Epoch("loops", 0)
    is_in_wait = "SELECT count(*) FROM pg_locks WHERE NOT granted"

    async def publish_on_first() -> None:
        mine = attempt(epoch=epoch)
        async with connected(postgres_dsn) as connection:
            await connection.execute("DROP TABLE IF EXISTS of_two_loops")
            await connection.execute("CREATE TABLE of_two_loops (id BIGINT, word TEXT)")
            await sink.stage(mine, [batch(1)])
            async with asyncio.TaskGroup() as group, connection.transaction():
                await connection.execute("LOCK TABLE batchqueue_published")
                told = group.create_task(sink.is_published(epoch))
                while not await connection.fetchval(is_in_wait):  # noqa: ASYNC110  # a server's
                    await asyncio.sleep(0.01)
                with pytest.raises(BatchQueueError, match="on another event loop"):
                    await asyncio.to_thread(run, sink.close())
        assert not told.result()
        assert await sink.publish(epoch, [await sink.seal(mine)])
        await sink.close()
        await asyncio.to_thread(run, sink.close())

    run(publish_on_first())
