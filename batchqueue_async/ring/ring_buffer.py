"""Slots that are filled again and again, and the verbs of their producers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, Generic, TypeVar, TypeVarTuple

from .barrier import SequenceBarrier
from .multi_producer import MultiProducerSequencer
from .producer_type import ProducerType
from .sequence import Sequence
from .sequencer import Sequencer
from .single_producer import SingleProducerSequencer
from .slot import Slot
from .wait_strategies import WaitStrategy

E = TypeVar("E")
A = TypeVar("A")
Ts = TypeVarTuple("Ts")


class RingBuffer(Generic[E]):
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

    __slots__ = ("_capacity", "_events", "_mask", "_sequencer")

    def __init__(
        self,
        factory: Callable[[], E],
        capacity: int,
        producer: ProducerType = ProducerType.MULTI,
        wait: WaitStrategy | None = None,
    ) -> None:
        self._sequencer: Sequencer = (
            SingleProducerSequencer(capacity, wait)
            if producer is ProducerType.SINGLE
            else MultiProducerSequencer(capacity, wait)
        )
        self._capacity = capacity
        self._mask = capacity - 1
        self._events = [factory() for _ in range(capacity)]

    def __getitem__(self, sequence: int) -> E:
        """Return the event in the sequence's slot, whoever may use it now."""
        return self._events[sequence & self._mask]

    def events(self, low: int, high: int) -> list[E]:
        """Return the events of the sequences `low` to `high` in a new list.

        Filling or reading them from there is faster than one by one.
        """
        first, after = low & self._mask, (high & self._mask) + 1
        if first < after:
            return self._events[first:after]
        return self._events[first:] + self._events[:after]

    @property
    def capacity(self) -> int:
        """How many events the ring holds."""
        return self._capacity

    @property
    def cursor(self) -> int:
        """The highest sequence published (one producer) or claimed (many)."""
        return self._sequencer.cursor

    @property
    def sequencer(self) -> Sequencer:
        """What gives out the ring's sequences."""
        return self._sequencer

    def remaining_capacity(self) -> int:
        """Return how many sequences could be claimed now if nobody waited."""
        return self._sequencer.remaining_capacity()

    def is_available(self, sequence: int) -> bool:
        """Whether the sequence is published, and its slot not used again."""
        return self._sequencer.is_available(sequence)

    # --- two steps: claim, fill, publish

    def claim(self, n: int = 1) -> Coroutine[Any, Any, int]:
        """Claim `n` sequences: those up to the returned one are the caller's.

        Waits, first come, first served, while that would overwrite what the slowest
        gating consumer has not passed. Cancelled while it waits, it claims nothing.
        What was claimed must be published, or abandoned: consumers wait for it.

        Raises:
            InvalidArgument: `n` is less than 1 or more than the capacity.
            RingHalted: The ring was shut down or halted, perhaps during the wait.
            RingError: A handler waits for room that only itself can make.
        """
        return self._sequencer.claim(n)

    def try_claim(self, n: int = 1) -> int:
        """Claim `n` sequences without waiting; returns the highest.

        Raises:
            InsufficientCapacity: There is no room, or others wait for some.
            InvalidArgument: `n` is less than 1 or more than the capacity.
            RingHalted: The ring was shut down or halted.
        """
        return self._sequencer.try_claim(n)

    def publish(self, low: int, high: int | None = None) -> None:
        """Make the claimed sequences `low` to `high` visible to consumers.

        Raises:
            RingError: They are not claimed, or were published before.
        """
        self._sequencer.publish(low, high)

    def abandon(self, low: int, high: int | None = None) -> None:
        """Publish claimed sequences without events: consumers skip them.

        Raises:
            RingError: They are not claimed, or were published before.
        """
        self._sequencer.abandon(low, low if high is None else high)

    def slot(self) -> Slot[E]:
        """Claim one event for an `async with` block, which fills it.

        It is published at the end. If the block raises, or is cancelled, the slot is
        abandoned, and consumers skip it. Waits and raises as `claim` does.
        """
        return Slot(self._sequencer, self._events)

    # --- one step: publish

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

        Takes as many slots at a time as there are, and publishes them together. Not
        atomic: cancelled or raising midway, what was filled before stays published, and
        the rest of what was claimed is abandoned. Waits and raises as `claim` does.
        """
        sequencer = self._sequencer
        published = 0
        source = iter(items)
        while chunk := list(islice(source, self._capacity)):
            done = 0
            while done < len(chunk):
                n = min(len(chunk) - done, max(1, sequencer.remaining_capacity()))
                high = await sequencer.claim(n)
                self._fill(high - n + 1, high, fill, chunk[done : done + n])
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

    # --- consumers

    def new_barrier(self, *dependencies: Sequence) -> SequenceBarrier:
        """Return a barrier for a consumer that comes after these, or after none."""
        return self._sequencer.new_barrier(*dependencies)

    def add_gating_sequences(self, *sequences: Sequence) -> None:
        """Let nothing be overwritten that these have not passed, as they stand now."""
        self._sequencer.add_gating_sequences(*sequences)

    def remove_gating_sequence(self, sequence: Sequence) -> bool:
        """Let producers no longer wait for it; returns whether they did."""
        return self._sequencer.remove_gating_sequence(sequence)

    def halt(self, cause: BaseException | None = None) -> None:
        """Take no more claims, and stop all consumers after what they are at."""
        self._sequencer.halt(cause)
