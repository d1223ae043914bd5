"""Rows of many processes that wait in a SQLite file, beside their table."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from batchqueue_async import BatchQueueError
from batchqueue_async._validation import refuse

from ..epochs import Epoch, key_of
from ..names import quoted
from ..rows import Row
from ..staged import Attempt, refuse_known
from .affinity import ANY, affinity_of, declared_types
from .fences import first_value
from .file import find_table, require_insert

_KEY = "batchqueue_attempt"
_ATTEMPTS = "main.batchqueue_attempts"
_OF_EPOCH = "target = ? COLLATE NOCASE AND query = ? AND batch = ?"
# Attempts that nobody published or discarded in this time died with their driver.
_KEPT = "-7 days"


class StagedRows:
    """A staging table, and the register of those who write to it.

    An attempt registers with its first rows. Who ends an epoch or a run strikes off
    what is registered, so that an attempt that comes too late finds itself missing.

    Args:
        database: The file, in which neither of the two need be there.
        table: The target, as its user spells it.
    """

    def __init__(self, database: sqlite3.Connection, table: str) -> None:
        self.table = find_table(database, table)
        self._database = database
        self._target = f"main.{quoted(self.table)}"
        self._name = f"{self.table}_staged"
        self._staging = f"main.{quoted(self._name)}"

    @classmethod
    @contextmanager
    def written(cls, database: sqlite3.Connection, table: str) -> Iterator[Self]:
        """Write to them, and to the target, in one transaction.

        What raises leaves it open, which undoes it at the end of the file's call.
        """
        database.execute("BEGIN IMMEDIATE")
        staged = cls(database, table)
        staged.prepare()
        yield staged
        database.execute("COMMIT")

    def prepare(self) -> None:
        """Make what is missing, and anew a staging table of another shape.

        Rows in that are of attempts that died, or whose `publish` will miss them.
        """
        columns = self._columns(self._name)
        theirs = self._columns(self.table)
        if any(name.lower() == _KEY for name in theirs):
            rule = f"without a column {_KEY}, which the staging table has"
            refuse(f"table {self.table}", rule, [*theirs])
        wanted = {_KEY: ANY, **theirs}
        if columns and _KEY not in columns:
            msg = (
                f"table {self._name} must have the columns {', '.join(wanted)}, got"
                f" {', '.join(columns)}: it is somebody else's"
            )
            raise BatchQueueError(msg)
        if [*columns] != [*wanted] or any(
            kind not in {ANY, columns[name]} for name, kind in wanted.items()
        ):
            self._create([*theirs])
        self._database.execute(
            f"CREATE TABLE IF NOT EXISTS {_ATTEMPTS} ("
            "number INTEGER PRIMARY KEY, target TEXT NOT NULL,"
            " query TEXT NOT NULL, batch INTEGER NOT NULL, run TEXT NOT NULL,"
            " name TEXT UNIQUE, started_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)"
        )

    def announce(self, epoch: Epoch, run: str) -> None:
        """Register a run: a line without an attempt's name."""
        self._register(epoch, run, None)

    def number_of(self, attempt: Attempt, *, is_new: bool) -> int:
        """Return the attempt's number; a new one is registered."""
        if is_new and (not attempt.is_announced or self._has_run(attempt)):
            if self._number(attempt.name) is not None:
                refuse_known(attempt)
            return self._register(attempt.epoch, attempt.run, attempt.name)
        number = None if is_new else self._number(attempt.name)
        if number is None:
            msg = f"{attempt} comes too late: its run was published or discarded"
            raise BatchQueueError(msg)
        return number

    def has(self, attempt: Attempt) -> bool:
        return self._number(attempt.name) is not None

    def add(self, number: int, columns: Sequence[str], rows: Sequence[Row]) -> None:
        names = ", ".join(map(quoted, columns))
        places = ", ".join("?" * len(columns))
        into = f"INSERT INTO {self._staging} ({_KEY}, {names})"
        self._database.executemany(f"{into} VALUES ({number}, {places})", rows)

    def count(self, names: Sequence[str]) -> int:
        query = f"SELECT count(*) {self._marked}"
        found: int = first_value(self._database, query, json.dumps(names))
        return found

    def require_insert(self, columns: Sequence[str], on_conflict: str) -> None:
        insert = f"{self._insert(columns)} FROM {self._staging}"
        require_insert(self._database, insert, on_conflict, self.table)

    def copy(self, names: Sequence[str], columns: Sequence[str], end: str) -> None:
        self._database.execute(
            f"{self._insert(columns)} {self._marked} ORDER BY rowid {end}",
            (json.dumps(names),),
        )

    def strike_off(self, name: str) -> None:
        self._delete("name = ?", (name,))

    def clear(self, epoch: Epoch, run: str | None = None) -> None:
        """Forget the epoch's attempts, or one run's, and delete their rows.

        With the epoch goes what died with its driver, of whatever epoch.
        """
        which = (self.table, *key_of(epoch))
        if run is not None:
            self._delete(f"{_OF_EPOCH} AND run = ?", (*which, run))
            return
        old = "target = ? COLLATE NOCASE AND started_at < datetime('now', ?)"
        self._delete(f"{_OF_EPOCH} OR {old}", (*which, self.table, _KEPT))

    def _insert(self, columns: Sequence[str]) -> str:
        listed = ", ".join(map(quoted, columns))
        return f"INSERT INTO {self._target} ({listed}) SELECT {listed}"

    @property
    def _marked(self) -> str:
        return (
            f"FROM {self._staging} WHERE {_KEY} IN (SELECT number FROM {_ATTEMPTS}"
            " WHERE name IN (SELECT value FROM json_each(?)))"
        )

    def _delete(self, which: str, values: Sequence[object]) -> None:
        chosen = f"FROM {_ATTEMPTS} WHERE {which}"
        self._database.execute(
            f"DELETE FROM {self._staging} WHERE {_KEY} IN (SELECT number {chosen})",
            values,
        )
        self._database.execute(f"DELETE {chosen}", values)

    def _register(self, epoch: Epoch, run: str, name: str | None) -> int:
        query = (
            f"INSERT INTO {_ATTEMPTS} (target, query, batch, run, name)"
            " VALUES (?, ?, ?, ?, ?)"
        )
        which = (self.table, *key_of(epoch), run, name)
        # Not RETURNING, which SQLite has since 3.35: RHEL 9 has an older one.
        number = self._database.execute(query, which).lastrowid
        assert number is not None
        return number

    def _number(self, name: str) -> int | None:
        if not self._columns("batchqueue_attempts"):
            return None
        query = f"SELECT number FROM {_ATTEMPTS} WHERE name = ?"
        number: int | None = first_value(self._database, query, name)
        return number

    def _has_run(self, attempt: Attempt) -> bool:
        query = (
            f"SELECT 1 FROM {_ATTEMPTS} WHERE {_OF_EPOCH} AND run = ? AND name IS NULL"
        )
        which = (self.table, *key_of(attempt.epoch), attempt.run)
        return first_value(self._database, query, *which) is not None

    def _create(self, theirs: Sequence[str]) -> None:
        # Not `*`, which has generated columns, too. With their table's name, since
        # without it SQLite takes an unknown name in quotes for a text.
        names = (f"{self._target}.{name} AS {name}" for name in map(quoted, theirs))
        self._database.execute(f"DROP TABLE IF EXISTS {self._staging}")
        self._database.execute(
            f"CREATE TABLE {self._staging} AS SELECT 0 AS {_KEY}, {', '.join(names)}"
            f" FROM {self._target} LIMIT 0"
        )
        index = f"main.{quoted(f'{self._name}_attempt')}"
        self._database.execute(f"CREATE INDEX {index} ON {quoted(self._name)} ({_KEY})")

    def _columns(self, table: str) -> dict[str, str]:
        types = declared_types(self._database, table)
        return {name: affinity_of(declared) for name, declared in types.items()}
