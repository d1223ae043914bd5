"""A stream into a table of SQLite, each micro-batch exactly once, by way of the driver.

The second run has nothing to do: the checkpoint says that all was read, and the table
of fences that all was written. Kill the program between the two and start it again: it
ends with the same rows.

Run, in a clone: pip install -e . --group demo
python -m examples.spark.foreach_batch
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame

from batchqueue_async import BatchQueueConfig, LoopThread
from batchqueue_async.sinks import EpochWriter
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from batchqueue_async.spark import ForeachBatchSink
from examples.spark.page_views import page_view_files
from examples.spark_session import quiet_session


def main() -> None:
    spark = quiet_session("foreach_batch", "local[2]")
    with TemporaryDirectory() as home:
        stream = page_view_files(spark, Path(home, "in"))
        with closing(sqlite3.connect(Path(home, "views.db"))) as database:
            database.execute("CREATE TABLE views (page TEXT, ms INTEGER)")
            for run in (1, 2):
                deliver(stream, Path(home))
                (rows,) = database.execute("SELECT count(*) FROM views").fetchone()
                print(f"after run {run} the table has {rows} rows")
    spark.stop()


def deliver(stream: DataFrame, home: Path) -> None:
    sink = SqliteEpochSink[Any](home / "views.db", "views", ("page", "ms"))
    writer = EpochWriter(sink)
    with LoopThread() as loop_thread:
        queue = loop_thread.open("views", BatchQueueConfig(consumer=writer))
        query = (
            stream.writeStream.foreachBatch(ForeachBatchSink(queue, sink=writer))
            .option("checkpointLocation", str(home / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main()
