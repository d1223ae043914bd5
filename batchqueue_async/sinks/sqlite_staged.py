"""A table of a SQLite file that many processes fill, each epoch exactly once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from batchqueue_async._one_process import OfOneProcess
from batchqueue_async._validation import require_at_least

from ._sqlite.affinity import declared_types
from ._sqlite.file import SqliteFile, find_table
from ._sqlite.staged_rows import StagedRows
from ._sqlite.values import SqliteValues
from .checks import (
    FromOptions,
    require_file,
    require_flag,
    require_name,
    require_on_conflict,
)
from .epochs import Epoch
from .names import matched
from .open_attempts import OpenAttempts
from .rows import plain_rows, require_batches, selected
from .staged import (
    Attempt,
    StagedRowsMissing,
    Token,
    columns_of,
    refuse_removed,
    rows_of,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class _Open:
    names: list[str]
    columns: list[str]
    rows: int = 0


class SqliteStagedSink(OfOneProcess, FromOptions):
    """Stages record batches in a SQLite file and publishes an epoch in one transaction.

    For executors on one host: all processes must see the file on a disk of this host,
    since SQLite's locks don't work over networks.

    Why it is exactly once: SQLite has one writer at a time, and each step is one of its
    transactions. An attempt registers with its first rows, in a staging table beside
    the table. `publish` looks for the epoch's fence, copies the rows of exactly the
    attempts that its tokens name, removes all others, and adds the fence. An attempt
    that seals too late finds itself struck off. The fences are those of
    `SqliteEpochSink`: a query may go from one to the other with its checkpoint.

    What it costs: rows are written twice, and deleted once, in one file, by one process
    at a time. The others wait, for `timeout` seconds at most; readers wait for commits,
    unless the file is in WAL mode. Each commit waits for the disk. One small row per
    published epoch stays. Attempts whose driver died for good go after 7 days, with the
    next `publish` into the table.

    Record batches' columns are matched by name. The table must exist; `<table>_staged`,
    `batchqueue_attempts` and the fences are made when they are missing. Values become
    what SQLite takes, as in `SqliteEpochSink`: timestamps are whole microseconds since
    1970 (UTC), dates and decimals texts; a row with a NaN is refused, unless
    `nan_as_null` says that NULL is wanted in its place. Foreign keys are not enforced,
    either.

    Args:
        file: The file.
        table: Where rows go; as for `SqliteEpochSink`.
        on_conflict: The end of the INSERT, such as "ON CONFLICT (id) DO NOTHING".
        timeout: Seconds to wait while others have the file locked.
        nan_as_null: Write NULL for a NaN, instead of refusing its row.
        fences: The table of fences.

    Raises:
        TypeError, ValueError: An argument is of the wrong kind, or has a wrong value.
    """

    def __init__(  # noqa: PLR0913
        self,
        file: str | Path,
        table: str,
        *,
        on_conflict: str = "",
        timeout: float = 30.0,
        nan_as_null: bool = False,
        fences: str = "batchqueue_epochs",
    ) -> None:
        require_file("file", file)
        require_name("table", table)
        require_name("fences", fences)
        require_on_conflict(on_conflict)
        require_at_least("timeout", timeout, 0)
        require_flag("nan_as_null", nan_as_null)
        # As messages name it.
        self.target: str = f"table {table}"
        self._table = table
        self._on_conflict = on_conflict
        self._nan_as_null = nan_as_null
        self._file = SqliteFile(Path(file), timeout, fences)
        self._attempts = OpenAttempts[_Open]()

    async def announce(self, epoch: Epoch, run: str, /) -> None:
        """Register the run, so that what comes after its end is refused."""
        await self._write(lambda staged: staged.announce(epoch, run))

    async def stage(self, attempt: Attempt, items: list[pa.RecordBatch], /) -> None:
        """Add the rows in one transaction.

        Raises:
            BatchQueueError: The attempt comes too late: its run is over.
            TypeError: An item is no record batch.
            ValueError: A value is a NaN, the record batches' columns differ, the table
                has no such column, or SQLite refuses `on_conflict`.
            sqlite3.Error: SQLite refuses them, or is locked for `timeout` seconds.
        """
        with self._attempts.staging(attempt) as known:
            require_batches(items)
            if not items:
                return
            try:
                await self._stage(attempt, items, known)
            except Exception:
                raise  # its transaction is undone
            except BaseException:
                if known is None:
                    # The thread goes on: `abandon` comes after it, and undoes that.
                    self._attempts[attempt] = _Open(items[0].schema.names, [])
                raise

    async def _stage(
        self, attempt: Attempt, items: list[pa.RecordBatch], known: _Open | None
    ) -> None:
        names = known.names if known else list(items[0].schema.names)

        def stage(database: sqlite3.Connection) -> _Open | None:
            types = declared_types(database, find_table(database, self._table))
            columns = matched(names, types, self.target)
            values = SqliteValues(names, types, nan_as_null=self._nan_as_null)
            # Made before the file is locked, since this takes the longest.
            rows = [
                row
                for batch in items
                for row in values.plain(plain_rows(selected(batch, names)))
            ]
            with StagedRows.written(database, self._table) as staged:
                # Of an announced run `number_of`, below, refuses what comes too late.
                is_first = known is None and not attempt.is_announced
                fences, table = self._file.fences, staged.table
                if is_first and fences.has(database, table, attempt.epoch):
                    return None
                if known is None:
                    staged.require_insert(columns, self._on_conflict)
                number = staged.number_of(attempt, is_new=known is None)
                try:
                    staged.add(number, columns, rows)
                except OverflowError:
                    raise values.refused(rows) from None
            before = known.rows if known else 0
            return _Open(names, columns, before + len(rows))

        if (made := await self._file.run(stage)) is not None:
            self._attempts[attempt] = made

    async def seal(self, attempt: Attempt, /) -> Token:
        """Return the receipt: what was staged is on the disk already.

        Raises:
            BatchQueueError: The run was discarded, or the rows were removed.
        """
        known = self._attempts.get(attempt)
        if known is None:
            return Token(attempt, 0)

        def is_over(database: sqlite3.Connection) -> bool:
            staged, fences = StagedRows(database, self._table), self._file.fences
            if staged.has(attempt):
                return False
            if not fences.has(database, staged.table, attempt.epoch):
                refuse_removed(attempt)
            return True

        is_late = await self._file.run(is_over)
        if is_late:
            self._attempts.forget(attempt)
            return Token(attempt, 0)
        self._attempts.end(attempt)
        return Token(attempt, known.rows, "\0".join(known.columns))

    async def abandon(self, attempt: Attempt, /) -> None:
        """Delete the attempt's rows, and strike it off."""
        if self._attempts.end(attempt) is not None:
            await self._write(lambda staged: staged.strike_off(attempt.name))

    async def publish(self, epoch: Epoch, tokens: Sequence[Token], /) -> bool:
        """Copy the rows and add the fence in one transaction."""
        tokens = [*tokens]  # a generator would be empty the second time
        rows = rows_of(epoch, tokens)
        full = [token for token in tokens if token.rows]

        def publish(database: sqlite3.Connection) -> bool:
            with StagedRows.written(database, self._table) as staged:
                fences, table = self._file.fences, staged.table
                is_new = not fences.has_own(database, table, epoch)
                if is_new:
                    fences.add(database, table, epoch, rows)
                if is_new and full:
                    names = [token.attempt.name for token in full]
                    found = staged.count(names)
                    if found != rows:
                        raise StagedRowsMissing(epoch, rows, found)
                    staged.copy(names, columns_of(full), self._on_conflict)
                staged.clear(epoch)
            return is_new

        return await self._file.run(publish)

    async def discard(self, epoch: Epoch, run: str, /) -> None:
        """Strike the run's attempts off and delete their rows."""
        await self._write(lambda staged: staged.clear(epoch, run))

    async def is_published(self, epoch: Epoch, /) -> bool:
        """Return whether the fence is there."""
        return await self._file.has_fence(self._table, epoch)

    async def close(self) -> None:
        """Delete what isn't sealed, and close the file."""
        try:
            while (ended := self._attempts.end_any()) is not None:
                await self._write(partial(StagedRows.strike_off, name=ended[0]))
        finally:
            await self._file.close()

    async def _write(self, work: Callable[[StagedRows], object]) -> None:
        def write(database: sqlite3.Connection) -> None:
            with StagedRows.written(database, self._table) as staged:
                work(staged)

        await self._file.run(write)
