"""Numbers that only grow, and who is told when they have grown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from batchqueue_async._validation import require_instance

from .errors import RingPart, require_count

INITIAL: Final = -1
"""What a sequence is before the first event, which is number 0."""


class Notifier(RingPart):
    """Calls each waiter back, once, when a number has grown."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[Callable[[], None]] = []

    def add_waiter(self, recheck: Callable[[], None]) -> None:
        """Call `recheck`, once, when the number has grown."""
        self._waiters.append(recheck)

    def remove_waiter(self, recheck: Callable[[], None]) -> None:
        """Forget `recheck`, if it is a waiter."""
        if recheck in self._waiters:
            self._waiters.remove(recheck)

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        try:
            for recheck in waiters:
                recheck()
        except BaseException:
            # A signal handler has raised: who was told already looks again, in vain.
            again, self._waiters = [*waiters, *self._waiters], []
            try:
                for recheck in again:
                    recheck()
            except BaseException:
                # At the recursion limit no call succeeds: they are told the next time.
                self._waiters = [*again, *self._waiters]
                raise
            raise


class Sequence(Notifier):
    """The number of the last event that was passed: a counter that only grows.

    Setting `value` tells those who wait for it: consumers further down the graph, and
    claims. It is set on the loop only, and once per batch.

    Args:
        value: Where it starts; `-1`, before the first event, by default.

    Raises:
        InvalidArgument, TypeError: It is less than that, or no int.
    """

    __slots__ = ("_value",)

    def __init__(self, value: int = INITIAL) -> None:
        super().__init__()
        require_count("value", value, INITIAL, f">= {INITIAL}")
        self._value = value

    @property
    def value(self) -> int:
        """The last event that was passed."""
        return self._value

    @value.setter
    def value(self, value: int) -> None:
        self._value = value
        if self._waiters:
            self._notify()

    def __repr__(self) -> str:
        return f"Sequence({self._value})"


def require_sequences(sequences: tuple[Sequence, ...]) -> tuple[Sequence, ...]:
    """Return them; refuse what is none, such as a consumer."""
    for each in sequences:
        require_instance("sequences", each, Sequence, "of Sequence alone")
    return sequences


def minimum(sequences: Iterable[Sequence], default: int) -> int:
    """Return the lowest of the sequences; `default` if there are none."""
    return min([sequence.value for sequence in sequences], default=default)
