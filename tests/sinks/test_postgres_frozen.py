"""A PostgreSQL server that stands still is given up, and what it held is exact."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks import Epoch, postgres_staged
from batchqueue_async.sinks._postgres import connections
from batchqueue_async.sinks._postgres.fences import lock_epoch
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from tests.sinks.databases import Postgres, deliver, ids
from tests.sinks.places import EPOCH, attempt, batch, sealed
from tests.sinks.stores import COLUMNS, connected
from tests.support.postgres import Server, find_binaries, server

# On one loop: what is waited for is the server, and that takes its time.
pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

FIRST = Epoch("query", 0)
# Bounds a test whose sink waits for ever. What a sink takes is 20 s at most: the limit,
# and some seconds each for what it tries before it gives a connection up.
FOR_EVER = 45
LIMIT = 1.0


@pytest.fixture(autouse=True)
def short_parting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait half a second, not five, for what a server does at once if it works."""
    for module in (connections, postgres_staged):
        monkeypatch.setattr(module, "PARTING", 0.5)


@pytest.fixture
async def table(postgres: Postgres) -> Postgres:
    """A database with a table for both kinds of sinks."""
    await postgres.run("CREATE TABLE t (id BIGINT, name TEXT, word TEXT)")
    return postgres


def epoch_sink(database: Postgres, **settings: Any) -> PostgresEpochSink[Any]:  # noqa: ANN401
    settings = {"statement_timeout": LIMIT, **settings}
    return PostgresEpochSink(database.dsn, "t", COLUMNS, **settings)


COPIES = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'COPY %'"
# Of each staging table that there is.
SLOW_COPIES = """
    CREATE FUNCTION slowly() RETURNS TRIGGER LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END';
    DO $$ DECLARE name TEXT; BEGIN
        FOR name IN SELECT relname FROM pg_class WHERE relname LIKE 'epoch_%' LOOP
            EXECUTE format('CREATE TRIGGER slow BEFORE INSERT ON %I
                FOR EACH ROW EXECUTE FUNCTION slowly()', name);
        END LOOP; END $$"""
END = "SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) AS pid"


async def backends(database: Postgres) -> list[int]:
    """The processes that serve the sinks' connections."""
    async with connected(database.server) as connection:
        query = "SELECT pid FROM pg_stat_activity WHERE datname = $1 AND pid <> $2"
        found = await connection.fetch(query, database.name, database.own_process)
    return [row["pid"] for row in found]


@contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def locked(database: Postgres) -> AsyncIterator[None]:
    """Let nobody write to the table."""
    async with connected(database.dsn) as connection, connection.transaction():
        await connection.execute("LOCK TABLE t IN SHARE MODE")
        yield


async def waits_for_lock(database: Postgres) -> list[int]:
    query = """SELECT pid FROM pg_stat_activity
        WHERE datname = $1 AND wait_event_type = 'Lock'"""
    async with connected(database.server) as connection:
        while not (found := await connection.fetch(query, database.name)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return [row["pid"] for row in found]


async def test_a_commit_to_a_frozen_server_ends(table: Postgres) -> None:
    sink = epoch_sink(table)
    await sink.begin(FIRST)
    await sink.write(FIRST, [(1, "n1")])
    async with asyncio.timeout(FOR_EVER):
        said = r"within 1 s \(statement_timeout\)"
        with frozen(await backends(table)), pytest.raises(TimeoutError, match=said):
            await sink.commit(FIRST)
        assert not await sink.is_committed(FIRST)
        await deliver(sink, FIRST, 1)
    assert await ids(table, "t") == [1]


async def test_a_commit_that_is_frozen_in_the_middle_ends(table: Postgres) -> None:
    sink = epoch_sink(table, statement_timeout=3.0)
    await sink.begin(FIRST)
    await sink.write(FIRST, [(1, "n1")])
    async with asyncio.timeout(FOR_EVER):
        async with locked(table):
            committing = asyncio.ensure_future(sink.commit(FIRST))
            frozen_ones = frozen(await waits_for_lock(table))
            frozen_ones.__enter__()
        try:
            with pytest.raises(TimeoutError):
                await committing
        finally:
            frozen_ones.__exit__(None, None, None)
        # What it was in the middle of is undone, so the epoch can come again.
        await deliver(sink, FIRST, 1)
    assert await ids(table, "t") == [1]


async def test_the_server_ends_a_statement_that_takes_too_long(table: Postgres) -> None:
    sink = epoch_sink(table)
    await sink.begin(FIRST)
    await sink.write(FIRST, [(1, "n1")])
    async with asyncio.timeout(FOR_EVER):
        async with locked(table):
            with pytest.raises(asyncpg.QueryCanceledError, match="statement timeout"):
                await sink.commit(FIRST)
        await sink.commit(FIRST)
    assert await ids(table, "t") == [1]
    await sink.close()


async def test_a_large_write_to_a_frozen_server_ends(table: Postgres) -> None:
    """More than the sockets hold: the client has to wait before it has sent all."""
    sink = epoch_sink(table)
    await sink.begin(FIRST)
    rows = [(number, "x" * 5_000) for number in range(4_000)]
    async with asyncio.timeout(FOR_EVER):
        its_own = await backends(table)
        writing = asyncio.ensure_future(sink.write(FIRST, rows))
        await asyncio.sleep(0)
        with frozen(its_own), pytest.raises(TimeoutError):
            await writing
        await sink.commit(FIRST)
    assert await ids(table, "t") == []
    await sink.close()


async def test_a_discard_waits_for_a_seal_that_goes_on(table: Postgres) -> None:
    """It would not see the rows of that, of which nobody would know any more."""
    sink, mine = PostgresStagedSink(table.dsn, "t"), attempt()
    await sink.stage(mine, [batch(1)])
    async with connected(table.dsn) as sealing, asyncio.timeout(FOR_EVER):
        async with sealing.transaction():
            await lock_epoch(sealing, sink._target, EPOCH, is_shared=True)
            discarding = asyncio.ensure_future(sink.discard(EPOCH, mine.run))
            await waits_for_lock(table)
        await discarding
    await sink.close()


async def test_an_attempt_of_a_run_that_is_just_ending_comes_too_late(
    table: Postgres,
) -> None:
    """It waits for that, and looks then: nobody would know of its rows any more."""
    sink, mine = PostgresStagedSink(table.dsn, "t"), attempt(is_announced=True)
    await sink.announce(EPOCH, mine.run)
    async with connected(table.dsn) as ending, asyncio.timeout(FOR_EVER):
        async with ending.transaction():
            await lock_epoch(ending, sink._target, EPOCH)
            await sink._staged.clear(ending, EPOCH, mine.run)
            staging = asyncio.ensure_future(sink.stage(mine, [batch(1)]))
            await waits_for_lock(table)
        with pytest.raises(BatchQueueError, match="comes too late"):
            await staging
    await sink.close()


async def test_a_seal_that_stands_still_holds_nobody_up_for_long(
    table: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt may wait for rows as long as it takes, but not with a lock."""
    sink, mine = PostgresStagedSink(table.dsn, "t", statement_timeout=LIMIT), attempt()
    await sink.stage(mine, [batch(1)])
    stands_still = asyncio.Event()

    async def has(*_: object) -> None:
        stands_still.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(sink._fences, "has", has)
    sealing = asyncio.ensure_future(sink.seal(mine))
    other = PostgresStagedSink(table.dsn, "t", statement_timeout=20 * LIMIT)
    async with asyncio.timeout(FOR_EVER):
        await stands_still.wait()
        assert await other.publish(mine.epoch, [])
    sealing.cancel()
    with contextlib.suppress(asyncio.CancelledError, *connections.BROKEN):
        await sealing
    await other.close()
    await sink.close()


async def test_a_large_write_ends_with_its_connection(
    table: Postgres, asyncio_errors: list[logging.LogRecord]
) -> None:
    """asyncpg goes on waiting until the socket takes more, which it never will."""
    sink = epoch_sink(table, statement_timeout=10 * FOR_EVER)
    await sink.begin(FIRST)
    rows = [(number, "x" * 5_000) for number in range(4_000)]
    async with connected(table.dsn) as beside, asyncio.timeout(FOR_EVER):
        # However quick the machine is, it is in the middle of the COPY then.
        await beside.execute(SLOW_COPIES)
        writing = asyncio.ensure_future(sink.write(FIRST, rows))
        while not (its_own := await beside.fetch(COPIES)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # until the sockets are full
        await beside.execute(END, [record["pid"] for record in its_own])
        with pytest.raises(connections.BROKEN):
            await writing
    await sink.close()
    gc.collect()
    asyncio_errors.clear()


@pytest.mark.parametrize("verb", ["begin", "write", "abort", "is_committed", "close"])
async def test_no_verb_waits_for_a_frozen_server(table: Postgres, verb: str) -> None:
    sink = epoch_sink(table)
    await sink.begin(FIRST)
    await sink.write(FIRST, [(1, "n1")])
    async with asyncio.timeout(FOR_EVER):
        with frozen(await backends(table)), contextlib.suppress(TimeoutError):
            if verb == "write":
                await sink.write(FIRST, [(2, "n2")])
            elif verb == "close":
                await sink.close()
            else:
                await getattr(sink, verb)(FIRST)
        await sink.close()


async def test_a_connection_that_lay_idle_is_asked_first(
    table: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network may forget a connection without a word: then there is another."""
    monkeypatch.setattr(connections, "_IDLE", 0.0)
    sink = epoch_sink(table, statement_timeout=30.0)
    assert not await sink.is_committed(FIRST)
    async with asyncio.timeout(FOR_EVER):
        with frozen(await backends(table)):
            await deliver(sink, FIRST, 1)
    assert await ids(table, "t") == [1]


async def test_a_connection_that_was_just_ended_is_left_for_another(
    table: Postgres,
    monkeypatch: pytest.MonkeyPatch,
    asyncio_errors: list[logging.LogRecord],
) -> None:
    """Also where asyncpg learns of its end as it is asked, and takes it for a fault."""
    monkeypatch.setattr(connections, "_IDLE", 0.0)
    sink = epoch_sink(table)
    async with connected(table.server) as server_itself:
        for _ in range(20):
            assert not await sink.is_committed(FIRST)
            await server_itself.execute(END, await backends(table))
            await asyncio.sleep(0)
    await sink.close()
    # asyncpg gives the error to a future, too, that nobody asks.
    gc.collect()
    asyncio_errors.clear()


async def test_a_staged_epoch_survives_a_frozen_server(table: Postgres) -> None:
    sink = PostgresStagedSink(table.dsn, "t", statement_timeout=LIMIT)
    lost = attempt()
    await sink.stage(lost, [batch(1)])
    async with asyncio.timeout(FOR_EVER):
        with frozen(await backends(table)):
            with pytest.raises(TimeoutError, match="statement_timeout"):
                await sink.seal(lost)
            await sink.abandon(lost)
            # On connections that are made meanwhile all goes on.
            token = await sealed(sink, attempt(), 2)
        async with locked(table):
            with pytest.raises(asyncpg.QueryCanceledError):
                await sink.publish(EPOCH, [token])
        assert await sink.publish(EPOCH, [token])
    async with connected(table.dsn) as connection:
        assert await connection.fetchval("SELECT array_agg(id) FROM t") == [2]
    await sink.close()


async def test_staging_to_a_frozen_server_ends(table: Postgres) -> None:
    sink = PostgresStagedSink(table.dsn, "t", statement_timeout=LIMIT)
    mine = attempt()
    await sink.stage(mine, [batch(1)])
    async with asyncio.timeout(FOR_EVER):
        with frozen(await backends(table)):
            with pytest.raises(TimeoutError):
                await sink.stage(mine, [batch(*range(1_000_000))])
            await sink.abandon(mine)
    await sink.close()


def family_of(server: Server) -> list[int]:
    postmaster = (server._home / "data" / "postmaster.pid").read_text().split()[0]
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text()
    return [int(postmaster), *map(int, children.split())]


@pytest.fixture
def own_server() -> Iterator[Server]:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("needs PostgreSQL: no initdb and pg_ctl on this machine")
    with server(binaries) as made:
        yield made


async def test_a_server_that_is_frozen_as_a_whole_is_given_up(
    own_server: Server,
) -> None:
    async with connected(own_server.dsn) as connection:
        await connection.execute("CREATE TABLE t (id BIGINT, name TEXT, word TEXT)")
    sinks: list[Any] = [
        PostgresEpochSink(
            own_server.dsn, "t", COLUMNS, timeout=LIMIT, statement_timeout=LIMIT
        ),
        PostgresStagedSink(own_server.dsn, "t", timeout=LIMIT, statement_timeout=LIMIT),
    ]
    assert not await sinks[0].is_committed(FIRST)
    async with asyncio.timeout(FOR_EVER):
        with frozen(family_of(own_server)):
            with pytest.raises(TimeoutError):
                await sinks[0].is_committed(FIRST)
            said = r"took no connection within 1 s \(timeout\)"
            with pytest.raises(TimeoutError, match=said):
                await sinks[1].is_published(FIRST)
            for sink in sinks:
                await sink.close()
