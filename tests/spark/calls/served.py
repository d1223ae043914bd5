"""Drives the calls of a task as Spark's thread does, but on the test's own loop."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
)
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from batchqueue_async import BatchQueue, Retry
from batchqueue_async.spark._calls.declared import declare
from batchqueue_async.spark._calls.options import CallOptions
from batchqueue_async.spark._calls.pipeline import CallPipeline, Step
from batchqueue_async.spark._calls.task import Caller
from batchqueue_async.spark.items import to_dicts

INPUT = StructType([StructField("id", LongType())])
RESULT = StructType([StructField("y", LongType())])


def batch_of(ids: Iterable[int]) -> pa.RecordBatch:
    """As Spark delivers it."""
    return pa.record_batch({"id": pa.array([*ids], pa.int64())})


def in_batches(rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Record batches with the numbers from 0 on, the last one smaller."""
    for start in range(0, rows, size):
        yield batch_of(range(start, min(rows, start + size)))


def options(
    call: Callable[..., Awaitable[Any]],
    **others: Any,  # noqa: ANN401 - any option
) -> CallOptions:
    """As `map_async` makes them."""
    defaults: dict[str, Any] = {
        "key": "key",
        "open": None,
        "to_items": to_dicts,
        "max_batch": 100,
        "linger": 0.0,
        "in_flight": 8,
        "ordered": True,
        "reorder_buffer": None,
        "timeout": None,
        "retry": Retry(),
        "rate": None,
        "flat": False,
        "on_error": "raise",
    }
    return CallOptions(call=call, **{**defaults, **others})


async def advanced(
    pipeline: CallPipeline,
    batch: pa.RecordBatch | None = None,
    *,
    is_last: bool = False,
) -> Step:
    """Advance as another thread does it: in a task, so that the loop has its turn."""
    return await asyncio.create_task(pipeline.advance(batch, is_last=is_last))


class Process:
    """What a worker process keeps; runs tasks, one after the other."""

    def __init__(self, caller: Caller, queue: BatchQueue[int]) -> None:
        self.caller = caller
        self.queue = queue
        self.pipeline: CallPipeline | None = None

    async def task(self, batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
        """Run a task; returns its rows."""
        return [row async for rows in self.rows(batches) for row in rows.to_pylist()]

    async def rows(
        self, batches: Iterable[pa.RecordBatch]
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Run a task; returns its record batches as soon as it yields them."""
        self.pipeline = pipeline = await self.caller.begin(self.queue)
        source = iter(batches)
        step = await advanced(pipeline)
        try:
            while True:
                for rows in step.rows:
                    yield rows
                if step.is_done:
                    return
                if step.wants_more:
                    batch = next(source, None)
                    step = await advanced(pipeline, batch, is_last=batch is None)
                else:
                    step = await advanced(pipeline)
        finally:
            await pipeline.abandon()


@asynccontextmanager
async def process(
    call: Callable[..., Awaitable[Any]],
    schema: StructType = RESULT,
    *,
    given: StructType = INPUT,
    **others: Any,  # noqa: ANN401 - any option
) -> AsyncIterator[Process]:
    """A worker process for these calls."""
    made = options(call, **others)
    declared = declare(schema, given, made.on_error, "error")
    caller = Caller(made, declared)
    async with BatchQueue[int]("calls", caller.config) as queue:
        for item_type, slot in caller.handlers.items():
            queue.add_handler(item_type, slot)
        try:
            yield Process(caller, queue)
        finally:
            await queue.shutdown(0)
            await caller.close()


async def rows_of(
    call: Callable[..., Awaitable[Any]],
    batches: Iterable[pa.RecordBatch],
    schema: StructType = RESULT,
    **others: Any,  # noqa: ANN401 - any option
) -> list[dict[str, Any]]:
    """Run one task in a process of its own."""
    async with process(call, schema, **others) as running:
        return await running.task(batches)


async def tenfold(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A call that takes a second."""
    await asyncio.sleep(1)
    return [{"y": item["id"] * 10} for item in batch]
