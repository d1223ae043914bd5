"""What leaves `publish_events` says in `published` how many events are in the ring."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from batchqueue_async.ring import RingBuffer, RingHalted, SyncRing
from tests.ring.events import Event, Recorder, fill, gated_ring, small, turns
from tests.support.interrupts import MOST, interrupted


class Refused(Exception):
    pass


class Frozen(Exception):
    __slots__ = ("value",)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


def published_of(error: BaseException | None) -> int:
    published = getattr(error, "published", None)
    assert isinstance(published, int)
    return published


def refusing(at: int, error: type[Exception] = Refused) -> Callable[..., None]:
    """Return a `fill` that raises at this item."""

    def fill_or_raise(event: Event, sequence: int, item: int) -> None:
        if item == at:
            raise error
        event.value = item

    return fill_or_raise


def failing(count: int) -> Iterator[int]:
    yield from range(count)
    raise Refused


async def test_a_cancelled_one() -> None:
    ring, gate = gated_ring(4)
    errors: list[BaseException] = []

    async def publish() -> None:
        try:
            await ring.publish_events(fill, range(10))
        except asyncio.CancelledError as error:
            errors.append(error)
            raise

    call = asyncio.create_task(publish())
    await turns()
    gate.value = 1
    await turns()
    call.cancel()
    await asyncio.wait({call})
    assert published_of(errors[0]) == ring.sequencer.published + 1 == 6


async def test_one_that_takes_too_long_says_so_in_the_cause() -> None:
    ring, _ = gated_ring(4)
    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(1.0):
            await ring.publish_events(fill, range(10))
    late = caught.value
    has_cause = sys.version_info >= (3, 11, 3)
    assert published_of(late.__cause__ if has_cause else late.__context__) == 4


async def test_one_that_a_shutdown_ends() -> None:
    disruptor, gate = small(4), asyncio.Event()
    handler = Recorder(gate=gate)
    disruptor.handle_events_with(handler)
    ring = await disruptor.start()
    call = asyncio.create_task(ring.publish_events(fill, range(10)))
    await turns()
    closing = asyncio.create_task(disruptor.shutdown())
    gate.set()
    await closing
    with pytest.raises(RingHalted) as halted:
        await call
    assert published_of(halted.value) == len(handler.values) == 4


@pytest.mark.parametrize("error", [Refused, Frozen])
@pytest.mark.parametrize("at", [0, 1, 3, 4, 5, 9])
async def test_a_fill_that_raises(at: int, error: type[Exception]) -> None:
    disruptor, handler = small(4), Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        with pytest.raises(error) as caught:
            await ring.publish_events(refusing(at, error), range(10))
    assert published_of(caught.value) == at
    assert handler.values == [*range(at)]


@pytest.mark.parametrize("count", [0, 3, 4, 5, 11])
async def test_an_iterable_that_raises(count: int) -> None:
    disruptor = small(4)
    disruptor.handle_events_with(Recorder())
    async with disruptor as ring:
        with pytest.raises(Refused) as caught:
            await ring.publish_events(fill, failing(count))
    assert published_of(caught.value) == count


@pytest.mark.real_time
@pytest.mark.parametrize("at", [0, 1, 5])
async def test_so_it_is_from_a_thread(at: int) -> None:
    disruptor, handler = small(4), Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        sync = SyncRing(ring)
        with pytest.raises(Refused) as caught:
            await asyncio.to_thread(sync.publish_events, refusing(at), range(10))
        assert published_of(caught.value) == at
        with pytest.raises(Refused) as caught:
            await asyncio.to_thread(sync.publish_events, fill, failing(at))
        assert published_of(caught.value) == at
    assert handler.values == [*range(at), *range(at)]


@pytest.mark.real_time
async def test_a_thread_whose_ring_is_halted_meanwhile() -> None:
    disruptor = small(4)
    disruptor.handle_events_with(Recorder(gate=asyncio.Event()))
    ring = await disruptor.start()
    sync = SyncRing(ring)
    call = asyncio.create_task(
        asyncio.to_thread(sync.publish_events, fill, itertools.count())
    )
    while not ring.sequencer.claims_waiting:  # noqa: ASYNC110 - of a thread
        await asyncio.sleep(0.001)
    ring.halt(ValueError())
    with pytest.raises(RingHalted) as halted:
        await call
    assert published_of(halted.value) == 4
    with suppress(TimeoutError):
        await disruptor.shutdown(0)


VERBS: dict[str, Callable[[RingBuffer[Event]], object]] = {
    "publish_event": lambda ring: ring.publish_event(fill, 0).send(None),
    "try_publish_event": lambda ring: ring.try_publish_event(fill, 0),
    "publish_events": lambda ring: ring.publish_events(fill, range(3)).send(None),
}


@pytest.mark.parametrize("verb", VERBS)
def test_one_that_a_signal_handler_strikes(verb: str) -> None:
    for step in range(1, MOST):
        ring, caught = RingBuffer(Event, 4), list[BaseException]()

        def publish() -> None:
            try:
                VERBS[verb](ring)  # noqa: B023
            except BaseException as error:
                caught.append(error)  # noqa: B023
                raise

        def run() -> None:
            with suppress(StopIteration):
                publish()

        was_struck = interrupted(step, run)
        sequencer = ring.sequencer
        assert sequencer.published == sequencer.claimed
        in_ring = sequencer.published + 1 - len(sequencer.abandoned)
        for error in caught:
            if hasattr(error, "published"):
                assert published_of(error) == in_ring
        if not was_struck:
            break
    else:
        pytest.fail("more points than expected")
