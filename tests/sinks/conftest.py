"""Every store in turn, for the tests of the contract."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from batchqueue_async.sinks import EpochSink
from tests.sinks.stores import (
    ParquetStore,
    PostgresStore,
    SqliteStore,
    Store,
    make_postgres_store,
)

NewSink = Callable[[], EpochSink[Any]]


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
