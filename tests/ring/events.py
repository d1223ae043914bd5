"""Events, the function that fills them, and handlers that record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from batchqueue_async.ring import (
    Disruptor,
    ProducerType,
    RingBuffer,
    Sequence,
    WaitStrategy,
)


class Event:
    """A slot: what it holds is overwritten, so handlers copy what they keep."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None


def fill(event: Event, sequence: int, value: object) -> None:
    event.value = value


def mark(event: Event, sequence: int) -> None:
    """Fill an event with something that tells its sequence."""
    event.value = sequence * 7


class Recorder:
    """Records what it sees; waits before each event if it has a gate."""

    def __init__(
        self, name: str = "recorder", gate: asyncio.Event | None = None
    ) -> None:
        self.name = name
        self.gate = gate
        self.seen: list[tuple[int, Any, bool]] = []
        self.log: list[str] = []
        self.sizes: list[int] = []

    def on_event(
        self, event: Event, sequence: int, end_of_batch: bool
    ) -> Awaitable[None] | None:
        if self.gate is None:
            self._record(event, sequence, end_of_batch)
            return None
        return self._record_later(event, sequence, end_of_batch)

    def on_batch_start(self, size: int) -> None:
        self.sizes.append(size)

    def on_start(self) -> None:
        self.log.append("start")

    def on_shutdown(self) -> None:
        self.log.append("shutdown")

    @property
    def sequences(self) -> list[int]:
        return [sequence for sequence, _, _ in self.seen]

    @property
    def values(self) -> list[Any]:
        return [value for _, value, _ in self.seen]

    @property
    def ends(self) -> list[int]:
        """The sequences that ended a batch."""
        return [sequence for sequence, _, is_end in self.seen if is_end]

    def _record(self, event: Event, sequence: int, end_of_batch: bool) -> None:
        self.seen.append((sequence, event.value, end_of_batch))

    async def _record_later(
        self, event: Event, sequence: int, end_of_batch: bool
    ) -> None:
        assert self.gate is not None
        await self.gate.wait()
        self._record(event, sequence, end_of_batch)


def function(name: str) -> Callable[[Event, int, bool], None]:
    """Return a handler that does nothing and has a name."""

    def handler(event: Event, sequence: int, end_of_batch: bool) -> None: ...

    handler.__name__ = name
    return handler


def gated_ring(capacity: int = 4) -> tuple[RingBuffer[Event], Sequence]:
    """Return a ring, and the sequence of a consumer that the test moves itself."""
    ring = RingBuffer(Event, capacity)
    consumer = Sequence()
    ring.add_gating_sequences(consumer)
    return ring, consumer


async def turns(count: int = 20) -> None:
    """Let the loop turn: time may stand still, and some consumers never rest."""
    for _ in range(count):
        await asyncio.sleep(0)


def small(
    size: int = 8,
    producer: ProducerType = ProducerType.MULTI,
    wait: WaitStrategy | None = None,
) -> Disruptor[Event]:
    """Return a disruptor whose ring is soon full."""
    return Disruptor(Event, size, producer=producer, wait=wait)
