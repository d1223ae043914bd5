"""A function of your own on the executors, whose process's queue merges there: L1.

The handler merges views by page and hands the sums on, at the flush at the latest,
which ends each task's `with` block. It is at least once: what a task that dies has
handed on comes again; `map_partitions` does the same with each row exactly once.

Run, in a clone: pip install -e . --group demo
python -m examples.spark.executor_queue
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from batchqueue_async import LoopThread, Merging, SyncBatchQueue
from batchqueue_async.spark import flushed_queue
from examples.spark.page_views import View, page_views
from examples.spark_session import quiet_session

ADD = """INSERT INTO totals VALUES (?, ?)
    ON CONFLICT (page) DO UPDATE SET ms = ms + excluded.ms"""


@dataclass(frozen=True)
class OpenTotals:
    """Opens a process's queue; equal ones share it."""

    file: str

    def __call__(self, loop_thread: LoopThread) -> SyncBatchQueue[View]:
        def store(views: list[View]) -> None:
            with closing(sqlite3.connect(self.file, timeout=30)) as database, database:
                database.executemany(ADD, views)

        merging = Merging(key=page_of, merge=added, then=store, every=5.0)
        return loop_thread.open("views", handlers={View: merging})


def page_of(view: View) -> str:
    return view.page


def added(one: View, other: View) -> View:
    return View(one.page, one.ms + other.ms)


def main() -> None:
    spark = quiet_session("executor_queue", "local[2]")
    with TemporaryDirectory() as home:
        open_totals = OpenTotals(str(Path(home, "totals.db")))

        def add_up(rows: Iterable[Any]) -> None:
            with flushed_queue(open_totals) as queue:
                queue.produce_many(View(row.page, row.ms) for row in rows)

        with closing(sqlite3.connect(open_totals.file)) as database:
            database.execute("CREATE TABLE totals (page TEXT PRIMARY KEY, ms INTEGER)")
            page_views(spark).foreachPartition(add_up)
            for page, ms in database.execute("SELECT * FROM totals ORDER BY page"):
                print(f"{page} {ms} ms")
    spark.stop()


if __name__ == "__main__":
    main()
