"""A ring that is halted before its start tells what it leaves."""

from __future__ import annotations

import pytest

from batchqueue_async.ring import Disruptor, RingError
from tests.ring.events import Event, Recorder, fill, small


async def _halted() -> tuple[Disruptor[Event], list[int]]:
    told: list[int] = []

    def tell(error: Exception, sequence: int, event: object) -> None:
        assert isinstance(error, RingError)
        told.append(sequence)

    disruptor = small()
    disruptor.handle_events_with(Recorder("journal"), Recorder("replicate"))
    disruptor.handle_exceptions_with(tell)
    await disruptor.ring.publish_events(fill, range(3))
    return disruptor, told


async def test_a_halt_before_the_start_logs_what_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disruptor, told = await _halted()
    disruptor.halt()
    assert caplog.messages == [
        "ring consumer journal was halted before its start: 3 events are left",
        "ring consumer replicate was halted before its start: 3 events are left",
    ]
    await disruptor.shutdown()
    disruptor.halt()
    assert len(caplog.messages) == 2
    assert told == [], "as for a ring that runs"


async def test_a_shutdown_after_the_rings_halt_tells_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disruptor, told = await _halted()
    disruptor.ring.halt()
    await disruptor.shutdown()
    await disruptor.shutdown()
    assert len(caplog.messages) == 2
    assert told == [0, 1, 2] * 2
