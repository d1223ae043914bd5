"""The staged PostgreSQL sink's connections: none is lost, whatever the server says."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import asyncpg
import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks._postgres import staged_rows
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from batchqueue_async.sinks.staged import StagedRowsMissing
from tests.sinks.places import EPOCH, attempt, batch, sealed
from tests.sinks.stores import connected

pytestmark = [pytest.mark.real_time]

TABLE = "CREATE TABLE IF NOT EXISTS HERE.items (word TEXT, id BIGINT)"

Use = Callable[[PostgresStagedSink], Coroutine[Any, Any, object]]

# What each of them needs is missing, which the server says in the middle of it.
BROKEN: dict[str, tuple[str, Use]] = {
    "publish": ("batchqueue_published", lambda sink: sink.publish(EPOCH, [])),
    "is_published": ("batchqueue_published", lambda sink: sink.is_published(EPOCH)),
    "discard": ("batchqueue_attempts", lambda sink: sink.discard(EPOCH, "run")),
    "announce": ("batchqueue_attempts", lambda sink: sink.announce(EPOCH, "run")),
}


class Schema:
    """A schema of its own, so that its tables may be dropped, and its connections."""

    def __init__(self, dsn: str) -> None:
        self.name = f"s_{uuid.uuid4().hex[:8]}"
        self.dsn = dsn

    def sink(self) -> PostgresStagedSink:
        url = f"{self.dsn}?application_name={self.name}"
        return PostgresStagedSink(url, f"{self.name}.items")

    async def run(self, statement: str) -> None:
        async with connected(self.dsn) as connection:
            await connection.execute(statement.replace("HERE", self.name))

    async def drop(self) -> None:
        """Drop it, whatever transaction a failed test has left open there."""
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        async with connected(self.dsn) as connection:
            await connection.execute(f"{query} WHERE application_name = $1", self.name)
        await self.run("DROP SCHEMA HERE CASCADE")

    async def connections(self) -> int:
        """How many the server has of this test's sinks, after a moment's patience."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1"
        async with connected(self.dsn) as connection:
            for _ in range(100):
                found: int = await connection.fetchval(query, self.name)
                if not found:
                    break
                await asyncio.sleep(0.01)
        return found


@pytest.fixture
async def schema(postgres_dsn: str) -> AsyncIterator[Schema]:
    made = Schema(postgres_dsn)
    await made.run(f"CREATE SCHEMA HERE; {TABLE}")
    yield made
    await made.drop()


@pytest.mark.parametrize("name", BROKEN)
async def test_a_statement_that_fails_ends_its_connection(
    schema: Schema, name: str
) -> None:
    table, use = BROKEN[name]
    sink = schema.sink()

    for _ in range(3):
        await sink.is_published(EPOCH)  # makes what is missing
        await schema.run(f"DROP TABLE HERE.{table}")
        with pytest.raises(asyncpg.UndefinedTableError):
            await use(sink)

        assert await schema.connections() == 0
    await sink.close()


async def test_a_stage_that_fails_at_its_begin_ends_its_connection(
    schema: Schema,
) -> None:
    sink = schema.sink()
    await sink.is_published(EPOCH)
    await schema.run("DROP TABLE HERE.items")

    for _ in range(3):
        with pytest.raises(BatchQueueError, match="was dropped"):
            await sink.stage(attempt(), [batch(1)])
        assert await schema.connections() == 0
    await sink.close()


async def test_a_cancelled_publish_ends_its_connection(schema: Schema) -> None:
    sink = schema.sink()
    token = await sealed(sink, attempt(), 1)
    async with connected(schema.dsn) as other, other.transaction():
        await other.execute(f"LOCK TABLE {schema.name}.items")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await sink.publish(EPOCH, [token])
    assert await schema.connections() == 0

    assert await sink.publish(EPOCH, [token])
    await sink.close()


async def test_tables_that_cannot_be_made_end_the_connection(schema: Schema) -> None:
    await schema.run("DROP TABLE HERE.items")
    sink = schema.sink()

    for _ in range(2):
        with pytest.raises(asyncpg.UndefinedTableError):
            await sink.is_published(EPOCH)

    assert await schema.connections() == 0
    await sink.close()


async def test_a_table_with_the_staged_rows_own_column_is_refused(
    schema: Schema,
) -> None:
    await schema.run("ALTER TABLE HERE.items ADD batchqueue_attempt BIGINT")
    sink = schema.sink()

    with pytest.raises(ValueError, match="without a column batchqueue_attempt, which"):
        await sink.is_published(EPOCH)

    assert await schema.connections() == 0
    await schema.run("ALTER TABLE HERE.items RENAME batchqueue_attempt TO other")
    assert await sink.publish(EPOCH, [await sealed(sink, attempt(), 1)])
    await sink.close()


async def test_a_table_that_was_dropped_is_told(schema: Schema) -> None:
    sink = schema.sink()
    await sealed(sink, attempt(), 1)
    await schema.run("DROP TABLE HERE.items")

    for _ in range(2):
        with pytest.raises(BatchQueueError, match="was dropped, or has no columns"):
            await sealed(sink, attempt(), 2)

    await schema.run("CREATE TABLE HERE.items (word TEXT, id BIGINT)")
    assert await sink.publish(EPOCH, [await sealed(sink, attempt(), 2)])
    await sink.close()


async def test_a_sink_goes_on_after_failures(schema: Schema) -> None:
    sink = schema.sink()
    token = await sealed(sink, attempt(), 1, 2)
    await schema.run("TRUNCATE HERE.items_staged")
    for _ in range(3):
        with pytest.raises(StagedRowsMissing):
            await sink.publish(EPOCH, [token])
    assert await schema.connections() == 0

    again = await sealed(sink, attempt(), 1, 2)

    assert await sink.publish(EPOCH, [again])
    assert await sink.is_published(EPOCH)
    await sink.close()
    assert await schema.connections() == 0


@pytest.fixture
def empties(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any staging table be large enough to be emptied at once."""
    monkeypatch.setattr(staged_rows, "_SMALL", 0)


async def pages(schema: Schema) -> int:
    async with connected(schema.dsn) as connection:
        query = f"SELECT pg_relation_size('{schema.name}.items_staged')"
        found: int = await connection.fetchval(query)
    return found


@pytest.mark.usefixtures("empties")
async def test_a_large_epoch_leaves_no_dead_rows(schema: Schema) -> None:
    """They would be read by each publish to come."""
    sink = schema.sink()
    token = await sealed(sink, attempt(), 1, 2)
    assert await pages(schema)

    assert await sink.publish(EPOCH, [token])

    assert not await pages(schema)
    await sink.close()


@pytest.mark.usefixtures("empties")
async def test_a_publish_waits_for_nobody_who_is_writing(schema: Schema) -> None:
    """A task that was given up may stand still for hours, its transaction open."""
    sink, stuck = schema.sink(), schema.sink()
    token = await sealed(sink, attempt(), 1, 2)
    late = attempt(1)
    await stuck.stage(late, [batch(3)])

    async with asyncio.timeout(10):
        assert await sink.publish(EPOCH, [token])

    assert (await stuck.seal(late)).rows == 0
    await sink.close()
    await stuck.close()


async def test_nobody_makes_the_staging_table_anew_before_the_first_copy(
    schema: Schema,
) -> None:
    """Its rows are made for the types that the columns had as the attempt began."""
    sink, mine = schema.sink(), attempt()
    await sink._begin(mine, ["id", "word"])
    change = "SET lock_timeout = '50ms'; DROP TABLE HERE.items_staged"
    with pytest.raises(asyncpg.LockNotAvailableError):
        await schema.run(change)
    await sink.abandon(mine)
    await schema.run(change)
    await sink.close()


async def test_the_index_of_earlier_versions_goes(schema: Schema) -> None:
    sink = schema.sink()
    token = await sealed(sink, attempt(), 1, 2)
    await schema.run(
        "CREATE INDEX ON HERE.items_staged (batchqueue_attempt);"
        "CREATE INDEX theirs ON HERE.items_staged (id)"
    )
    await sink.close()

    assert await sink.publish(EPOCH, [token])

    async with connected(schema.dsn) as connection:
        query = (
            "SELECT indexname FROM pg_indexes WHERE schemaname = $1 AND tablename = $2"
        )
        found = await connection.fetch(query, schema.name, "items_staged")
    assert [name for (name,) in found] == ["theirs"]
    await sink.close()


async def test_an_attempt_may_wait_longer_than_the_server_lets_others(
    schema: Schema,
) -> None:
    """A task may take its time for the next rows, whatever the database's default."""
    url = f"{schema.dsn}?idle_in_transaction_session_timeout=20"
    sink = PostgresStagedSink(url, f"{schema.name}.items")
    slow = attempt()
    await sink.stage(slow, [batch(1)])
    await asyncio.sleep(0.2)
    await sink.stage(slow, [batch(2)])
    assert await sink.publish(EPOCH, [await sink.seal(slow)])
    await sink.close()


async def test_no_transaction_is_over_before_its_statements(schema: Schema) -> None:
    """Since version 17 a database may allow less; what is slow came again for ever."""
    async with connected(schema.dsn) as connection:
        if connection.get_server_version() < (17,):
            pytest.skip("needs PostgreSQL 17, which ends transactions by their age")
        await connection.execute(f"""
            CREATE FUNCTION {schema.name}.slow() RETURNS trigger LANGUAGE plpgsql
                AS 'BEGIN PERFORM pg_sleep(0.5); RETURN new; END';
            CREATE TRIGGER slow BEFORE INSERT ON {schema.name}.items
                EXECUTE FUNCTION {schema.name}.slow()""")
    url = f"{schema.dsn}?transaction_timeout=250"
    sink = PostgresStagedSink(url, f"{schema.name}.items")
    slow = attempt()
    await sink.stage(slow, [batch(1)])
    await asyncio.sleep(0.5)
    assert await sink.publish(EPOCH, [await sink.seal(slow)])
    await sink.close()
