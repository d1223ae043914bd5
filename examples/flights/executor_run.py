"""A run whose pipeline is on the executors: Spark publishes each table exactly once.

Three writes, or three streams, one for each table; the driver plans and commits them,
and sees no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from batchqueue_async.spark.progress_listener import cause_of

from .executor_stages import cancellations, merged_metrics, ranked_delays
from .problems import Problem
from .reading import all_events, root_cause
from .schema import Dialect, combine_metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .interruption import Interruption
    from .streaming import Job

TABLES: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "metrics": merged_metrics,
    "top_delays": ranked_delays,
    "cancellations": cancellations,
}


@dataclass(frozen=True, slots=True)
class StagedTables:
    """How the data source writes into the tables.

    Attributes:
        options: Its options, but for those of each table.
        schema: What stands before a table's name.
        words: How the database spells things.
    """

    options: Mapping[str, str]
    schema: str
    words: Dialect

    def options_of(self, table: str) -> dict[str, str]:
        """Return the options for one table."""
        # A window may come again with the next epoch: an hour has two ends. A day's
        # delays and a cancellation cannot.
        conflict = combine_metrics(self.words) if table == "metrics" else ""
        place = {"table": f"{self.schema}{table}", "on_conflict": conflict}
        return {**self.options, **place}


def process(spark: SparkSession, tables: StagedTables) -> None:
    """Run the pipeline once, over everything."""
    events = all_events(spark.table("flights"), spark.table("weather"))
    with _told_in_a_line("Spark cannot run the pipeline"):
        for table, stages in TABLES.items():
            writer = stages(events).write.format("batchqueue").mode("append")
            writer.options(**tables.options_of(table)).save()


def stream(
    job: Job,
    spark: SparkSession,
    tables: StagedTables,
    interruption: Interruption,
) -> bool:
    """Run what is left of the streams; returns whether nothing is left any more."""
    with _told_in_a_line("the stream stopped; the same command goes on"):
        queries = [
            stages(job.events(spark))
            .writeStream.format("batchqueue")
            .options(**tables.options_of(table))
            .option("checkpointLocation", str(job.checkpoint(table)))
            .trigger(availableNow=True)
            .start()
            for table, stages in TABLES.items()
        ]
        try:
            for query in queries:
                while not query.awaitTermination(1):
                    if interruption.is_requested:
                        return False
        finally:
            for query in queries:
                query.stop()
    return True


@contextmanager
def _told_in_a_line(what: str) -> Iterator[None]:
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        text = str(error)
        told = cause_of(text) if "Traceback" in text else root_cause(error)
        msg = f"{what}: {told}"
        raise Problem(msg) from error
