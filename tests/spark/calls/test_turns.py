"""How soon a call follows the one that ended, in turns of the loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.spark.calls.served import in_batches, rows_of

Batch = list[dict[str, Any]]


class Turns:
    """Counts the loop's turns; and those from a call's end to the next one's begin."""

    def __init__(self) -> None:
        self.between: list[int] = []
        self._now = 0
        self._ended: int | None = None

    @contextlib.asynccontextmanager
    async def counting(self) -> AsyncIterator[None]:
        """Count."""
        counter = asyncio.create_task(self._count())
        yield
        counter.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await counter

    async def call(self, batch: Batch) -> Batch:
        """Be called by one slot."""
        if self._ended is not None:
            self.between.append(self._now - self._ended)
        await asyncio.sleep(0)
        self._ended = self._now
        return [{"y": item["id"]} for item in batch]

    async def _count(self) -> None:
        while True:
            self._now += 1
            await asyncio.sleep(0)


@pytest.mark.parametrize("ordered", [True, False])
async def test_the_next_call_begins_where_one_has_ended(*, ordered: bool) -> None:
    turns = Turns()

    async with turns.counting():
        await rows_of(
            turns.call, in_batches(50, 50), max_batch=1, in_flight=1, ordered=ordered
        )

    assert {*turns.between} == {1}
