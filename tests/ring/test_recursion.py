"""A stack that ends anywhere inside of a verb leaves no gap, and nobody asleep.

Where Python's recursion limit is reached no call succeeds, those that would clean up
included: whoever publishes next, or the shutdown, does it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from batchqueue_async.ring import RingBuffer, SyncRing
from batchqueue_async.testing import settle
from tests.bridge.test_recursion import at_depth, depth
from tests.ring.events import Event, Recorder, fill, small

DEEPEST = 40
"""More frames than one publication and its wake-up take."""


def step(ring: RingBuffer[Event], values: list[int]) -> None:
    with suppress(StopIteration):
        ring.publish_events(fill, values).send(None)


def in_a_coroutine(ring: RingBuffer[Event]) -> None:
    with suppress(StopIteration):
        ring.publish_event(fill, 0).send(None)


VERBS: dict[str, Callable[[RingBuffer[Event]], object]] = {
    "publish_event": in_a_coroutine,
    "try_publish_event": lambda ring: ring.try_publish_event(fill, 0),
    "publish_events": lambda ring: step(ring, [0, 0]),
}


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("is_idle", [False, True], ids=["busy", "idle"])
@pytest.mark.parametrize("verb", VERBS)
async def test_later_events_are_handled(verb: str, *, is_idle: bool) -> None:
    raised = 0
    for short_of in range(DEEPEST):
        disruptor, gate = small(4), asyncio.Event()
        handler = Recorder(gate=gate)
        disruptor.handle_events_with(handler)
        async with disruptor as ring:
            if not is_idle:
                await ring.publish_event(fill, "early")
            await settle()
            room = sys.getrecursionlimit() - depth() - short_of
            try:
                at_depth(room, lambda: VERBS[verb](ring))
            except RecursionError:
                raised += 1
            gate.set()
            await ring.publish_event(fill, "later")
            await settle()
            assert handler.values[-1] == "later"
            assert ring.sequencer.published == ring.sequencer.claimed
    assert raised


async def wait_for_room(ring: RingBuffer[Event]) -> None:
    await ring.publish_event(fill, "later")


async def try_again(ring: RingBuffer[Event]) -> None:
    while not ring.try_publish_event(fill, "later"):
        await settle()


async def wait_on_a_thread(ring: RingBuffer[Event]) -> None:
    sync = SyncRing(ring)
    assert await asyncio.to_thread(
        lambda: sync.publish_event(fill, "later", timeout=20)
    )


@pytest.mark.parametrize(
    "later",
    [
        wait_for_room,
        try_again,
        pytest.param(wait_on_a_thread, marks=pytest.mark.real_time),
    ],
)
async def test_a_ring_that_such_publications_have_filled_is_emptied(
    later: Callable[[RingBuffer[Event]], Awaitable[None]],
) -> None:
    """Nobody can publish next, before there is room."""
    filled = 0
    for short_of in range(DEEPEST):
        disruptor, handler = small(4), Recorder()
        disruptor.handle_events_with(handler)
        async with disruptor as ring:
            await settle()
            room = sys.getrecursionlimit() - depth() - short_of
            for _ in range(5):
                with suppress(RecursionError):
                    at_depth(room, lambda: ring.try_publish_event(fill, 0))
                await settle()
            filled += not ring.remaining_capacity()
            async with asyncio.timeout(10):
                await later(ring)
            await settle()
            assert handler.values[-1] == "later"
    assert filled


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_a_shutdown_does_it_if_nobody_publishes() -> None:
    for short_of in range(DEEPEST):
        disruptor, handler = small(4), Recorder()
        disruptor.handle_events_with(handler)
        async with disruptor as ring:
            await settle()
            room = sys.getrecursionlimit() - depth() - short_of
            with suppress(RecursionError):
                at_depth(room, lambda: ring.try_publish_event(fill, 0))
        assert ring.sequencer.published == ring.sequencer.claimed
        assert handler.values in ([], [0])


@pytest.mark.real_time
@pytest.mark.parametrize("is_many", [False, True])
async def test_so_it_is_on_threads(*, is_many: bool) -> None:
    """A RecursionError is a RuntimeError, which a closed loop raises, too."""
    for short_of in range(DEEPEST):
        disruptor, handler = small(4), Recorder()
        disruptor.handle_events_with(handler)
        async with disruptor as ring:
            sync = SyncRing(ring)

            def publish() -> None:
                if is_many:
                    sync.publish_events(fill, [0, 0])  # noqa: B023
                else:
                    sync.publish_event(fill, 0)  # noqa: B023

            def work() -> bool:
                room = sys.getrecursionlimit() - depth() - short_of  # noqa: B023
                with suppress(RecursionError):
                    at_depth(room, publish)
                return sync.publish_event(fill, "later", timeout=20)  # noqa: B023

            assert await asyncio.to_thread(work)
        assert handler.values[-1] == "later"
        assert ring.sequencer.published == ring.sequencer.claimed
