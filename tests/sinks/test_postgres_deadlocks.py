"""Transactions that wait for each other's rows: the server ends a sink's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks._postgres import deadlocks
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from tests.sinks.databases import Postgres
from tests.sinks.places import attempt, batch
from tests.sinks.stores import connected

# What is waited for is the server.
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.asyncio(loop_factories=["asyncio"]),
]

EPOCH = Epoch("stream", 0)
REPLACE = "ON CONFLICT (id) DO UPDATE SET word = excluded.word"


async def commit(url: str, kind: str) -> None:
    """Replace rows 1 and 2, in this order."""
    if kind == "staged":
        staged, mine = PostgresStagedSink(url, "t", on_conflict=REPLACE), attempt()
        try:
            await staged.stage(mine, [batch(1, 2)])
            assert await staged.publish(mine.epoch, [await staged.seal(mine)])
        finally:
            await staged.close()
        return
    sink = PostgresEpochSink[Any](url, "t", ("id", "word"), on_conflict=REPLACE)
    try:
        await sink.begin(EPOCH)
        await sink.write(EPOCH, [batch(1, 2)])
        await sink.commit(EPOCH)
    finally:
        await sink.close()


async def until_waiting(postgres: Postgres, *, least: int) -> None:
    while True:
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        if (await postgres.run(waiting))[0][0] >= least:
            return
        await asyncio.sleep(0.01)


@asynccontextmanager
async def other_program(
    postgres: Postgres,
) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    """One that has locked row 2, and waits for as long as it takes."""
    async with connected(postgres.dsn) as other:
        await other.execute("SET deadlock_timeout = '10min'")
        await other.execute("BEGIN; UPDATE t SET word = 'other' WHERE id = 2")
        yield other


@pytest.fixture
async def gated(postgres: Postgres) -> Postgres:
    """A database whose table lets row 2 in where nobody has locked the gate."""
    await postgres.run("CREATE TABLE t (id BIGINT PRIMARY KEY, word TEXT)")
    await postgres.run("INSERT INTO t VALUES (1, 'old'), (2, 'old')")
    await postgres.run(
        """CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM pg_advisory_xact_lock(42); RETURN new; END $$"""
    )
    await postgres.run(
        """CREATE TRIGGER gate BEFORE INSERT ON t FOR EACH ROW WHEN (new.id = 2)
        EXECUTE FUNCTION wait()"""
    )
    await postgres.run(f"ALTER DATABASE {postgres.name} SET deadlock_timeout = '10ms'")
    return postgres


@pytest.mark.parametrize("kind", ["epoch", "staged"])
async def test_a_commit_that_is_ended_for_others_is_tried_again(
    gated: Postgres, kind: str
) -> None:
    async with connected(gated.dsn) as gate, other_program(gated) as other:
        await gate.execute("BEGIN; SELECT pg_advisory_xact_lock(42)")
        committing = asyncio.create_task(commit(gated.dsn, kind))
        await until_waiting(gated, least=1)
        # The sink has row 1 by now.
        first = other.execute("UPDATE t SET word = 'other' WHERE id = 1")
        updating = asyncio.create_task(first)
        await until_waiting(gated, least=2)
        await gate.execute("COMMIT")
        await updating
        await other.execute("COMMIT")
        await committing

    rows = await gated.run("SELECT id, word FROM t ORDER BY id")
    assert rows == [(1, "w1"), (2, "w2")]


async def test_one_that_is_ended_each_time_says_so() -> None:
    tries = 0

    async def transact() -> None:
        nonlocal tries
        tries += 1
        raise asyncpg.DeadlockDetectedError

    with pytest.raises(asyncpg.DeadlockDetectedError):
        await deadlocks.despite_deadlocks(transact)
    assert tries == 5
