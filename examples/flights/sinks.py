"""Which database `--sink` means."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from .database import Connect
from .problems import Problem


def sink_for(url: str | None, out: Path) -> Connect:
    """Return what connects to the sink."""
    # Each client is imported when it is needed: no sink needs the other's.
    url = url or f"sqlite:///{out / 'flights.db'}"
    path = url.removeprefix("sqlite:///")
    if path not in {url, ""}:
        from .sqlite import SqliteDatabase  # noqa: PLC0415

        return partial(SqliteDatabase.connect, Path(path))
    if url.startswith(("postgresql://", "postgres://")):
        from .postgres import PostgresDatabase  # noqa: PLC0415

        return partial(PostgresDatabase.connect, url)
    msg = f"--sink must be postgresql://... or sqlite:///path, got {url!r}"
    raise Problem(msg)
