"""Writes the files that a stream reads, at a steady pace."""

import threading
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.chaos.checkpoint import name_of

ROWS = 100
ROW_GROUPS = 5
"""Where Spark can cut a file."""


class Feeder:
    """Adds a file each `interval` seconds on a thread of its own."""

    def __init__(self, folder: Path, interval: float = 0.15) -> None:
        folder.mkdir()
        self._folder = folder
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feeder")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _feed(self) -> None:
        first = 0
        while not self._stop.wait(self._interval):
            ids = pa.table({"id": list(range(first, first + ROWS))})
            name = name_of(first, first + ROWS)
            # Spark must not see it before it is complete.
            hidden = self._folder / f".{name}"
            pq.write_table(ids, hidden, row_group_size=ROWS // ROW_GROUPS)
            hidden.rename(self._folder / name)
            first += ROWS
