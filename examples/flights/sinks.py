"""Which database `--sink` means."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .problems import Problem

if TYPE_CHECKING:
    from .database import Connect


def sink_for(url: str | None, out: Path) -> Connect:
    """Return what connects to the sink; imports only the client that it needs."""
    scheme, separator, rest = (url or f"sqlite:///{out / 'flights.db'}").partition(
        "://"
    )
    if separator and scheme == "sqlite" and rest.startswith("/") and rest != "/":
        from .sqlite import SqliteDatabase

        return partial(SqliteDatabase.connect, Path(rest[1:]))
    if separator and url and scheme in {"postgresql", "postgres"}:
        from .postgres import PostgresDatabase

        return partial(PostgresDatabase.connect, url)
    msg = f"--sink must be postgresql://... or sqlite:///path, got {url!r}"
    raise Problem(msg)
