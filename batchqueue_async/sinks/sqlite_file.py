"""One connection to a SQLite file, used by one thread at a time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from anyio import to_thread

R = TypeVar("R")


class SqliteFile:
    """Runs blocking calls in threads, on a connection that the first of them opens.

    A commit waits for the disk, whatever the file is set to.

    Args:
        path: The file.
        patience: Seconds to wait while others have it locked.
        prepare: Called once, with the new connection.
    """

    def __init__(
        self,
        path: Path,
        patience: float,
        prepare: Callable[[sqlite3.Connection], None],
    ) -> None:
        self._path = path
        self._patience = patience
        self._prepare = prepare
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    async def run(self, work: Callable[[sqlite3.Connection], R]) -> R:
        """Return what `work` returns; a transaction that it leaves open is undone.

        If it is cancelled the thread goes on, and the next call waits for it.

        Raises:
            sqlite3.Error: The file cannot be opened.
            Exception: What `work` raises.
        """
        return await to_thread.run_sync(self._run_here, work)

    async def close(self) -> None:
        """Close the connection; the next call opens another."""
        await to_thread.run_sync(self._close)

    def _run_here(self, work: Callable[[sqlite3.Connection], R]) -> R:
        with self._lock:
            if self._connection is None:
                self._connection = self._open()
            try:
                return work(self._connection)
            finally:
                if self._connection.in_transaction:
                    self._connection.rollback()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path,
            timeout=self._patience,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
