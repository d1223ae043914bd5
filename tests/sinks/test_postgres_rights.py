"""Roles of PostgreSQL that share a schema, each with the rights that it needs."""

import uuid
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import asyncpg
import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from tests.sinks.databases import Postgres, deliver, ids
from tests.sinks.places import attempt, batch
from tests.sinks.stores import COLUMNS

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.asyncio(loop_factories=["asyncio"]),
]

FENCES = "public.batchqueue_epochs"
OF_STAGED = "public.batchqueue_published"


class Role(NamedTuple):
    """A role that may make tables, and fill `t`."""

    name: str
    postgres: Postgres

    @property
    def url(self) -> str:
        scheme, _, rest = self.postgres.dsn.partition("://")
        return f"{scheme}://{self.name}@{rest.partition('@')[2]}"

    async def writes(self, batch: int) -> None:
        sink = PostgresEpochSink[Any](self.url, "t", COLUMNS)
        await deliver(sink, Epoch(self.name, batch), batch)

    async def publishes(self, batch: int) -> None:
        sink = PostgresStagedSink(self.url, "t")
        epoch = Epoch(self.name, batch)
        try:
            assert await sink.publish(epoch, [await sink.seal(attempt(epoch=epoch))])
        finally:
            await sink.close()


@pytest.fixture
async def roles(postgres: Postgres) -> AsyncIterator[tuple[Role, Role]]:
    made = [Role(f"r_{uuid.uuid4().hex[:8]}", postgres) for _ in range(2)]
    await postgres.run("CREATE TABLE t (id BIGINT, name TEXT)")
    for role in made:
        await postgres.run(f"CREATE ROLE {role.name} LOGIN")
        await postgres.run(f"GRANT CREATE, USAGE ON SCHEMA public TO {role.name}")
        await postgres.run(f"GRANT ALL ON t TO {role.name}")
    yield made[0], made[1]
    for role in made:
        await postgres.run(f"DROP OWNED BY {role.name}")
        await postgres.run(f"DROP ROLE {role.name}")


async def test_fences_of_the_other_kind_and_of_an_earlier_version_are_read_as_they_are(
    postgres: Postgres, roles: tuple[Role, Role]
) -> None:
    """Their owner's sink alters them when it comes: nobody else may."""
    first, second = roles
    await first.publishes(0)
    await postgres.run(f"GRANT SELECT ON {OF_STAGED} TO {second.name}")
    await postgres.run(f"ALTER TABLE {OF_STAGED} DROP COLUMN checkpoint")

    await second.writes(1)
    await second.writes(1)

    assert await ids(postgres, "t") == [1]
    sink = PostgresEpochSink[Any](second.url, "t", COLUMNS)
    assert await sink.is_committed(Epoch(first.name, 0))
    await sink.close()
    await postgres.run(f"GRANT SELECT ON {FENCES} TO {first.name}")
    await first.publishes(2)
    await postgres.run(f"SELECT checkpoint FROM {OF_STAGED}")


async def test_who_stages_need_not_be_a_role_that_may_insert(
    postgres: Postgres, roles: tuple[Role, Role]
) -> None:
    """Whoever publishes has to; the server is asked what it thinks of on_conflict."""
    role, mine = roles[0], attempt()
    await postgres.run(f"REVOKE INSERT ON t FROM {role.name}")
    sink = PostgresStagedSink(role.url, "t", on_conflict="ON CONFLICT DO NOTHING")
    await sink.stage(mine, [batch(1).select(["id"])])
    assert (await sink.seal(mine)).rows == 1
    await sink.close()


async def test_who_may_not_alter_earlier_fences_is_told_what_their_owner_does(
    postgres: Postgres, roles: tuple[Role, Role]
) -> None:
    first, second = roles
    await first.writes(0)
    await postgres.run(f"GRANT ALL ON {FENCES} TO {second.name}")
    await postgres.run(f"ALTER TABLE {FENCES} DROP COLUMN checkpoint")

    with pytest.raises(asyncpg.InsufficientPrivilegeError) as refused:
        await second.writes(1)

    told, _, statement = str(refused.value).rpartition("has to execute once: ")
    assert "must be owner of table batchqueue_epochs" in told
    await postgres.run(statement)
    await second.writes(1)
    assert await ids(postgres, "t") == [0, 1]


async def test_who_may_not_read_the_other_kinds_fences_is_told_why_that_is_needed(
    postgres: Postgres, roles: tuple[Role, Role]
) -> None:
    first, second = roles
    await second.writes(0)
    await postgres.run(f"GRANT SELECT ON {FENCES} TO {first.name}")
    await first.publishes(1)

    with pytest.raises(asyncpg.InsufficientPrivilegeError) as refused:
        await second.writes(2)

    told, _, statement = str(refused.value).rpartition("its role needs ")
    assert "permission denied for table batchqueue_published" in told
    await postgres.run(f"{statement} TO {second.name}")
    await second.writes(2)
    assert await ids(postgres, "t") == [0, 2]


@pytest.mark.parametrize("policy", ["", "USING (rows > 5)", "USING (true)"])
async def test_no_epoch_is_looked_for_where_policies_may_hide_it(
    postgres: Postgres, roles: tuple[Role, Role], policy: str
) -> None:
    """It was written twice, without a word. What shows all is no obstacle."""
    first, second = roles
    await first.publishes(0)
    await postgres.run(f"GRANT SELECT ON {OF_STAGED} TO {second.name}")
    await postgres.run(f"ALTER TABLE {OF_STAGED} ENABLE ROW LEVEL SECURITY")
    if policy:
        await postgres.run(f"CREATE POLICY p ON {OF_STAGED} FOR SELECT {policy}")
    sink = PostgresEpochSink[Any](second.url, "t", COLUMNS)
    try:
        if policy == "USING (true)":
            assert await sink.is_committed(Epoch(first.name, 0))
            assert not await sink.is_committed(Epoch(first.name, 1))
        else:
            with pytest.raises(BatchQueueError, match="row-level security may hide"):
                await sink.is_committed(Epoch(first.name, 0))
            with pytest.raises(BatchQueueError, match="row-level security may hide"):
                await deliver(sink, Epoch(first.name, 0), 1)
    finally:
        await sink.close()
    assert await ids(postgres, "t") == []
