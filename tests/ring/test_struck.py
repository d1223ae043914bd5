"""A signal handler raises anywhere in a ring's code, and its loop runs on: a notebook.

What strikes is an exception of a signal handler's: Ctrl-C where no runner turns it into
a cancellation, a SIGALRM handler that raises. Nobody waits for ever then, and no
sequence is left claimed by nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from batchqueue_async._loop_time import Sleeper
from batchqueue_async.ring import (
    Disruptor,
    ProducerType,
    RingBuffer,
    RingError,
    RingHalted,
    Sequence,
    SyncRing,
)
from batchqueue_async.testing import settle
from tests.ring.events import Event, Recorder, fill, small
from tests.support.interrupts import MOST, Interrupted, interrupted


def struck(step: int, coroutine: Coroutine[Any, Any, object]) -> bool:
    """Run it to its next wait, and strike there; it does not run on afterwards."""

    def send() -> None:
        with suppress(StopIteration):
            coroutine.send(None)

    was_struck = interrupted(step, send)
    # The strike may have come before its first step.
    coroutine.close()
    return was_struck


async def trying(ring: RingBuffer[Event]) -> None:
    ring.try_publish_event(fill, 0)


VERBS: dict[str, Callable[[RingBuffer[Event]], Coroutine[Any, Any, object]]] = {
    "publish_event": lambda ring: ring.publish_event(fill, 0),
    "try_publish_event": trying,
    "publish_events": lambda ring: ring.publish_events(fill, range(3)),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("is_idle", [False, True], ids=["started", "idle"])
async def test_a_publication_leaves_no_gap(
    verb: str, is_idle: bool, producer: ProducerType
) -> None:
    for step in range(1, MOST):
        disruptor, handler = small(4, producer=producer), Recorder()
        disruptor.handle_events_with(handler)
        async with disruptor as ring:
            if is_idle:
                await settle()
            was_struck = struck(step, VERBS[verb](ring))
            await ring.publish_event(fill, "later")
            await settle()
            assert handler.values[-1] == "later"
            assert ring.sequencer.published == ring.sequencer.claimed
        if not was_struck:
            break
    else:
        pytest.fail("more points than expected")


class Line:
    """A full ring, and producers that wait for room in it."""

    def __init__(self, producer: ProducerType) -> None:
        self.ring = RingBuffer(Event, 4, producer=producer)
        self.gate = Sequence()
        self.ring.add_gating_sequences(self.gate)
        self.ring.publish(0, self.ring.try_claim(4))
        self.tasks: list[asyncio.Task[Any]] = []

    async def wait(self, *counts: int) -> None:
        for count in counts:
            publishing = self.ring.publish_events(fill, range(count))
            self.tasks.append(asyncio.create_task(publishing))
        await settle()

    def make_room(self) -> None:
        self.gate.value = self.ring.sequencer.published

    async def check(self) -> None:
        """Let all go on: each gets its turn, and no sequence is nobody's."""
        for _ in range(20):
            await settle()
            self.make_room()
        assert all(task.done() for task in self.tasks), "somebody waits for ever"
        errors = {type(task.exception()) for task in self.tasks}
        assert errors <= {type(None), Interrupted}
        sequencer = self.ring.sequencer
        assert sequencer.published == sequencer.claimed == sequencer.settled
        assert not sequencer.claims_waiting
        assert self.ring.try_claim(4) == sequencer.claimed


async def test_room_is_given_to_all_who_wait(producer: ProducerType) -> None:
    for step in range(1, MOST):
        line = Line(producer)
        await line.wait(1, 2, 1, 3)
        was_struck = interrupted(step, line.make_room)
        await line.check()
        if not was_struck:
            break
    else:
        pytest.fail("more points than expected")


@pytest.mark.parametrize("others", [(), (1, 2)], ids=["alone", "with others"])
async def test_who_begins_to_wait_leaves_nothing_behind(
    others: tuple[int, ...], producer: ProducerType
) -> None:
    for step in range(1, MOST):
        line = Line(producer)
        await line.wait(*others)
        # If it is not struck it waits, and is closed then.
        was_struck = struck(step, line.ring.claim())
        await line.wait(*others)
        await line.check()
        if not was_struck:
            break
    else:
        pytest.fail("more points than expected")


@pytest.mark.parametrize("is_granted", [False, True])
async def test_who_gives_up_leaves_nothing_behind(
    is_granted: bool, producer: ProducerType
) -> None:
    # Into its two frames an error is thrown: no signal is handled as they are entered.
    for step in range(3, MOST):
        line = Line(producer)
        publishing = line.ring.publish_event(fill, 0)
        publishing.send(None)
        await line.wait(1, 2)
        if is_granted:
            line.make_room()
        was_struck = interrupted(step, publishing.close)
        await line.check()
        if not was_struck:
            break
    else:
        pytest.fail("more points than expected")


async def test_who_was_granted_room_leaves_nothing_behind(
    producer: ProducerType,
) -> None:
    for step in range(1, MOST):
        line = Line(producer)
        publishing = line.ring.publish_event(fill, 0)
        publishing.send(None)
        await line.wait(1, 2)
        line.make_room()
        was_struck = struck(step, publishing)
        await line.check()
        if not was_struck:
            break
    else:
        pytest.fail("more points than expected")


@pytest.mark.parametrize("is_abandoned", [False, True])
async def test_what_threads_have_filled_is_published(
    is_abandoned: bool, producer: ProducerType
) -> None:
    # Not at the callback's first instruction: what runs it is the loop.
    for step in range(2, MOST):
        line = Line(producer)
        ingress = SyncRing(line.ring)._ingress
        line.make_room()
        high = line.ring.try_claim(3)
        ingress._filled += [(4, 5, False), (6, high, is_abandoned)]
        await line.wait(2)
        was_struck = interrupted(step, ingress._on_loop)
        await line.check()
        assert not ingress._filled
        if not was_struck:
            break
    else:
        pytest.fail("more points than expected")


async def test_all_who_wait_are_told_of_the_end(producer: ProducerType) -> None:
    for step in range(1, MOST):
        line = Line(producer)
        await line.wait(1, 2, 1)
        was_struck = interrupted(step, line.ring.sequencer.close)
        line.ring.halt()
        await settle()
        assert all(task.done() for task in line.tasks)
        assert {type(task.exception()) for task in line.tasks} == {RingHalted}
        if not was_struck:
            break
    else:
        pytest.fail("more points than expected")


async def test_who_is_being_told_of_the_end_needs_no_second_one() -> None:
    # From its second point on: before that nobody is told yet.
    for step in range(2, MOST):
        line = Line(ProducerType.MULTI)
        await line.wait(1, 2, 1)
        sequencer = line.ring.sequencer
        sequencer.is_closed = True
        was_struck = interrupted(step, sequencer._queue.dismiss)
        await settle()
        assert all(task.done() for task in line.tasks)
        assert {type(task.exception()) for task in line.tasks} == {RingHalted}
        if not was_struck:
            break
    else:
        pytest.fail("more points than expected")


async def test_a_lost_call_back_does_not_keep_a_task_from_its_cancellation() -> None:
    """Struck as the loop begins to call it: asyncio has forgotten it then."""
    sleeper = Sleeper(asyncio.get_running_loop())

    async def sleep() -> None:
        await sleeper

    task = asyncio.create_task(sleep())
    await settle()
    sleeper.is_woken = True
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_shutdown_has_consumers_run_on_whose_wake_up_was_lost() -> None:
    disruptor, handler = small(4), Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        await settle()
        (barrier,) = ring.sequencer._barriers
        (asleep,) = barrier._sleepers
        asleep.signal.is_woken = True
        await ring.publish_event(fill, 1)
        await settle()
        assert not handler.seen
    assert handler.values == [1]


@pytest.mark.parametrize("is_late", [False, True], ids=["granted", "dismissed"])
async def test_a_shutdown_has_producers_run_on_whose_wake_up_was_lost(
    is_late: bool, producer: ProducerType
) -> None:
    """One that was granted room would never publish, and all would wait for it."""
    gate = asyncio.Event()
    disruptor, handler = small(4, producer=producer), Recorder(gate=gate)
    disruptor.handle_events_with(handler)
    ring = await disruptor.start()
    await ring.publish_events(fill, range(4))
    publishing = asyncio.create_task(ring.publish_event(fill, 4))
    await settle()
    (waiting,) = ring.sequencer._queue.waiting
    asleep = waiting.wake.__self__  # type: ignore[attr-defined]
    assert isinstance(asleep, Sleeper)
    # Whatever wakes it from here on is struck as the loop begins to call it.
    asleep.is_woken = True
    if is_late:
        ring.sequencer.close()
    gate.set()
    await settle()
    assert not publishing.done()
    await disruptor.shutdown(None)
    assert handler.values == [*range(4 if is_late else 5)]
    await settle()
    assert isinstance(publishing.exception(), RingHalted if is_late else type(None))


@pytest.mark.real_time
async def test_a_shutdown_publishes_what_threads_have_filled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop's callback was struck as it began, and no thread wakes it again."""
    disruptor, handler = small(4), Recorder()
    disruptor.handle_events_with(handler)
    sync = SyncRing(await disruptor.start())
    with monkeypatch.context() as patched:
        patched.setattr(sync._ingress, "_on_loop", lambda: None)
        await asyncio.to_thread(sync.publish_event, fill, 1)
        await asyncio.to_thread(sync.publish_event, fill, 2)
    assert not handler.values
    await disruptor.shutdown(None)
    assert handler.values == [1, 2]


async def test_a_shutdown_ends_though_a_consumers_end_was_struck() -> None:
    """As its callback began; the shutdown looked again and again, with a whole core."""
    disruptor, handler = small(4), Recorder()
    disruptor.handle_events_with(handler)
    ring = await disruptor.start()
    await ring.publish_event(fill, 1)
    await settle()
    tasks = disruptor._consumers.tasks
    (consumer,) = tasks._consumers
    consumer.remove_done_callback(tasks._ended)
    await disruptor.shutdown(None)
    assert not tasks._consumers
    assert handler.values == [1]


async def test_a_shutdown_that_was_struck_is_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disruptor, handler = small(4), Recorder()
    disruptor.handle_events_with(handler)
    ring = await disruptor.start()
    await ring.publish_event(fill, 1)

    def strike() -> None:
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(ring.sequencer, "call_back_again", strike)
        with pytest.raises(Interrupted):
            await disruptor.shutdown(5)
    await disruptor.shutdown(5)
    assert handler.values == [1]
    assert handler.log == ["start", "shutdown"]


class Told:
    """What consumers were given, and what their exception handler was told of."""

    def __init__(self, strikes_at: int) -> None:
        self.disruptor: Disruptor[Event] = small(8)
        self.strikes_at = strikes_at
        self.handled: list[Any] = []
        self.told: list[Any] = []
        self.later: list[Any] = []
        self.told_later: list[Any] = []
        self.disruptor.handle_events_with(self.handle).then(self.handle_later)
        self.disruptor.handle_exceptions_with(self.tell(self.told), self.handle)
        told_later = self.tell(self.told_later)
        self.disruptor.handle_exceptions_with(told_later, self.handle_later)

    def tell(self, told: list[Any]) -> Callable[[Exception, int, Any], None]:
        return lambda error, sequence, event: told.append(event.value)

    async def handle(self, event: Event, sequence: int, end_of_batch: bool) -> None:
        if sequence == self.strikes_at:
            raise Interrupted
        self.handled.append(event.value)

    def handle_later(self, event: Event, sequence: int, end_of_batch: bool) -> None:
        self.later.append(event.value)


@pytest.mark.parametrize("strikes_at", range(5))
async def test_a_struck_consumer_tells_what_is_left(
    strikes_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What it had handled in the same batch is not told, and nobody else is silent."""
    told = Told(strikes_at)
    async with told.disruptor as ring:
        await ring.publish_events(fill, range(5))
        await settle()
        with pytest.raises(RingError):
            await ring.publish_event(fill, 5)
    assert told.handled == [*range(strikes_at)]
    assert told.told == [*range(strikes_at, 5)]
    assert told.later + told.told_later == [*range(5)]
    assert f"{5 - strikes_at} events are left" in caplog.text


def test_what_was_handled_before_its_loop_was_closed_is_not_told() -> None:
    handled, told = [], []

    async def handle(event: Event, sequence: int, end_of_batch: bool) -> None:
        if sequence == 2:
            await asyncio.get_running_loop().create_future()
        handled.append(event.value)

    disruptor = small(8)
    disruptor.handle_events_with(handle)
    disruptor.handle_exceptions_with(lambda *args: told.append(args[2].value))

    async def main() -> None:
        ring = await disruptor.start()
        await ring.publish_events(fill, range(5))
        await asyncio.sleep(0.01)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    assert handled == [0, 1]
    assert told == [2, 3, 4]
