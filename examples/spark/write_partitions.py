"""A frame's rows through queues on the executors, and a receipt for the driver.

Each Python worker process has one queue with one connection, and keeps both for later
partitions. It is at least once: a task that dies is run again, from its first row.

Run, in a clone: pip install -e . --group demo
python -m examples.spark.write_partitions
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from batchqueue_async import BatchQueueConfig, LoopThread, SyncBatchQueue, in_thread
from batchqueue_async.spark import to_objects, write_partitions
from examples.spark.page_views import View, page_views
from examples.spark_session import quiet_session


class Store:
    """A blocking handler: inserts a batch in one transaction."""

    def __init__(self, file: str) -> None:
        self.database = sqlite3.connect(file, timeout=30, check_same_thread=False)

    def consume(self, batch: list[View]) -> None:
        with self.database:
            self.database.executemany("INSERT INTO views VALUES (?, ?)", batch)


@dataclass(frozen=True)
class OpenViews:
    """Opens a process's queue; equal ones share it."""

    file: str

    def __call__(self, loop_thread: LoopThread) -> SyncBatchQueue[View]:
        config = BatchQueueConfig(consumer=in_thread(Store(self.file)), max_batch=1_000)
        return loop_thread.open("views", config)


def main() -> None:
    spark = quiet_session("write_partitions", "local[2]")
    with TemporaryDirectory() as home:
        file = str(Path(home, "views.db"))
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE views (page TEXT, ms INTEGER)")
            result = write_partitions(
                page_views(spark), OpenViews(file), to_items=to_objects(View)
            )
            print(f"{result.items} items in {len(result.partitions)} partitions")
            (rows,) = database.execute("SELECT count(*) FROM views").fetchone()
            print(f"the table has {rows} rows")
    spark.stop()


if __name__ == "__main__":
    main()
