"""Slots that are filled again and again, and who may use which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from .barrier import SequenceBarrier
from .claim import Claim
from .errors import InvalidArgument
from .multi_producer import MultiProducerSequencer
from .producer_type import ProducerType
from .sequence import Sequence
from .sequencer import Sequencer
from .single_producer import SingleProducerSequencer
from .wait_strategies import WaitStrategy

E = TypeVar("E")


class Slots(Generic[E]):
    """The events of a ring, and publication in two steps; see `RingBuffer`."""

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

        Raises:
            InvalidArgument: They are more than the capacity.
        """
        if not 0 < high - low + 1 <= self._capacity:
            if high < low:
                return []
            msg = f"{low} to {high} are more than the {self._capacity} slots"
            raise InvalidArgument(msg)
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
        """Whether the sequence is published, and its slot not used for the next lap.

        That is: not claimed again (one producer), or not published again (many).
        """
        return self._sequencer.is_available(sequence)

    # --- producers: claim, fill, publish

    def claim(self, n: int = 1) -> Claim[E]:
        """Claim `n` sequences: those up to the returned one are the caller's.

            high = await ring.claim(n)
            async with ring.claim() as event: ...

        Waits, first come, first served, while that would overwrite what the slowest
        gating consumer has not passed. Cancelled while it waits, it claims nothing.
        What was claimed must be published, or abandoned: consumers wait for it. The
        block does it: it publishes its event at the end; if it raises, or is cancelled,
        the slot is abandoned, and consumers skip it.

        Raises:
            InvalidArgument: `n` is less than 1 or more than the capacity; not 1, for a
                block.
            RingHalted: The ring was shut down or halted, perhaps during the wait.
            RingError: A handler waits for room that only itself can make.
        """
        return Claim(self._sequencer, self._events, n)

    def slot(self) -> Claim[E]:
        """Claim one event for an `async with` block: `claim()`, as it reads there."""
        return Claim(self._sequencer, self._events, 1)

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
