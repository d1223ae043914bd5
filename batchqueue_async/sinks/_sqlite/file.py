"""A SQLite file: one connection to it, and its tables."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from anyio import to_thread

from batchqueue_async import BatchQueueError

from ..checks import refuse_on_conflict
from ..epochs import Epoch
from ..forks import watch_forks
from ..names import as_sql_reads
from .fences import SqliteFences, first_value

R = TypeVar("R")

# What goes wrong with a file, and not with a statement.
_OF_FILES = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOTADB,
}
# What is written waits there, and SQLite doesn't tell it from the file.
_OR_TEMPORARY = (
    ", or the folder of temporary files (SQLITE_TMPDIR, or /var/tmp, or /tmp)"
)
# What else than the file may be meant, which SQLite doesn't say.
_MORE = {
    sqlite3.SQLITE_FULL: _OR_TEMPORARY,
    sqlite3.SQLITE_READONLY_DIRECTORY: (
        ": it is its folder that can't be written, where SQLite keeps a journal"
    ),
    sqlite3.SQLITE_READONLY_DBMOVED: (
        ", which was moved, deleted or replaced since it was opened"
    ),
}


class SqliteFile:
    """Runs blocking calls in threads, on a connection that the first of them opens.

    A commit waits for the disk, whatever the file is set to. If another file has taken
    its place by the next call, that opens the other one. A forked child opens its own.
    """

    def __init__(self, path: Path, timeout: float, fences: str) -> None:
        self._path = path
        self._timeout = timeout
        self.fences = SqliteFences(fences)
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None
        # Whether it could not be written then, as on a disk that is read-only.
        self._only_reads = False
        # The file's log, if it is in WAL mode: one file for as long as it is open.
        self._log: tuple[int, int] | None = None
        self._lock = threading.Lock()
        watch_forks(self)

    async def run(self, work: Callable[[sqlite3.Connection], R]) -> R:
        """Return what `work` returns; a transaction that it leaves open is undone.

        If it is cancelled the thread goes on, and the next call waits for it.
        """
        return await to_thread.run_sync(self._run_here, work)

    async def has_fence(
        self, table: str, epoch: Epoch, *, of_own: bool = False
    ) -> bool:
        """Return whether the epoch is in the table, as its user spells it.

        If it has to be `of_own` stream, another's raises.
        """
        has = self.fences.has_own if of_own else self.fences.has
        return await self.run(
            lambda database: has(database, find_table(database, table), epoch)
        )

    async def close(self) -> None:
        """Close the connection; the next call opens another."""
        await to_thread.run_sync(self._close)

    def leave_to_parent(self) -> list[object]:
        """Forget the connection.

        Both would write into the one file in which its temporary tables are.
        """
        self._lock = threading.Lock()  # a thread of the parent's may have taken it
        connection, self._connection = self._connection, None
        return [connection]

    def _run_here(self, work: Callable[[sqlite3.Connection], R]) -> R:
        with self._lock:
            if self._only_reads and os.access(self._path, os.W_OK):
                # A connection that was opened for reading alone stays so.
                self._close_here()
            if self._connection is None:
                self._connection = self._open()
            elif _which(self._path) != self._opened:
                # The file was deleted, made again or restored: this is the old one.
                self._refuse_old_log()
                old, self._connection = self._connection, self._open()
                old.close()
            try:
                return work(self._connection)
            except sqlite3.DatabaseError as error:
                kind = _code_of(error) & 0xFF  # the rest tells more
                if kind in _OF_FILES:
                    # The file itself is open by now.
                    is_other = kind == sqlite3.SQLITE_CANTOPEN
                    self._tell_path(error, _OR_TEMPORARY if is_other else "")
                raise
            finally:
                if self._connection.in_transaction:
                    self._connection.rollback()

    def _open(self) -> sqlite3.Connection:
        # Looked at before: one that takes its place meanwhile is another.
        opened = _which(self._path)
        only_reads = not os.access(self._path, os.W_OK)
        self._require_one_name()
        try:
            connection = self._opened_anew()
        except sqlite3.DatabaseError as error:
            self._tell_path(error)
            raise
        self._opened, self._log = opened, _which(self._log_path())
        self._only_reads = only_reads
        return connection

    def _tell_path(self, error: sqlite3.Error, more: str = "") -> None:
        """Let an error say of which file it is, which SQLite doesn't."""
        code = _code_of(error)
        more = _MORE.get(code, _MORE.get(code & 0xFF, more))
        error.args = (f"{error}: {self._path}{more}",)

    def _refuse_old_log(self) -> None:
        """Raise if the log of the file before lies beside the one that is there now.

        SQLite takes it for that one's, and writes what is in it into that.
        """
        path = self._log_path()
        is_there = self._path.exists() and self._log is not None
        if is_there and _which(path) == self._log:
            msg = (
                f"{self._path} was replaced while it was open, and {path.name} beside"
                " it is of the file before: SQLite would write what is in it into the"
                " new one. Delete it, and the -shm, while nobody has the new one open"
            )
            raise BatchQueueError(msg)

    def _require_one_name(self) -> None:
        """Raise if there are hard links: who opens another sees no journal of this one.

        What a killed process has left in the middle of a commit would stand there.
        """
        try:
            found = self._path.stat()
        except OSError:
            return  # SQLite says so
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            msg = (
                f"{self._path} has {found.st_nlink} names (hard links), and SQLite"
                " keeps its journal under the one that it was opened by: under another,"
                " half of an epoch would count. Leave it one name, and use symbolic"
                " links"
            )
            raise BatchQueueError(msg)

    def _log_path(self) -> Path:
        path = self._path.resolve()  # beside the file that a link leads to
        return path.with_name(f"{path.name}-wal")

    def _opened_anew(self) -> sqlite3.Connection:
        # Never made: where a disk isn't mounted, or a backup is on its way, it would be
        # an empty one that somebody finds later.
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            # With FULL the journal's end is not waited for: a power cut right after a
            # commit would bring the journal back, which undoes it.
            connection.execute("PRAGMA synchronous = EXTRA")
            self.fences.prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        with self._lock:
            self._close_here()

    def _close_here(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _which(path: Path) -> tuple[int, int] | None:
    """Return what a path stands for, if it is there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _code_of(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code


def find_table(database: sqlite3.Connection, table: str) -> str:
    """Return the name that a table of the file was created with."""
    names, spelled = [table], as_sql_reads(table)
    if spelled is not None and (spelled[0] or "main").lower() == "main":
        names.append(spelled[1])
    query = (
        "SELECT name FROM main.sqlite_master WHERE type IN ('table', 'view')"
        " AND name = ? COLLATE NOCASE"
    )
    for name in names:
        if (found := first_value(database, query, name)) is not None:
            return str(found)
    file = first_value(
        database, "SELECT file FROM pragma_database_list WHERE name = 'main'"
    )
    # The path is told, since it may be another file than was meant.
    msg = f"no such table: {table} in {file}"
    raise sqlite3.OperationalError(msg)


def require_insert(
    database: sqlite3.Connection, insert: str, on_conflict: str, table: str
) -> None:
    """Have SQLite compile an INSERT out of a SELECT with this end, and no more.

    So that a wrong one is refused when an epoch begins, not when it ends.

    Raises:
        ValueError: SQLite refuses it with this end.
        sqlite3.OperationalError: SQLite refuses it without, too.
    """
    if not on_conflict:
        return
    try:
        # Without WHERE it would read ON as the beginning of a join's condition.
        database.execute(f"EXPLAIN {insert} WHERE true {on_conflict}").close()
    except (sqlite3.OperationalError, sqlite3.ProgrammingError) as error:
        if _code_of(error) in {sqlite3.SQLITE_OK, sqlite3.SQLITE_ERROR}:
            # No other is about what it says.
            database.execute(f"EXPLAIN {insert} WHERE true").close()
            refuse_on_conflict(on_conflict, f"table {table}", error)
