"""What the Spark part wants to reach, and which rows show it."""

from collections.abc import Callable, Iterable, Mapping

from benchmarks.goal import Goal, Tables, goals_table
from benchmarks.table import Table

RATE = "million rows/s"
SHARE = "of the same without"

ARROW = "arrow_batches"
PUSH_BATCHES = "push of record batches"
PUSH_TUPLES = "push of tuples"
FOREACH_BATCHES = "ForeachBatchSink of record batches"
FOREACH_TUPLES = "ForeachBatchSink of tuples"
BARE = "mapInArrow into an asyncio.Queue"
WRITE_PARTITIONS = "write_partitions of record batches"
BATCH_WRITE = 'write.format("batchqueue"), a sink that counts'
STREAM_WRITE = 'writeStream.format("batchqueue"), a sink that counts'


def _in(table: str, row: str, column: str) -> Callable[[Tables], float]:
    return lambda tables: tables[table].value(row, column)


def _share(table: str, row: str) -> Goal:
    what = f"{row}, of the same without a queue"
    return Goal(what, 0.8, "percent", _in(table, row, SHARE))


DRIVER = [
    Goal(f"{ARROW}, million rows/s", 1e6, "millions", _in("driver", ARROW, RATE)),
    _share("driver", PUSH_BATCHES),
    _share("driver", PUSH_TUPLES),
    _share("driver", FOREACH_BATCHES),
    _share("driver", FOREACH_TUPLES),
]

EXECUTORS = [
    _share("one machine", WRITE_PARTITIONS),
    Goal(
        f"{BATCH_WRITE}, million rows/s",
        1e6,
        "millions",
        _in("one machine", BATCH_WRITE, RATE),
    ),
    Goal(
        f"{STREAM_WRITE}, million rows/s",
        1e6,
        "millions",
        _in("one machine", STREAM_WRITE, RATE),
    ),
    Goal(
        "write_partitions, 2 executors beside 1",
        1.8,
        "times",
        _in("executors", "write_partitions", "2 beside 1"),
    ),
    Goal(
        'format("batchqueue"), 2 executors beside 1',
        1.8,
        "times",
        _in("executors", 'format("batchqueue")', "2 beside 1"),
    ),
]


def reached(goals: list[Goal], tables: Iterable[Table]) -> Table:
    """Compare, and say yes or NO."""
    named: Mapping[str, Table] = {table.key: table for table in tables}
    found = goals_table(goals, named)
    found.title = "Goals (all figures are of this run)"
    return found
