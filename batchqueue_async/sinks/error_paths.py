"""Errors of files that say of which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def telling_path(path: Path) -> Iterator[None]:
    """Let an error say where it is from, as of a full disk: who writes isn't told."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise
