"""Slots that are filled again and again, and the verbs of those who fill them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from enum import Enum
from operator import index
from typing import Any, Generic, TypeVar, TypeVarTuple

from batchqueue_async import _validation
from batchqueue_async._chunks import chunks
from batchqueue_async._count_in_error import say_count

from .errors import InvalidArgument, RingError, RingPart
from .event_handler import refuse_unrun
from .sequence import Sequence
from .sequence_barrier import SequenceBarrier, WaitStrategy
from .sequencer import MultiProducerSequencer
from .single_producer_sequencer import SingleProducerSequencer

E = TypeVar("E")
A = TypeVar("A")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class ProducerType(Enum):
    """How many producers a ring has, and so which sequencer it uses."""

    SINGLE = "single"
    """One producer, publishing in order: `cursor` is what it has published."""
    MULTI = "multi"
    """Any number of producers, which may await between claim and publication."""


class Claim(RingPart, Coroutine[Any, Any, int], Generic[E]):
    """One claim, for an `await` or an `async with` block; see `RingBuffer.claim`.

    Before that nothing is claimed; in a block, `sequence` is what was claimed.
    """

    __name__ = "claim"  # For the `repr` of tasks.
    __slots__ = ("_events", "_is_open", "_n", "_run", "_sequencer", "sequence")

    sequence: int
    _run: Generator[Any, Any, int]

    def __init__(
        self, sequencer: MultiProducerSequencer, events: list[E], n: int
    ) -> None:
        self._sequencer = sequencer
        self._events = events
        self._n = n
        self._is_open = False

    def __await__(self) -> Generator[Any, Any, int]:
        # Does what the sequencer's `claim` does, without the cost of a coroutine.
        sequencer, n = self._sequencer, self._n
        high = sequencer.claimed + n
        if n > 0 and high <= sequencer.limit:
            sequencer.claimed = high
            return high
        high_or_none = sequencer.claim_now(n)
        if high_or_none is not None:
            return high_or_none
        return (yield from sequencer.claim_in_turn(n).__await__())

    def send(self, value: Any) -> Any:  # noqa: ANN401
        """Run on, as a coroutine does."""
        return self._running().send(value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401
        """Raise an error where it waits, as a coroutine does."""
        return self._running().throw(*error)

    def close(self) -> None:
        """Give up, as a coroutine does: nothing is claimed."""
        self._running().close()

    def _running(self) -> Generator[Any, Any, int]:
        if not hasattr(self, "_run"):
            self._run = self.__await__()
        return self._run

    async def __aenter__(self) -> E:
        if self._n != 1:
            msg = f"a block fills one event, not {self._n}: await the claim instead"
            raise InvalidArgument(msg)
        if self._is_open:
            # One of the two sequences would be forgotten, and consumers wait for it.
            msg = "a claim fills one event at a time: call `claim` for each block"
            raise RingError(msg)
        self._is_open = True
        mask = len(self._events) - 1
        try:
            # No call after it, at which a signal handler might raise: nobody would
            # publish.
            self.sequence = await self
        except BaseException:
            self._is_open = False
            raise
        return self._events[self.sequence & mask]

    async def __aexit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> None:
        self._is_open = False
        sequencer, sequence = self._sequencer, self.sequence
        if error is None:
            try:
                sequencer.publish(sequence)
            except BaseException as failure:
                sequencer.given_up += ((sequence, sequence),)
                say_count(failure, "published", sequencer.give_up(sequence, sequence))
                raise
        else:
            sequencer.given_up += ((sequence, sequence),)
            sequencer.give_up(sequence, sequence)


class RingBuffer(RingPart, Generic[E]):
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
        InvalidArgument: The capacity is no power of two, or `factory` is async.
        TypeError: `factory`, `producer` or `wait` is something else, such as a class of
            wait strategies in place of one of its objects.
    """

    def __init__(
        self,
        factory: Callable[[], E],
        capacity: int,
        producer: ProducerType = ProducerType.MULTI,
        wait: WaitStrategy | None = None,
    ) -> None:
        _validation.require_callable("factory", factory)
        rule = "ProducerType.SINGLE or ProducerType.MULTI"
        _validation.require_instance("producer", producer, ProducerType, rule)
        self.sequencer: MultiProducerSequencer = (
            SingleProducerSequencer(capacity, wait)
            if producer is ProducerType.SINGLE
            else MultiProducerSequencer(capacity, wait)
        )
        """What gives out the ring's sequences."""
        self.capacity: int = capacity
        """How many events the ring holds."""
        self._mask = capacity - 1
        refuse_unrun("factory", factory, first := factory())
        self._events = [first, *(factory() for _ in range(1, capacity))]

    def __getitem__(self, sequence: int) -> E:
        """Return the event in the sequence's slot, whoever may use it now."""
        return self._events[sequence & self._mask]

    def events(self, low: int, high: int) -> list[E]:
        """Return the events of the sequences `low` to `high` in a new list.

        Filling or reading them from there is faster than one by one.

        Raises:
            InvalidArgument: They are more than the capacity.
        """
        if not 0 < high - low + 1 <= self.capacity:
            if high < low:
                return []
            msg = f"{low} to {high} are more than the {self.capacity} slots"
            raise InvalidArgument(msg)
        first, after = low & self._mask, (high & self._mask) + 1
        if first < after:
            return self._events[first:after]
        return self._events[first:] + self._events[:after]

    @property
    def cursor(self) -> int:
        """The highest sequence published (one producer) or claimed (many)."""
        return self.sequencer.cursor

    def remaining_capacity(self) -> int:
        """Return how many sequences could be claimed now if nobody waited."""
        return self.sequencer.remaining_capacity()

    def is_available(self, sequence: int) -> bool:
        """Whether the sequence is published, and its slot not used for the next lap.

        That is: not claimed again (one producer), or not published again (many).
        """
        return self.sequencer.is_available(sequence)

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
            TypeError: `n` is no whole number.
            RingHalted: The ring was shut down or halted, perhaps during the wait.
            RingError: A handler waits for room that only itself can make; or a block
                of the same claim has not ended.
        """
        # `index` refuses fractions: after one, no later claim could be published.
        return Claim(self.sequencer, self._events, index(n))

    def slot(self) -> Claim[E]:
        """Claim one event for an `async with` block: `claim()`, as it reads there."""
        return Claim(self.sequencer, self._events, 1)

    def try_claim(self, n: int = 1) -> int:
        """Claim `n` sequences without waiting; returns the highest.

        Raises:
            InsufficientCapacity: There is no room, or others wait for some.
            InvalidArgument: `n` is less than 1 or more than the capacity.
            TypeError: `n` is no whole number.
            RingHalted: The ring was shut down or halted.
        """
        return self.sequencer.try_claim(index(n))

    def publish(self, low: int, high: int | None = None) -> None:
        """Make the claimed sequences `low` to `high` visible to consumers.

        Raises:
            RingError: They are not claimed, or were published before.
            RingHalted: The ring was halted, so that no consumer would get them.
        """
        self.sequencer.publish(low, high)

    def abandon(self, low: int, high: int | None = None) -> None:
        """Publish claimed sequences without events: consumers skip them.

        Raises:
            RingError: They are not claimed, or were published before.
        """
        self.sequencer.abandon(low, low if high is None else high)

    # --- producers: all of it in one step

    async def publish_event(
        self, fill: Callable[[E, int, *Ts], object], *args: *Ts
    ) -> None:
        """Claim a slot, call `fill(event, sequence, *args)`, publish.

        Waits and raises as `claim` does. If `fill`, a plain function, raises, the slot
        is abandoned.
        """
        sequencer = self.sequencer
        sequence = sequencer.claimed + 1
        if sequence <= sequencer.limit:
            sequencer.claimed = sequence
        else:
            sequence = await sequencer.claim()
        try:
            event = self._events[sequence & self._mask]
            if len(args) == 1:  # Unpacking would cost half as much again.
                result = fill(event, sequence, args[0])  # type: ignore[misc]
            else:
                result = fill(event, sequence, *args)
            if result is not None:
                refuse_unrun("fill", fill, result)
            sequencer.publish(sequence)
        except BaseException as error:
            sequencer.given_up += ((sequence, sequence),)
            say_count(error, "published", sequencer.give_up(sequence, sequence))
            raise

    def try_publish_event(
        self, fill: Callable[[E, int, *Ts], object], *args: *Ts
    ) -> bool:
        """Publish as `publish_event` does; returns False instead of waiting.

        Raises:
            RingHalted: The ring was shut down or halted.
        """
        sequencer = self.sequencer
        sequence = sequencer.claimed + 1
        if sequence <= sequencer.limit:
            sequencer.claimed = sequence
        else:
            sequence_or_none = sequencer.claim_now(1)
            if sequence_or_none is None:
                return False
            sequence = sequence_or_none
        try:
            event = self._events[sequence & self._mask]
            if len(args) == 1:  # Unpacking would cost half as much again.
                result = fill(event, sequence, args[0])  # type: ignore[misc]
            else:
                result = fill(event, sequence, *args)
            if result is not None:
                refuse_unrun("fill", fill, result)
            sequencer.publish(sequence)
        except BaseException as error:
            sequencer.given_up += ((sequence, sequence),)
            say_count(error, "published", sequencer.give_up(sequence, sequence))
            raise
        return True

    async def publish_events(
        self, fill: Callable[[E, int, A], object], items: Iterable[A]
    ) -> int:
        """Call `fill(event, sequence, item)` for each item; returns how many.

        Takes as many slots at a time as there are, and publishes them together; reads
        up to a whole ring of items ahead. Not atomic: cancelled or raising midway, what
        was filled before stays published, and the rest of what was claimed is
        abandoned; how many events those are says the attribute `published` of what it
        raises. Waits and raises as `claim` does.
        """
        published = 0
        try:
            for portion in portions(self, items):
                n = len(portion)
                high = await self.sequencer.claim(n)
                try:
                    fill_and_publish(
                        self, high - n + 1, fill, portion, self.sequencer.publish
                    )
                except BaseException:
                    self.sequencer.given_up += ((high - n + 1, high),)
                    published += self.sequencer.give_up(high - n + 1, high)
                    raise
                published += n
        except BaseException as error:
            say_count(error, "published", published)
            raise
        return published

    # --- consumers

    def new_barrier(self, *dependencies: Sequence) -> SequenceBarrier:
        """Return a barrier for a consumer that comes after these, or after none."""
        return self.sequencer.new_barrier(*dependencies)

    def add_gating_sequences(self, *sequences: Sequence) -> None:
        """Let producers wait for these, from their present values on."""
        self.sequencer.add_gating_sequences(*sequences)

    def remove_gating_sequence(self, sequence: Sequence) -> bool:
        """Let producers no longer wait for it; returns whether they did."""
        return self.sequencer.remove_gating_sequence(sequence)

    def halt(self, cause: BaseException | None = None) -> None:
        """Take no more claims, and stop all consumers after their current batch."""
        self.sequencer.halt(cause)


def portions(ring: RingBuffer[Any], items: Iterable[A]) -> Iterator[list[A]]:
    """Yield the items in portions for which there is room now, or else one by one."""
    for chunk in chunks(items, ring.capacity):
        done = 0
        while done < len(chunk):
            n = min(len(chunk) - done, max(1, ring.remaining_capacity()))
            yield chunk[done : done + n]
            done += n


def fill_and_publish(
    ring: RingBuffer[E],
    low: int,
    fill: Callable[[E, int, A], object],
    items: list[A],
    publish: Callable[[int, int], R],
) -> R:
    """Fill claimed slots and publish them; after an error those that were filled."""
    high = low + len(items) - 1
    sequence = low
    try:
        for event, item in zip(ring.events(low, high), items, strict=True):
            result = fill(event, sequence, item)
            if result is not None:
                refuse_unrun("fill", fill, result)
            sequence += 1
    except BaseException:
        if sequence > low:
            publish(low, sequence - 1)
        raise
    return publish(low, high)
