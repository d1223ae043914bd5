"""Slots, and publication in one step: what most producers use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar, TypeVarTuple

from .portions import portions
from .slots import Slots

E = TypeVar("E")
A = TypeVar("A")
Ts = TypeVarTuple("Ts")


class RingBuffer(Slots[E]):
    """A fixed number of events, made once, that producers fill and consumers read.

    Sequence `s` lives in slot `s & (capacity - 1)`. Everything is called on one loop;
    other threads use `SyncRing`. Without a gating sequence nothing holds producers
    back: `Disruptor` adds those of its last consumers.

    Args:
        factory: Makes one event; called once per slot, here and never again.
        capacity: How many slots; a power of two.
        producer: One producer or many.
        wait: How consumers wait; by default `BlockingWait`.

    Raises:
        InvalidArgument: The capacity is no power of two.
    """

    __slots__ = ()

    async def publish_event(
        self, fill: Callable[[E, int, *Ts], object], *args: *Ts
    ) -> None:
        """Claim a slot, call `fill(event, sequence, *args)`, publish.

        Waits and raises as `claim` does. If `fill`, a plain function, raises, the slot
        is abandoned.
        """
        sequencer = self._sequencer
        sequence = sequencer.claimed + 1
        if sequence <= sequencer.limit:
            sequencer.claimed = sequence
        else:
            sequence = await sequencer.claim()
        try:
            event = self._events[sequence & self._mask]
            if len(args) == 1:  # Unpacking would cost half as much again.
                fill(event, sequence, args[0])  # type: ignore[misc]
            else:
                fill(event, sequence, *args)
        except BaseException:
            sequencer.abandon(sequence, sequence)
            raise
        sequencer.publish(sequence)

    def try_publish_event(
        self, fill: Callable[[E, int, *Ts], object], *args: *Ts
    ) -> bool:
        """Publish as `publish_event` does; returns False instead of waiting.

        Raises:
            RingHalted: The ring was shut down or halted.
        """
        sequencer = self._sequencer
        sequence = sequencer.claimed + 1
        if sequence <= sequencer.limit:
            sequencer.claimed = sequence
        else:
            granted = sequencer.grant(1)
            if granted is None:
                return False
            sequence = granted
        try:
            event = self._events[sequence & self._mask]
            if len(args) == 1:  # Unpacking would cost half as much again.
                fill(event, sequence, args[0])  # type: ignore[misc]
            else:
                fill(event, sequence, *args)
        except BaseException:
            sequencer.abandon(sequence, sequence)
            raise
        sequencer.publish(sequence)
        return True

    async def publish_events(
        self, fill: Callable[[E, int, A], object], items: Iterable[A]
    ) -> int:
        """Call `fill(event, sequence, item)` for each item; returns how many.

        Takes as many slots at a time as there are, and publishes them together; reads
        up to a whole ring of items ahead. Not atomic: cancelled or raising midway, what
        was filled before stays published, and the rest of what was claimed is
        abandoned. Waits and raises as `claim` does.
        """
        sequencer = self._sequencer
        published = 0
        for portion in portions(items, self._capacity):
            done = 0
            while done < len(portion):
                n = min(len(portion) - done, max(1, sequencer.remaining_capacity()))
                high = await sequencer.claim(n)
                self._fill(high - n + 1, high, fill, portion[done : done + n])
                done += n
            published += done
        return published

    def _fill(
        self, low: int, high: int, fill: Callable[[E, int, A], object], items: list[A]
    ) -> None:
        sequence = low
        try:
            for event, item in zip(self.events(low, high), items, strict=True):
                fill(event, sequence, item)
                sequence += 1
        except BaseException:
            if sequence > low:
                self._sequencer.publish(low, sequence - 1)
            self._sequencer.abandon(sequence, high)
            raise
        self._sequencer.publish(low, high)
