"""The library's PostgreSQL sinks, with points at which the harness can stop them."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from batchqueue_async.sinks.staged import Attempt, Token
from tests.spark.chaos.halts import async_halt


class HaltingEpochSink(PostgresEpochSink[tuple[int]]):
    """Runs in the driver's process."""

    async def begin(self, epoch: Epoch) -> None:
        await async_halt("before begin")
        await super().begin(epoch)

    async def write(self, epoch: Epoch, items: list[tuple[int]]) -> None:
        await async_halt("before write")
        half = len(items) // 2
        await super().write(epoch, items[:half])
        await async_halt("while writing")
        await super().write(epoch, items[half:])

    async def commit(self, epoch: Epoch) -> None:
        await async_halt("before commit")
        await super().commit(epoch)
        await async_halt("after commit")


class HaltingStagedSink(PostgresStagedSink):
    """Stages on executors; publishes in a Python process beside the driver."""

    async def stage(self, attempt: Attempt, items: list[pa.RecordBatch], /) -> None:
        await async_halt("before staging")
        first, *rest = items
        half = first.num_rows // 2
        await super().stage(attempt, [first[:half]])
        await async_halt("while staging")
        await super().stage(attempt, [first[half:], *rest])

    async def seal(self, attempt: Attempt, /) -> Token:
        token = await super().seal(attempt)
        await async_halt("staged")
        return token

    async def publish(self, epoch: Epoch, tokens: Sequence[Token], /) -> bool:
        await async_halt("before publishing")
        is_new = await super().publish(epoch, tokens)
        await async_halt("after publishing")
        return is_new


def staged(options: Mapping[str, str]) -> HaltingStagedSink:
    """What the data source's option `sink` names."""
    return HaltingStagedSink.from_options(options)
