"""One table of PostgreSQL, both kinds of sink, the same epoch: it is in it once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from batchqueue_async.sinks.staged import Token
from tests.sinks.databases import Postgres
from tests.sinks.places import EPOCH, attempt, batch, sealed
from tests.sinks.stores import connected

pytestmark = pytest.mark.real_time

_STAGING_TABLES = (
    r"SELECT count(*) FROM pg_class WHERE relname LIKE 'epoch\_%' AND relkind = 'r'"
)
_STAGING_TABLE = (
    r"SELECT relname FROM pg_class WHERE relname LIKE 'epoch\_%' AND relkind = 'r'"
)


class Both(NamedTuple):
    """A sink of each kind, with the same epoch in both, ready to be ended."""

    epochs: PostgresEpochSink[Any]
    staged: PostgresStagedSink
    token: Token


@pytest.fixture
async def both(postgres: Postgres) -> AsyncIterator[Both]:
    """The epoch sink is the first: it is prepared before the other's fences are."""
    await postgres.run("CREATE TABLE t (id BIGINT, word TEXT)")
    epochs = PostgresEpochSink[Any](postgres.dsn, "t", ("id", "word"))
    staged = PostgresStagedSink(postgres.dsn, "t")
    await epochs.begin(EPOCH)
    await epochs.write(EPOCH, [batch(1)])
    yield Both(epochs, staged, await sealed(staged, attempt(), 1))
    await epochs.close()
    await staged.close()


async def rows(postgres: Postgres) -> int:
    (found,) = await postgres.run("SELECT count(*) FROM t")
    return int(found[0])


async def test_a_table_of_fences_counts_that_was_made_later(
    postgres: Postgres, both: Both
) -> None:
    assert await both.staged.publish(EPOCH, [both.token])

    await both.epochs.commit(EPOCH)

    assert await both.epochs.is_committed(EPOCH)
    assert await rows(postgres) == 1


async def test_two_calls_at_once_find_a_table_of_fences_that_was_made_later(
    postgres: Postgres,
) -> None:
    await postgres.run("CREATE TABLE t (id BIGINT, word TEXT)")
    epochs = PostgresEpochSink[Any](postgres.dsn, "t", ("id", "word"))
    staged = PostgresStagedSink(postgres.dsn, "t")

    async def both_answers() -> list[bool]:
        return await asyncio.gather(*(epochs.is_committed(EPOCH) for _ in range(2)))

    try:
        # From here on it has a connection for each, so that their steps alternate.
        assert await both_answers() == [False, False]
        assert await staged.publish(EPOCH, [])
        assert await both_answers() == [True, True]
        assert not await epochs.is_committed(Epoch("other", 0))
    finally:
        await epochs.close()
        await staged.close()


async def test_a_commit_and_a_publish_at_once_are_one(
    postgres: Postgres, both: Both
) -> None:
    """Neither finds the other's fence unless it waits for the other's end."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    async with (
        connected(postgres.dsn) as connection,
        asyncio.TaskGroup() as ends,
        connection.transaction(),
    ):
        await connection.execute("LOCK TABLE t IN EXCLUSIVE MODE")
        ends.create_task(both.epochs.commit(EPOCH))
        ends.create_task(both.staged.publish(EPOCH, [both.token]))
        while await connection.fetchval(waiting) < 2:  # noqa: ASYNC110  # a server's
            await asyncio.sleep(0.01)

    assert await rows(postgres) == 1


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_sinks_that_begin_at_once_make_what_they_keep_once(
    postgres: Postgres, level: str
) -> None:
    """Where that is the database's default, each saw what was before its turn."""
    await postgres.run("CREATE TABLE t (id BIGINT, word TEXT)")
    await postgres.run(
        f"ALTER DATABASE {postgres.name} SET default_transaction_isolation = '{level}'"
    )
    epochs = [
        PostgresEpochSink[Any](postgres.dsn, "t", ("id", "word")) for _ in range(4)
    ]
    staged = [PostgresStagedSink(postgres.dsn, "t") for _ in range(4)]
    sinks: list[Any] = [*epochs, *staged]

    try:
        found = await asyncio.gather(
            *(sink.is_committed(EPOCH) for sink in epochs),
            *(sink.is_published(EPOCH) for sink in staged),
            return_exceptions=True,
        )
    finally:
        for each in sinks:
            await each.close()
    assert found == [False] * 8


async def test_what_a_killed_epoch_sink_left_goes_with_the_publish(
    postgres: Postgres,
) -> None:
    """And with no other: of the next epoch, and of another table, it is needed."""
    await postgres.run("CREATE TABLE t (id BIGINT, word TEXT)")
    await postgres.run("CREATE TABLE u (id BIGINT, word TEXT)")
    later = Epoch(EPOCH.query, EPOCH.batch + 1)
    for table, epoch in (("t", EPOCH), ("t", later), ("u", EPOCH)):
        killed = PostgresEpochSink[Any](postgres.dsn, table, ("id", "word"))
        await killed.begin(epoch)
        await killed.close()
    staged = PostgresStagedSink(postgres.dsn, "t")

    assert await staged.publish(EPOCH, [await sealed(staged, attempt(), 1)])

    await staged.close()
    (found,) = await postgres.run(_STAGING_TABLES)
    assert found == (2,)


async def test_a_staging_table_in_use_is_not_waited_for(
    postgres: Postgres, both: Both
) -> None:
    (name,) = await postgres.run(_STAGING_TABLES.replace("count(*)", "relname::text"))
    async with connected(postgres.dsn) as user, user.transaction():
        await user.execute(f"SELECT FROM {name[0]}")

        assert await both.staged.publish(EPOCH, [both.token])

    await both.epochs.commit(EPOCH)
    assert await postgres.run(_STAGING_TABLES) == [(0,)]
    assert await rows(postgres) == 1


async def test_a_publish_that_waited_for_an_earlier_versions_fence_adds_no_row(
    postgres: Postgres, both: Both
) -> None:
    """A driver of version 0.1 that still runs locks an epoch by its own spelling."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    assert not await both.staged.is_published(EPOCH)  # makes the fences
    async with (
        connected(postgres.dsn) as connection,
        asyncio.TaskGroup() as ends,
        connection.transaction(),
    ):
        await connection.execute("INSERT INTO t VALUES (1, 'w1')")
        await connection.execute(
            "INSERT INTO batchqueue_published (target, query, batch, rows)"
            " VALUES ('t', $1, $2, 1)",
            EPOCH.query,
            EPOCH.batch,
        )
        published = ends.create_task(both.staged.publish(EPOCH, [both.token]))
        while await connection.fetchval(waiting) < 1:  # noqa: ASYNC110  # a server's
            await asyncio.sleep(0.01)

    assert not published.result()
    assert await rows(postgres) == 1


async def test_a_commit_that_waits_while_its_rows_are_taken_away_says_so(
    postgres: Postgres, both: Both
) -> None:
    """Another process begins the epoch; the server says that a relation is missing."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    others = PostgresEpochSink[Any](postgres.dsn, "t", ("id", "word"))
    async with connected(postgres.dsn) as connection:
        async with connection.transaction():
            table = await connection.fetchval(_STAGING_TABLE)
            await connection.execute(f"DROP TABLE {table}")
            ended = asyncio.ensure_future(both.epochs.commit(EPOCH))
            while await connection.fetchval(waiting) < 1:  # noqa: ASYNC110  # a server's
                await asyncio.sleep(0.01)
        with pytest.raises(BatchQueueError, match=r"has lost rows: 1 were staged, 0 "):
            await ended

    await others.begin(EPOCH)
    await others.write(EPOCH, [batch(1)])
    await others.commit(EPOCH)
    await others.close()
    assert await rows(postgres) == 1
