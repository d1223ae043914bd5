"""The obvious fence, which loses rows: one per (query, batch, partition).

What a partition holds is not part of Spark's checkpoint. A restart with another
parallelism re-delivers the same batch in other partitions, and a fence that says
"partition 0 is done" then skips rows that nobody has written.
"""

import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import DataFrame, Row

PATIENCE = 30.0
SCHEMA = """
    CREATE TABLE items (id INTEGER);
    CREATE TABLE fence (
        query TEXT, batch INTEGER, part INTEGER, PRIMARY KEY (query, batch, part)
    );
"""


class Crash(Exception):
    """Stands for the death of the task that isn't the first."""


@dataclass(frozen=True)
class NaiveFence:
    """Writes each partition in a transaction of its own, together with its fence."""

    database: Path
    query: str = "query"

    def create(self) -> None:
        with closing(sqlite3.connect(self.database)) as connection:
            connection.executescript(SCHEMA)

    def write(self, frame: DataFrame, batch: int, *, crash: bool) -> None:
        """Write a micro-batch on the executors; `crash` after its first partition."""

        def write_partition(rows: Iterable[Row]) -> None:
            part = _partition()
            if crash and part > 0:
                self._await_first(batch)
                raise Crash
            self._write_partition((self.query, batch, part), rows)

        frame.foreachPartition(write_partition)

    def ids(self) -> list[int]:
        """All that was written."""
        with closing(sqlite3.connect(self.database)) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM items")]

    def _write_partition(self, key: tuple[str, int, int], rows: Iterable[Row]) -> None:
        with (
            closing(sqlite3.connect(self.database, PATIENCE)) as connection,
            connection,
        ):
            connection.execute("BEGIN IMMEDIATE")
            if self._is_done(connection, key):
                return
            ids = [(row.id,) for row in rows]
            connection.executemany("INSERT INTO items VALUES (?)", ids)
            connection.execute("INSERT INTO fence VALUES (?, ?, ?)", key)

    def _is_done(
        self, connection: sqlite3.Connection, key: tuple[str, int, int]
    ) -> bool:
        asked = "SELECT 1 FROM fence WHERE (query, batch, part) = (?, ?, ?)"
        return connection.execute(asked, key).fetchone() is not None

    def _await_first(self, batch: int) -> None:
        # The job ends with its first failure, which must not be too early.
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with closing(sqlite3.connect(self.database, PATIENCE)) as connection:
                if self._is_done(connection, (self.query, batch, 0)):
                    return
            time.sleep(0.02)


def _partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()
