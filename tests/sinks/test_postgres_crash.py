"""A PostgreSQL server that crashes, and is there again a moment later."""

import pytest

from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from tests.sinks.places import EPOCH, attempt, batch
from tests.sinks.stores import connected
from tests.support.postgres import find_binaries, server

# On one loop: what is waited for is the server.
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.asyncio(loop_factories=["asyncio"]),
]


async def test_a_run_that_was_announced_goes_on_after_a_crash() -> None:
    """Tasks are run again then; each try was told that its run was over."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("needs PostgreSQL: no initdb and pg_ctl on this machine")
    with server(binaries) as crashing:
        async with connected(crashing.dsn) as connection:
            await connection.execute("CREATE TABLE t (id BIGINT, word TEXT)")
            # What nobody waits for is on the disk in a moment, by itself.
            await connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
            await connection.execute("SELECT pg_reload_conf()")
        driver = PostgresStagedSink(crashing.dsn, "t")
        await driver.announce(EPOCH, "run")
        await driver.close()
        crashing.stop()
        crashing.start()

        mine = attempt(is_announced=True)
        sink = PostgresStagedSink(crashing.dsn, "t")
        await sink.stage(mine, [batch(1)])
        assert await sink.publish(EPOCH, [await sink.seal(mine)])
        await sink.close()
        async with connected(crashing.dsn) as connection:
            assert await connection.fetchval("SELECT array_agg(id) FROM t") == [1]
