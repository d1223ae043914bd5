"""Leaving a ring is shielded from anyio's cancel scopes, and has its own deadline."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from batchqueue_async.ring import (
    Disruptor,
    InvalidArgument,
    RingBuffer,
    SyncRing,
    WorkerPool,
)
from tests.ring.events import Event, fill, small, turns


async def test_a_scope_does_not_cut_leaving_off() -> None:
    handled: list[int] = []

    async def slowly(event: Event, sequence: int, end_of_batch: bool) -> None:
        await asyncio.sleep(0.001)
        handled.append(sequence)

    for scope in (anyio.move_on_after(0.002), anyio.CancelScope()):
        handled.clear()
        disruptor = small(16)
        disruptor.handle_events_with(slowly)
        if math.isinf(scope.deadline):
            scope.cancel()
        with scope:
            async with disruptor as ring:
                assert all(ring.try_publish_event(fill, n) for n in range(10))
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert handled == list(range(10))


async def test_a_worker_pool_is_left_in_a_cancelled_scope() -> None:
    handled: list[object] = []

    async def slowly(event: Event, sequence: int, end_of_batch: bool) -> None:
        await asyncio.sleep(0.001)
        handled.append(event.value)

    ring = RingBuffer(Event, 16)
    with anyio.CancelScope() as scope:
        async with WorkerPool(ring, slowly):
            assert all(ring.try_publish_event(fill, n) for n in range(10))
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert handled == list(range(10))


async def test_a_native_cancellation_still_does() -> None:
    gate = asyncio.Event()

    async def wait(event: Event, sequence: int, end_of_batch: bool) -> None:
        await gate.wait()

    disruptor = small(4)
    disruptor.handle_events_with(wait)

    async def leave() -> None:
        async with disruptor as ring:
            await ring.publish_event(fill, 1)

    leaving = asyncio.create_task(leave())
    await turns(20)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    gate.set()
    await disruptor.shutdown()


async def test_its_own_deadline_holds() -> None:
    async def hang(event: Event, sequence: int, end_of_batch: bool) -> None:
        await asyncio.Event().wait()

    disruptor = Disruptor(Event, 4, shutdown_timeout=0.01)
    disruptor.handle_events_with(hang)

    async def leave() -> None:
        async with disruptor as ring:
            await ring.publish_event(fill, 1)

    with pytest.raises(TimeoutError, match="1 events"):
        await leave()


WRONG: list[tuple[Any, type[Exception]]] = [
    ("30", TypeError),
    (math.nan, InvalidArgument),
    (-1, InvalidArgument),
    (math.inf, InvalidArgument),
]


@pytest.mark.parametrize("wrong, error", WRONG)
async def test_a_timeout_is_checked_before_anything_is_closed(
    wrong: float, error: type[Exception]
) -> None:
    async def nothing(event: Event, sequence: int, end_of_batch: bool) -> None: ...

    with pytest.raises(error, match="shutdown_timeout"):
        Disruptor(Event, 4, shutdown_timeout=wrong)
    ring = RingBuffer(Event, 4)
    with pytest.raises(error, match="shutdown_timeout"):
        WorkerPool(ring, nothing, shutdown_timeout=wrong)
    disruptor = small(4)
    disruptor.handle_events_with(nothing)
    async with disruptor as ring:
        bridge = SyncRing(ring)
        with pytest.raises(error, match="timeout"):
            await disruptor.shutdown(wrong)
        for verb in (
            lambda: bridge.publish_event(fill, 1, timeout=wrong),
            lambda: bridge.publish_events(fill, [1], timeout=wrong),
        ):
            with pytest.raises(error, match="timeout"):
                await asyncio.to_thread(verb)
        assert ring.try_publish_event(fill, 1)
