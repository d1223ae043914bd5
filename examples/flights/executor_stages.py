"""The stages on Spark's executors: the same handlers, with Spark between them.

    rows ── L1 ── shuffle by key ── L2 ── `metrics`
    rows ── TopN ── shuffle by day ── TopN ── `top_delays`
    rows ── exporter ── `cancellations`

In the driver's pipeline a queue hands items to the next one. Here its handlers emit
rows, and Spark's shuffle brings those of a key together: the hop that the original
makes over gRPC, from one server to another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple
from functools import partial
from typing import TYPE_CHECKING, Any

from batchqueue_async import LoopThread, SyncBatchQueue
from batchqueue_async.spark import Emit, map_partitions_with_queue, to_tuples

from .events import Arrival, Cancellation, Departure
from .merging import merging
from .metrics import METRICS, Window, metrics_of
from .reading import events_of
from .schema import CANCELLATION_COLUMNS, METRIC_COLUMNS, TOP_COLUMNS
from .stages import (
    EXPORTER,
    L1,
    L2,
    TOPN,
    exporter_config,
    l1_config,
    l2_config,
    merging_of_l1,
    ranking,
    topn_config,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# The sink could not tell a repeated row from a new one, so it must get each key once:
# these stages emit at the end of their task alone. A task's share of the keys has to
# fit into memory for that; Spark's partitions make it small.
_AT_THE_END = 1e9
# How many rows are made at a time.
_SOME = 1_000

_TEXTS = {"metric", "key", "kind", "carrier", "origin", "dest"}
_METRICS = {metric.__name__: metric for metric in METRICS}
_DELAYED = {event.__name__: event for event in (Departure, Arrival)}


def merged_metrics(events: DataFrame) -> DataFrame:
    """Return the rows of `metrics`: L1 where the events are, L2 where the keys are."""
    schema = _schema(METRIC_COLUMNS)
    partial = map_partitions_with_queue(events, open_l1, schema, to_items=measurements)
    by_key = partial.repartition("metric", "key")
    return map_partitions_with_queue(by_key, open_l2, schema, to_items=windows)


def ranked_delays(events: DataFrame) -> DataFrame:
    """Return the rows of `top_delays`: the longest of each task, then of all tasks."""
    schema = _schema(TOP_COLUMNS)
    partial = map_partitions_with_queue(events, open_topn, schema, to_items=delays)
    by_day = partial.repartition("kind", "day")
    return map_partitions_with_queue(by_day, open_topn, schema, to_items=delays_again)


def cancellations(events: DataFrame) -> DataFrame:
    """Return the rows of `cancellations`."""
    schema = _schema(CANCELLATION_COLUMNS)
    return map_partitions_with_queue(events, open_exporter, schema, to_items=cancelled)


def open_l1(loop_thread: LoopThread, emit: Emit) -> SyncBatchQueue[Window]:
    """Open a task's L1; a window that it passes on twice is merged by L2."""
    return loop_thread.open(
        L1, l1_config(), merging_of_l1(_Rows(emit, _row_of).consume)
    )


def open_l2(loop_thread: LoopThread, emit: Emit) -> SyncBatchQueue[Window]:
    """Open a task's L2."""
    then = _Rows(emit, _row_of).consume
    handlers = {
        metric: merging(then, every=_AT_THE_END, at_most=None) for metric in METRICS
    }
    return loop_thread.open(L2, l2_config(), handlers)


def open_topn(
    loop_thread: LoopThread, emit: Emit
) -> SyncBatchQueue[Departure | Arrival]:
    """Open a task's TopN, which ranks what the task has."""
    rows = _Rows(emit, astuple)
    make = partial(ranking, rows, every=_AT_THE_END, by_epoch=True)
    # The handlers look at the loop's clock, so they are made on the loop.
    handlers = loop_thread.portal.call(make)
    return loop_thread.open(TOPN, topn_config(), handlers)


def open_exporter(loop_thread: LoopThread, emit: Emit) -> SyncBatchQueue[Cancellation]:
    """Open a task's exporter."""
    return loop_thread.open(EXPORTER, exporter_config(_Rows(emit, astuple)))


def measurements(batch: pa.RecordBatch) -> Iterator[Window]:
    """Return what the events of these rows add to each metric."""
    return metrics_of(events_of(batch))


def windows(batch: pa.RecordBatch) -> Iterator[Window]:
    """Return the windows that L1 has emitted as these rows."""
    return (_METRICS[metric](*values) for metric, *values in to_tuples(batch))


def delays(batch: pa.RecordBatch) -> Iterator[Departure | Arrival]:
    """Return the departures and arrivals of these rows."""
    events = events_of(batch)
    return (event for event in events if isinstance(event, Departure | Arrival))


def delays_again(batch: pa.RecordBatch) -> Iterator[Departure | Arrival]:
    """Return the events of rows that another TopN has ranked."""
    for kind, day, _, delay, hour, carrier, flight, origin, dest in to_tuples(batch):
        yield _DELAYED[kind](carrier, flight, origin, dest, day, hour, delay)


def cancelled(batch: pa.RecordBatch) -> Iterator[Cancellation]:
    """Return the cancellations of these rows."""
    return (event for event in events_of(batch) if isinstance(event, Cancellation))


class _Rows:
    """What handlers take for the next stage: emits what they hand to it.

    Args:
        emit: Hands rows to Spark.
        to_row: Makes a row of an item.
    """

    name = "Spark"

    def __init__(self, emit: Emit, to_row: Callable[[Any], tuple[Any, ...]]) -> None:
        self._emit = emit
        self._to_row = to_row

    async def consume(self, items: list[Any]) -> None:
        for start in range(0, len(items), _SOME):
            # Waits while Spark has enough.
            await self._emit.many(map(self._to_row, items[start : start + _SOME]))

    async def produce_many(self, items: list[Any]) -> int:
        await self.consume(items)
        return len(items)


def _row_of(window: Window) -> tuple[Any, ...]:
    return type(window).__name__, *astuple(window)


def _schema(columns: Iterable[str]) -> str:
    types = (f"{name} {'STRING' if name in _TEXTS else 'BIGINT'}" for name in columns)
    return ", ".join(types)
