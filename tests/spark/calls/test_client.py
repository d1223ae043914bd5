"""One client for all calls of a process, opened when needed, closed at the end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from batchqueue_async import Retry
from tests.spark.calls.served import batch_of, in_batches, process, rows_of


class Service:
    """Clients of it know when they were opened and closed, and by which task."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = [*errors]
        self.opened = self.closed = 0
        self.tasks: list[object] = []
        self.used: list[int] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        self.tasks.append(asyncio.current_task())
        await asyncio.sleep(1)
        if self._errors:
            raise self._errors.pop(0)
        self.opened += 1
        yield self.opened
        self.tasks.append(asyncio.current_task())
        self.closed += 1

    async def call(self, client: int, batch: list[dict[str, Any]]) -> list[Any]:
        self.used.append(client)
        await asyncio.sleep(1)
        return [(item["id"],) for item in batch]


async def test_one_client_serves_all_calls_from_task_to_task() -> None:
    service = Service()
    async with process(service.call, open=service.open, max_batch=1) as running:
        await running.task(in_batches(5, 5))
        await running.task(in_batches(3, 3))
        assert (service.opened, service.closed) == (1, 0)

    assert service.used == [1] * 8
    assert service.closed == 1
    # As cancel scopes want it.
    assert service.tasks[0] is service.tasks[1]


async def test_without_calls_no_client_is_opened() -> None:
    service = Service()

    await rows_of(service.call, [], open=service.open)

    assert service.opened == 0


async def test_an_error_of_opening_is_the_call_s_and_opening_is_tried_again() -> None:
    service = Service(OSError("refused"))
    retry = Retry(attempts=2, wait_initial=0.0)

    rows = await rows_of(
        service.call, in_batches(3, 3), max_batch=1, open=service.open, retry=retry
    )

    assert len(rows) == 3
    assert (service.opened, service.closed) == (1, 1)
    with pytest.raises(OSError, match="refused"):
        await rows_of(
            service.call, [batch_of([1])], open=Service(OSError("refused")).open
        )


async def test_a_client_that_is_no_context_manager_is_refused() -> None:
    service = Service()

    with pytest.raises(TypeError, match="open must return an async context manager"):
        await rows_of(service.call, [batch_of([1])], open=lambda: 5)


async def test_opening_is_not_on_the_call_s_time() -> None:
    service = Service()
    service_time = 1.5  # Opening and the call take a second each.

    rows = await rows_of(
        service.call, [batch_of([1])], open=service.open, timeout=service_time
    )

    assert rows == [{"y": 1}]


async def test_what_a_task_leaves_is_ended_before_the_client_is_closed() -> None:
    service = Service()
    ended: list[int] = []

    async def call(_: int, batch: list[Any]) -> list[Any]:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(service.closed)
        return batch

    async with process(call, open=service.open) as running:
        rows = running.rows([batch_of([1])])
        first = asyncio.ensure_future(anext(rows))
        await asyncio.sleep(5)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    assert ended == [0]
    assert service.closed == 1
