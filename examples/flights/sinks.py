"""Which database `--sink` means, for the driver's queues and for the executors'."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from .database import Connect
from .executor_run import StagedTables
from .problems import Problem


def sink_for(url: str | None, out: Path) -> Connect:
    """Return what connects to the sink."""
    # Each client is imported when it is needed: no sink needs the other's.
    if (path := _sqlite_file(url, out)) is not None:
        from .sqlite import SqliteDatabase  # noqa: PLC0415

        return partial(SqliteDatabase.connect, path)
    if url is not None and url.startswith(("postgresql://", "postgres://")):
        from .postgres import PostgresDatabase  # noqa: PLC0415

        return partial(PostgresDatabase.connect, url)
    msg = f"--sink must be postgresql://... or sqlite:///path, got {url!r}"
    raise Problem(msg)


def writers_for(url: str | None, out: Path) -> int:
    """Return how many connections may write at a time."""
    # The original's number; SQLite has one writer.
    return 1 if _sqlite_file(url, out) is not None else 4


def staged_tables(url: str | None, out: Path) -> StagedTables:
    """Return what `format("batchqueue")` has to know of the sink."""
    if (path := _sqlite_file(url, out)) is not None:
        from .sqlite import WORDS  # noqa: PLC0415

        # Executors have working folders of their own.
        return StagedTables({"sink": "sqlite", "file": str(path.resolve())}, "", WORDS)
    from .postgres import SCHEMA  # noqa: PLC0415
    from .postgres import WORDS as POSTGRES_WORDS  # noqa: PLC0415

    return StagedTables(
        {"sink": "postgres", "url": str(url)}, f"{SCHEMA}.", POSTGRES_WORDS
    )


def _sqlite_file(url: str | None, out: Path) -> Path | None:
    if url is None:
        return out / "flights.db"
    path = url.removeprefix("sqlite:///")
    return None if path in {url, ""} else Path(path)
