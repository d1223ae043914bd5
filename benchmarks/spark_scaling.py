"""One executor and two of a standalone cluster, with a sink that takes time."""

import statistics
from collections import defaultdict
from collections.abc import Mapping

from batchqueue_async.spark import to_batches, write_partitions
from benchmarks.spark_setup import OpenSlowQueue, frame_of, rate, save, session
from benchmarks.table import Column, Table
from benchmarks.turns import Measure
from tests.support.cluster import running_cluster

# Seconds that a sink on a network takes for a record batch of 1,000 rows.
SINK_TAKES = 0.02
BATCH_ROWS = "1000"
WAYS = ("write_partitions", 'format("batchqueue")')
TIMES = "2 beside 1"


def scaling(rounds: int, rows: int) -> Table:
    """Measure both in turns; each turn is a session of its own on the same cluster."""
    found: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    with running_cluster(workers=2, cores=1) as cluster:
        for _ in range(rounds):
            for executors in (1, 2):
                measured = _in_a_session(cluster.url, executors, rows)
                for way, value in measured.items():
                    found[way, executors].append(value)
    table = Table(
        "executors",
        "A sink that takes time, executors of a standalone cluster with one core each",
        [
            Column("way"),
            Column(TIMES, "times"),
            Column("1 executor, million rows/s", "millions"),
            Column("2 executors", "millions"),
        ],
    )
    for way in WAYS:
        one, two = (statistics.median(found[way, executors]) for executors in (1, 2))
        table.add(way, two / one, one, two)
    return table


def _in_a_session(master: str, executors: int, rows: int) -> dict[str, float]:
    with session(
        master,
        spark__cores__max=str(executors),
        spark__executor__memory="500m",
        # No task starts before all executors are there, and none waits for a certain
        # one: otherwise the first executor does all of so short a job.
        spark__scheduler__minRegisteredResourcesRatio="1.0",
        spark__scheduler__maxRegisteredResourcesWaitingTime="60s",
        spark__locality__wait="0s",
        spark__sql__execution__arrow__maxRecordsPerBatch=BATCH_ROWS,
    ) as spark:
        frame = frame_of(spark, rows, 4)
        queue = OpenSlowQueue(SINK_TAKES, max_batch=1)
        measures: Mapping[str, Measure] = {
            WAYS[0]: rate(
                rows, lambda: write_partitions(frame, queue, to_items=to_batches)
            ),
            # A call of its sink gets all that is waiting: 8 record batches and more.
            WAYS[1]: rate(rows, lambda: save(frame, delay=str(SINK_TAKES * 8))),
        }
        for measure in measures.values():
            measure()  # warms up
        return {way: measure() for way, measure in measures.items()}
