"""Sums by key in each task and after a shuffle, with a queue and written by hand."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd
import pyarrow as pa

from batchqueue_async import BatchQueueConfig, LoopThread, Merging, SyncBatchQueue
from batchqueue_async.spark import Emit, map_partitions_with_queue, to_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "shop STRING, euros BIGINT"
COLUMNS = ["shop", "euros"]

Sale: TypeAlias = tuple[str, int]
Stage: TypeAlias = "Callable[[DataFrame], DataFrame]"

# Seconds, longer than any task, so that each hands on at its end only.
_AT_THE_END = 1e9


def queue_of_rows(sales: "DataFrame") -> "DataFrame":
    """A tuple for each row, merged one by one."""
    return _twice(sales, lambda df: map_partitions_with_queue(df, _open_rows, SCHEMA))


def by_dict(sales: "DataFrame") -> "DataFrame":
    """The same by hand."""
    return _twice(sales, lambda df: df.mapInArrow(_sums_by_dict, SCHEMA))


def queue_of_batches(sales: "DataFrame") -> "DataFrame":
    """Each record batch summed by pandas, in a handler."""
    return _twice(
        sales,
        lambda df: map_partitions_with_queue(
            df, _open_batches, SCHEMA, to_items=to_batches
        ),
    )


def by_pandas(sales: "DataFrame") -> "DataFrame":
    """The same by hand."""
    return _twice(sales, lambda df: df.mapInPandas(_sums_by_pandas, SCHEMA))


def applied_in_pandas(sales: "DataFrame") -> "DataFrame":
    """A function for each key, which gets all of its rows."""
    return sales.groupBy("shop").applyInPandas(_summed, SCHEMA)


def of_spark(sales: "DataFrame") -> "DataFrame":
    """What Spark does without Python."""
    return sales.groupBy("shop").sum("euros").toDF(*COLUMNS)


def _twice(sales: "DataFrame", stage: Stage) -> "DataFrame":
    return stage(stage(sales).repartition("shop"))


def _open_rows(loop_thread: LoopThread, emit: Emit) -> SyncBatchQueue[Sale]:
    handler = Merging(
        key=_shop, merge=_added, then=emit.many, every=_AT_THE_END, at_most=None
    )
    return loop_thread.open("sales", handlers={tuple: handler})


def _shop(sale: Sale) -> str:
    return sale[0]


def _added(one: Sale, other: Sale) -> Sale:
    return one[0], one[1] + other[1]


def _sums_by_dict(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    sums: Counter[str] = Counter()
    for batch in batches:
        shops, euros = (column.to_pylist() for column in batch.columns)
        for shop, amount in zip(shops, euros, strict=True):
            sums[shop] += amount
    yield pa.RecordBatch.from_arrays([[*sums], [*sums.values()]], names=COLUMNS)


class _PandasSums:
    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._parts: list[pd.DataFrame] = []

    async def consume(self, batches: list[pa.RecordBatch]) -> None:
        self._parts += (_summed(batch.to_pandas()) for batch in batches)

    async def on_flush(self) -> None:
        if self._parts:
            total = _summed(pd.concat(self._parts))
            await self._emit.many(total.itertuples(index=False, name=None))


def _open_batches(loop_thread: LoopThread, emit: Emit) -> SyncBatchQueue[Any]:
    config = BatchQueueConfig[Any](consumer=_PandasSums(emit), buffer_size=8)
    return loop_thread.open("sales", config)


def _sums_by_pandas(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    parts = [_summed(frame) for frame in frames]
    if parts:
        yield _summed(pd.concat(parts))


def _summed(sales: pd.DataFrame) -> pd.DataFrame:
    return sales.groupby("shop", as_index=False, sort=False).sum()
