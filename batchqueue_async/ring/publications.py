"""What was claimed and what is published: as far as consumers may go.

What raises in the middle of a call may be a signal handler, after which the loop runs
on, as in a notebook. So each change is made where no call comes in between, and whoever
has claimed gives up by `give_up`, which may be called at any point.
"""

from __future__ import annotations

import contextlib
from asyncio import AbstractEventLoop
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from batchqueue_async._running_loop import running_loop

from .errors import RingError, RingHalted, require_power_of_two
from .sequence import INITIAL, Notifier


class Publications(Notifier):
    """Which sequences are claimed, and which of them consumers may see.

    Attributes:
        claimed: The highest claimed sequence, published or not.
        published: The highest sequence up to which all are published: consumers go no
            further, whatever was published beyond. A plain number, because producers
            touch it for every event.
        abandoned: Published without an event; forgotten some time after all passed.
        given_up: What claimers leave unpublished, until that is done. At the recursion
            limit their `give_up` fails; who publishes next does it for them. Without a
            call it is added to, by `+=`: there even C functions can't be called.
        is_closed: Whether no claim is granted any more.
        is_halted: Whether consumers are to stop after their current batch, and nothing
            is published any more.
        cause: The error that has halted the ring, if it was one; `has_told` says
            whether it was raised to a caller, `halted_at` by which event and handler.
        loop: That of the consumers, once some run, or there is a `SyncRing`.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        require_power_of_two("capacity", capacity)
        self.capacity: int = capacity
        self.claimed: int = INITIAL
        self.published: int = INITIAL
        # Sequences that are published beyond a gap.
        self._early: set[int] = set()
        self.abandoned: set[int] = set()
        self.given_up: list[tuple[int, int]] = []
        self._guard: AbstractContextManager[Any] = contextlib.nullcontext()
        self.is_closed: bool = False
        self.is_halted: bool = False
        self.cause: BaseException | None = None
        self.halted_at: str = ""
        self.loop: AbstractEventLoop | None = None
        self.has_told: bool = False

    @property
    def cursor(self) -> int:
        """The highest claimed sequence."""
        return self.claimed

    def own_loop(
        self,
        what: str = "the ring",
        msg: str = "handlers must run on their ring's own loop, and here runs another",
    ) -> AbstractEventLoop:
        """Return the running loop, if it is the ring's or that has none yet.

        Consumers on two loops, or on another than publishes what threads send, would
        touch each other's. A loop that is closed has none any more.
        """
        loop, own = running_loop(what), self.loop
        if own is not None and own is not loop and not own.is_closed():
            raise RingError(msg)
        return loop

    def is_available(self, sequence: int) -> bool:
        """Whether the sequence is published and its slot not yet published again."""
        oldest = max(0, self.published - self.capacity + 1)
        return sequence in self._early or (
            oldest <= sequence <= self.published
            and sequence + self.capacity not in self._early
        )

    def is_published(self, sequence: int) -> bool:
        """Whether it was published, if only beyond a gap."""
        return sequence <= self.published or sequence in self._early

    def with_events(self, sequences: Iterable[int]) -> list[int]:
        """Return those that hold an event, or may still get one: none does once halted.

        Whether consumers may go so far does not count: there may be a gap before it.
        """
        return [
            each
            for each in sequences
            if each not in self.abandoned
            and (not self.is_halted or self.is_published(each))
        ]

    def publish(self, low: int, high: int | None = None) -> None:
        """Make `low` to `high` visible to consumers; `high` is `low` by default.

        Beyond a gap they become visible when the gap is closed. What was claimed may be
        published after the ring was closed, too, but not after it was halted: no
        consumer would get it.

        Raises:
            RingError: They are not claimed, or were published before.
            RingHalted: The ring was halted.
        """
        if high is None:
            high = low
        early = self._early
        if early or low != self.published + 1 or not low <= high <= self.claimed:
            self._check(low, high)
            if self.given_up and low not in self.abandoned:
                self.settle()
        if self.is_halted and low not in self.abandoned:
            self.refuse_if_closed()
        is_early = low > self.published + 1
        if is_early:
            early.update((low,) if low == high else range(low, high + 1))
        else:
            self.published = high
        # In both cases: a signal handler may have published in between.
        while early and self.published + 1 in early:
            self.published += 1
            early.discard(self.published)
        if self._waiters and not (is_early and high > self.published):
            self._notify()

    def _check(self, low: int, high: int) -> None:
        early = self._early
        is_claimed = self.published < low <= high <= self.claimed
        # Not without a bound: all of a range is gone through.
        if not is_claimed or (
            low in early if low == high else not early.isdisjoint(range(low, high + 1))
        ):
            msg = f"{low} to {high} is not claimed, or published already"
            raise RingError(msg)

    def abandon(self, low: int, high: int) -> None:
        """Publish claimed sequences without events: consumers skip them."""
        self._check(low, high)
        with self._guard:
            # First: consumers must not see what is in their slots.
            self.abandoned.update(range(low, high + 1))
        self.publish(low, high)

    def give_up(self, low: int, high: int) -> int:
        """Abandon what of these claimed sequences was not published yet.

        Returns how many were: their events are in the ring.
        """
        mine = range(low, high + 1)
        published = [each for each in mine if self.is_published(each)]
        in_ring = sum(each not in self.abandoned for each in published)
        for sequence in mine:
            if not self.is_published(sequence):
                self.abandon(sequence, sequence)
        if (low, high) in self.given_up:
            self.given_up.remove((low, high))
        return in_ring

    def settle(self) -> None:
        """Give up again what was cut off as it was given up."""
        for low, high in self.given_up.copy():
            self.give_up(low, high)

    def make_up(self) -> None:
        """Do and tell what publications at the recursion limit could not."""
        self.settle()
        if self._waiters:
            self._notify()

    def refuse_if_closed(self) -> None:
        """Raise `RingHalted`, with its cause, if no claim is granted any more."""
        if self.is_closed:
            self.has_told = self.cause is not None
            halted = f"the ring was halted{self.halted_at}"
            msg = "the ring is closed" if self.cause is None else halted
            raise RingHalted(msg) from self.cause
