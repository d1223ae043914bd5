"""Every store in turn, for the tests of the contract."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from batchqueue_async.sinks import EpochSink
from batchqueue_async.sinks._postgres import staged_rows
from batchqueue_async.sinks.staged import StagedSink
from tests.sinks.databases import Database, Postgres, Sqlite, postgres_database
from tests.sinks.places import ParquetPlace, Place, SqlitePlace, make_postgres_place
from tests.sinks.stores import (
    ParquetStore,
    PostgresStore,
    SqliteStore,
    Store,
    make_postgres_store,
)

NewSink = Callable[[], EpochSink[Any]]
NewStagedSink = Callable[[], StagedSink[Any]]


@pytest.fixture(params=["sqlite", "postgres", "parquet"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store."""
    if request.param == "sqlite":
        return SqliteStore(tmp_path)
    if request.param == "parquet":
        return ParquetStore(tmp_path)
    return await make_postgres_store(request.getfixturevalue("postgres_dsn"))


@pytest.fixture
async def postgres_store(postgres_dsn: str) -> PostgresStore:
    """An empty schema of a real server."""
    return await make_postgres_store(postgres_dsn)


@pytest.fixture
async def new_sink(store: Store) -> AsyncIterator[NewSink]:
    """Makes sinks of the store, each as another process would; closes them at last."""
    sinks: list[Any] = []

    def make() -> EpochSink[Any]:
        sinks.append(store.sink())
        sink: EpochSink[Any] = sinks[-1]
        return sink

    yield make
    for sink in sinks:
        close = getattr(sink, "close", None)
        if close is not None:
            await close()


@pytest.fixture(params=["parquet", "sqlite", "postgres", "postgres-emptied"])
async def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Place:
    """An empty place for a staged sink; the last empties its table where it may."""
    if request.param == "parquet":
        return ParquetPlace(tmp_path / "out")
    if request.param == "sqlite":
        return SqlitePlace(tmp_path / "store.db")
    if request.param == "postgres-emptied":
        monkeypatch.setattr(staged_rows, "_SMALL", 0)
    return await make_postgres_place(request.getfixturevalue("postgres_dsn"))


@pytest.fixture
async def open_sink(place: Place) -> AsyncIterator[NewStagedSink]:
    """Makes sinks as processes do, and closes them at the end."""
    made: list[StagedSink[Any]] = []

    def make() -> StagedSink[Any]:
        made.append(place.sink())
        return made[-1]

    yield make
    for sink in made:
        await sink.close()


@pytest.fixture
async def postgres(postgres_dsn: str) -> AsyncIterator[Postgres]:
    """An empty database."""
    async with postgres_database(postgres_dsn) as made:
        yield made


@pytest.fixture(params=["sqlite", "postgres"])
async def database(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Database]:
    """A database with the tables `a` and `b`, of the columns of `Store`."""
    async with contextlib.AsyncExitStack() as stack:
        made: Database = Sqlite(tmp_path / "store.db")
        if request.param == "postgres":
            server = request.getfixturevalue("postgres_dsn")
            made = await stack.enter_async_context(postgres_database(server))
        for table in ("a", "b"):
            await made.run(f"CREATE TABLE {table} (id BIGINT, name TEXT)")
        yield made
