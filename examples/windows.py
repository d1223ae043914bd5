"""Page views by page and window of time: merged twice, then added up in SQLite.

L1 merges the views as they come, L2 what L1 hands on, and the store adds that to its
rows. Each stage hands on after a while, by a flush, and when it closes. The top page of
each window is found once that is over, by the clock: also when no views come.

    python -m examples.windows
"""

import asyncio
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    Merging,
    Retry,
    drain_on_signals,
    in_thread,
)

WINDOW = 0.25  # Seconds.
TABLES = """
CREATE TABLE views (window, page, number, PRIMARY KEY (window, page));
CREATE TABLE top (window PRIMARY KEY, page, number);
"""
ADD = """
INSERT INTO views VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET number = number + excluded.number
"""
FIND_TOP = """
INSERT OR REPLACE INTO top
SELECT window, page, max(number) FROM views WHERE window < ? GROUP BY window
"""


class Views(NamedTuple):
    window: int
    page: str
    number: int = 1


class Store:
    """Blocks, so it runs on a thread, with its hooks."""

    tick_every = WINDOW

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_open(self) -> None:
        self._database = sqlite3.connect(self._path)

    def consume(self, batch: list[Views]) -> None:
        with self._database:
            self._database.executemany(ADD, batch)

    def on_tick(self) -> None:
        with self._database:
            self._database.execute(FIND_TOP, [current_window()])

    def on_close(self) -> None:
        self.on_tick()
        self._database.close()


def current_window() -> int:
    return int(time.time() / WINDOW)


def merging(then: BatchQueue[Views], every: float) -> BatchQueueConfig[Views]:
    handler = Merging[Views](
        key=lambda views: (views.window, views.page),
        merge=lambda old, new: old._replace(number=old.number + new.number),
        then=then,
        every=every,
        at_most=10_000,
    )
    return BatchQueueConfig(consumer=handler)


def visits() -> Iterator[Views]:
    for n in range(20_000):
        yield Views(current_window(), f"/{n * n % 1000}")


async def run(path: Path, chain: list[BatchQueue[Views]]) -> None:
    retry = Retry(attempts=5, retry_on=(sqlite3.OperationalError,))
    storing = BatchQueueConfig(consumer=in_thread(Store(path)), retry=retry)
    async with BatchQueueManager() as manager:
        # From the chain's end: what is created last is flushed, and closed, first.
        store = await manager.create("store", storing)
        l2 = await manager.create("L2", merging(store, every=WINDOW))
        l1 = await manager.create("L1", merging(l2, every=WINDOW / 5))
        chain += [l1, l2, store]
        drain_on_signals(manager, (signal.SIGTERM, signal.SIGINT))
        for _ in range(20):
            await l1.produce_many(visits())
        await manager.flush(timeout=10)
        show_account(path, chain)
        await l1.produce_many(visits())


def show_account(path: Path, chain: list[BatchQueue[Views]]) -> None:
    """Print what became of all views; exit if the store has not got as many."""
    with closing(sqlite3.connect(path)) as database:
        ((stored,),) = database.execute("SELECT total(number) FROM views")
        ((over,),) = database.execute("SELECT count(*) FROM top")
    came = {queue.name: queue.stats().accepted for queue in chain}
    print(*(f"{count} came to {name}" for name, count in came.items()), sep=", ")
    print(f"{stored:.0f} views are stored; {over} windows are over")
    if came.get("L1", 0) != stored:
        sys.exit("the account is wrong")


def main() -> None:
    chain: list[BatchQueue[Views]] = []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "views.db")
        with closing(sqlite3.connect(path)) as database:
            database.executescript(TABLES)
        try:
            asyncio.run(run(path, chain))
        finally:
            show_account(path, chain)


if __name__ == "__main__":
    main()
