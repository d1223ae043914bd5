"""Handlers that ask for their batch again."""

from __future__ import annotations

import asyncio
import math

import pytest

from batchqueue_async.ring import InvalidArgument, Rewind, RewindBatch, Sequence
from tests.ring.events import Event, Recorder, fill, small


class Rewinding(Recorder):
    """Raises `RewindBatch` at a sequence, so often."""

    def __init__(self, at: int, times: int) -> None:
        super().__init__("rewinding")
        self._at = at
        self._left = times

    def on_event(self, event: Event, sequence: int, end_of_batch: bool) -> None:
        super()._record(event, sequence, end_of_batch)
        if sequence == self._at and self._left:
            self._left -= 1
            raise RewindBatch


@pytest.mark.parametrize("at", [0, 2, 4])
@pytest.mark.parametrize("times", [1, 3])
async def test_a_batch_comes_again_from_its_first_event(at: int, times: int) -> None:
    disruptor = small(8)
    handler, after = Rewinding(at, times), Recorder()
    disruptor.handle_events_with(handler).then(after)
    async with disruptor as ring:
        await ring.publish_events(fill, range(5))

    assert handler.values == [*range(at + 1)] * times + [*range(5)]
    assert handler.sizes == [5] * (times + 1)
    assert after.values == [*range(5)], "what comes after sees each event once"
    assert disruptor.stats().consumers[0].failed == 0


async def test_only_the_batch_at_hand_is_rewound() -> None:
    disruptor = small(8)
    handler = Rewinding(4, 1)
    disruptor.handle_events_with(handler, max_batch=2)
    async with disruptor as ring:
        await ring.publish_events(fill, range(6))
    assert handler.values == [0, 1, 2, 3, 4, 4, 5]


async def test_what_was_reported_as_done_does_not_come_again() -> None:
    class Reporting(Recorder):
        mine: Sequence

        def set_sequence_callback(self, sequence: Sequence) -> None:
            self.mine = sequence

        def on_event(self, event: Event, sequence: int, end_of_batch: bool) -> None:
            super()._record(event, sequence, end_of_batch)
            if sequence == 1 and self.mine.value < 0:
                self.mine.value = 0
                raise RewindBatch

    disruptor = small(8)
    handler = Reporting()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        await ring.publish_events(fill, range(4))
    assert handler.values == [0, 1, 1, 2, 3]


async def test_after_so_many_attempts_it_is_an_error() -> None:
    errors: list[tuple[Exception, int]] = []
    disruptor = small(8)
    handler = Rewinding(1, 3)
    disruptor.handle_events_with(handler, rewind=Rewind(attempts=2))
    disruptor.handle_exceptions_with(lambda *args: errors.append((args[0], args[1])))
    async with disruptor as ring:
        await ring.publish_events(fill, range(3))

    assert handler.values == [0, 1] * 3 + [2]
    assert [(type(error), at) for error, at in errors] == [(RewindBatch, 1)]


async def test_attempts_are_counted_anew_for_each_batch() -> None:
    class Twice(Recorder):
        tried = -1

        def on_event(self, event: Event, sequence: int, end_of_batch: bool) -> None:
            if self.tried < sequence:
                self.tried = sequence
                raise RewindBatch
            super()._record(event, sequence, end_of_batch)

    errors: list[object] = []
    disruptor = small(8)
    handler = Twice()
    disruptor.handle_events_with(handler, max_batch=1, rewind=Rewind(attempts=1))
    disruptor.handle_exceptions_with(lambda *args: errors.append(args))
    async with disruptor as ring:
        await ring.publish_events(fill, range(20))
    assert handler.values == [*range(20)]
    assert not errors


async def test_a_rewind_pauses() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    disruptor = small(8)
    disruptor.handle_events_with(Rewinding(0, 3), rewind=Rewind(pause=2.0))
    async with disruptor as ring:
        await ring.publish_events(fill, range(3))
    assert loop.time() - started == pytest.approx(6)


async def test_batch_handlers_and_workers_rewind_too() -> None:
    calls: list[tuple[str, int, int]] = []

    class Batches:
        name = "batches"

        def on_batch(self, events: list[Event], first_sequence: int) -> None:
            calls.append((self.name, first_sequence, len(events)))
            if len([call for call in calls if call[0] == self.name]) == 1:
                raise RewindBatch

    worker = Batches()
    worker.name = "worker"
    disruptor = small(8)
    disruptor.handle_events_with(Batches())
    disruptor.handle_events_with_worker_pool(worker)
    async with disruptor as ring:
        await ring.publish_events(fill, range(3))
    assert [call for call in calls if call[0] == "batches"] == [("batches", 0, 3)] * 2
    assert [call[1] for call in calls if call[0] == "worker"] == [0, 0, 1, 2]


async def test_of_batches_around_a_gap_each_is_rewound_for_itself() -> None:
    """Who has returned has handled its batch; and each may be rewound so often."""
    calls: list[tuple[int, int]] = []

    class Batches:
        async def on_batch(self, events: list[Event], first_sequence: int) -> None:
            call = first_sequence, len(events)
            calls.append(call)
            if calls.count(call) == 1:
                raise RewindBatch

    errors: list[object] = []
    disruptor = small(8)
    disruptor.handle_events_with(Batches(), rewind=Rewind(attempts=1))
    disruptor.handle_exceptions_with(lambda *args: errors.append(args))
    async with disruptor as ring:
        high = await ring.claim(5)
        ring.abandon(2)
        ring.publish(3, high)
        ring.publish(0, 1)
    assert calls == [(0, 2)] * 2 + [(3, 2)] * 2
    assert not errors


def test_rewind_is_checked() -> None:
    for pause in (-1.0, math.nan, math.inf, 10**400):
        with pytest.raises(InvalidArgument, match=r"^pause must be >= 0, got"):
            Rewind(pause=pause)
    with pytest.raises(
        InvalidArgument, match=r"^attempts must be >= 0 or None, got -1"
    ):
        Rewind(attempts=-1)
    with pytest.raises(TypeError, match=r"^attempts must be an int, got nan"):
        Rewind(attempts=math.nan)  # type: ignore[arg-type]
