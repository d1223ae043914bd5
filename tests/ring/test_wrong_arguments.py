"""What a ring is given by mistake is refused where it is given, by its name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from batchqueue_async.ring import (
    BlockingWait,
    Disruptor,
    InvalidArgument,
    MultiProducerSequencer,
    Rewind,
    RingBuffer,
    RingError,
    RingHalted,
    Sequence,
    SingleProducerSequencer,
    SyncRing,
    WorkerPool,
    halt,
)
from tests.ring.events import Event, Recorder, fill, function, small


def generate(*_: object) -> Iterator[None]:
    yield


async def generate_later(*_: object) -> AsyncIterator[None]:
    yield


class Called:
    """Its call only makes a generator."""

    def __call__(self, *_: object) -> Iterator[None]:
        yield


def test_the_size_is_named_as_the_caller_names_it() -> None:
    with pytest.raises(InvalidArgument, match=r"^size must be a power of two, got 6$"):
        Disruptor(Event, 6)
    wrong: Any = "8"
    told = r"^size must be a power of two, got '8'$"
    with pytest.raises(InvalidArgument, match=told):
        Disruptor(Event, wrong)


@pytest.mark.parametrize("wrong", [BlockingWait, 5, "wait"])
@pytest.mark.parametrize("kind", [MultiProducerSequencer, SingleProducerSequencer])
def test_a_sequencers_wait_strategy_is_one(kind: Any, wrong: object) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match=r"^wait must be a wait strategy, as in "):
        kind(8, wrong)


def test_a_factory_that_makes_coroutines_is_refused() -> None:
    """Their body would never run, and each slot would be one of them."""

    async def make() -> Event:
        return Event()

    with pytest.raises(InvalidArgument, match=r"^factory must be a plain function"):
        RingBuffer(make, 4)
    with pytest.raises(InvalidArgument, match=r"^factory must be a plain function"):
        Disruptor(lambda: make(), 4)  # noqa: PLW0108 - only what it makes shows it


@pytest.mark.parametrize("wrong", [3, Rewind, "three", True])
def test_a_rewind_is_one(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"^rewind must be a Rewind, as in Rewind\("):
        small().handle_events_with(Recorder(), rewind=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, 5, "halt", Recorder, RingError, lambda _: 0])
def test_a_pools_exception_handler_can_be_called_with_an_error(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^on_error must be callable with"):
        WorkerPool(RingBuffer(Event, 4), Recorder(), on_error=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"^on_error must be callable with"):
        small().handle_exceptions_with(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [generate, generate_later, Called()])
def test_an_exception_handler_is_no_generator(wrong: object) -> None:
    """Nobody would be told of any error."""
    with pytest.raises(InvalidArgument, match=r"^on_error must be no generator"):
        small().handle_exceptions_with(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"^on_error must be no generator"):
        WorkerPool(RingBuffer(Event, 4), Recorder(), on_error=wrong)  # type: ignore[arg-type]


def test_exception_handlers_are_set_for_all_or_for_none() -> None:
    seen, told = function("seen"), []
    disruptor = small()
    disruptor.handle_events_with(seen)
    with pytest.raises(InvalidArgument, match="is no handler of this ring"):
        disruptor.handle_exceptions_with(lambda *error: told.append(error), seen, print)
    disruptor.handle_exceptions_with(halt)
    assert disruptor._consumers.find(seen)[1].on_error is halt


@pytest.mark.parametrize("wrong", [None, 5, "ring", RingBuffer])
def test_a_pool_needs_a_ring(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"^ring must be a RingBuffer"):
        WorkerPool(wrong, Recorder())  # type: ignore[arg-type]


def test_a_pool_needs_a_ring_and_no_disruptor() -> None:
    wrong: Any = small()
    with pytest.raises(TypeError, match=r"^ring must be a RingBuffer, as `async with"):
        WorkerPool(wrong, Recorder())
    wrong = Sequence()
    with pytest.raises(TypeError, match=r"^barrier must be a SequenceBarrier"):
        WorkerPool(RingBuffer(Event, 4), Recorder(), barrier=wrong)


def test_a_pool_waits_for_what_its_own_ring_publishes() -> None:
    """By another ring's barrier it was called with slots that nobody had filled."""
    ring, other = RingBuffer(Event, 4), RingBuffer(Event, 4)
    with pytest.raises(InvalidArgument, match=r"^barrier must be one of the pool's"):
        WorkerPool(ring, Recorder(), barrier=other.new_barrier())
    WorkerPool(ring, Recorder(), barrier=ring.new_barrier())


@pytest.mark.parametrize("wrong", [None, 5, Recorder()])
def test_a_group_is_joined_with_a_group(wrong: object) -> None:
    group = small().handle_events_with(Recorder())
    with pytest.raises(TypeError, match=r"^other must be a group"):
        group.and_(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, "five", 1.5, True])
def test_a_sequence_is_a_number(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"^value must be an int, got"):
        Sequence(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"^value must be >= -1, got -2$"):
        Sequence(-2)


def test_producers_wait_for_sequences_alone() -> None:
    """Not for a number: the ring would be of no use to anybody from then on."""
    ring = RingBuffer(Event, 4)
    wrong: Any = 5
    with pytest.raises(TypeError, match=r"^sequences must be of Sequence alone, got 5"):
        ring.add_gating_sequences(wrong)
    with pytest.raises(TypeError, match=r"^sequences must be of Sequence alone, got 5"):
        ring.new_barrier(wrong)
    assert ring.try_publish_event(fill, 1)


@pytest.mark.parametrize(
    "hook, told",
    [
        ("on_start", "no argument"),
        ("on_shutdown", "no argument"),
        ("on_batch_start", r"\(size\)"),
        ("on_timeout", r"\(sequence\)"),
        ("set_sequence_callback", r"\(sequence\)"),
    ],
)
def test_a_hook_of_a_wrong_form_is_refused(hook: str, told: str) -> None:
    handler: Any = Recorder()
    setattr(handler, hook, lambda one, two: (one, two))
    rule = rf"^{hook} of a handler must be callable with {told}, got a Recorder$"
    with pytest.raises(InvalidArgument, match=rule):
        small().handle_events_with(handler)
    setattr(handler, hook, generate)
    with pytest.raises(InvalidArgument, match=rf"^{hook} of a handler must not be a"):
        small().handle_events_with(handler)


def test_a_handler_whose_call_makes_a_generator_is_none() -> None:
    with pytest.raises(InvalidArgument, match=r"^a handler must not be a generator"):
        small().handle_events_with(Called())


@pytest.mark.parametrize("made", [generate, generate_later])
async def test_what_a_handler_or_hook_has_only_made_is_told_as_an_error(
    made: Callable[..., object],
) -> None:
    """Nobody runs a generator: the event would count as passed, without a word."""
    errors: list[tuple[str, int]] = []

    class Batches:
        def on_batch(self, events: list[Event], first_sequence: int) -> object:
            return made()

    class Hooks(Recorder):
        def on_start(self) -> Any:  # noqa: ANN401 - a generator
            return made()

    disruptor = small()
    disruptor.handle_events_with(lambda *_: made(), Batches(), Hooks())
    disruptor.handle_exceptions_with(
        lambda error, sequence, event: errors.append((str(error), sequence))
    )
    async with disruptor as ring:
        await ring.publish_event(fill, 1)

    assert sorted(sequence for _, sequence in errors) == [-1, 0, 0]
    rule = "a handler must not be a generator function, it returned "
    assert all(text.startswith(rule) for text, _ in errors)


@pytest.mark.real_time
async def test_a_sync_ring_is_made_on_its_rings_loop() -> None:
    """On another one, as of a thread's own, it would publish there."""
    recorder = Recorder()
    disruptor = small()
    disruptor.handle_events_with(recorder)

    async def elsewhere() -> None:
        with pytest.raises(RingError, match="must be made on its ring's own loop"):
            SyncRing(disruptor.ring)

    async with disruptor as ring:
        await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
        assert await asyncio.to_thread(SyncRing(ring).publish_event, fill, 1)
    assert recorder.values == [1]


async def test_a_hook_that_fails_is_told_as_a_hook(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not as the event before it, which was handled, or as event -1."""

    class Failing(Recorder):
        def on_start(self) -> None:
            raise ValueError("start")  # noqa: EM101

    disruptor = small()
    disruptor.handle_events_with(Failing("journal"))
    with caplog.at_level(logging.ERROR):
        async with disruptor as ring:
            await ring.publish_event(fill, 1)
    assert caplog.messages == ["a hook failed before event 0"]

    caplog.clear()
    disruptor = small()
    disruptor.handle_events_with(Failing("journal"))
    disruptor.handle_exceptions_with(halt)
    told = r"^the ring was halted in a hook of journal$"
    with caplog.at_level(logging.CRITICAL), pytest.raises(RingHalted, match=told):
        async with disruptor:
            pass
    assert caplog.messages == ["a hook halts the ring before event 0"]
