"""How far a consumer has come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .watching import Watched

INITIAL: Final = -1
"""What a sequence is before the first event, which is number 0."""


class Sequence(Watched):
    """The number of the last event that was passed: a counter that only grows.

    Setting `value` tells those who wait for it: consumers further down the graph, and
    claims. It is set on the loop only, and once per batch.

    Args:
        value: Where it starts; `-1`, before the first event, by default.
    """

    __slots__ = ("_value",)

    def __init__(self, value: int = INITIAL) -> None:
        super().__init__()
        self._value = value

    @property
    def value(self) -> int:
        """The last event that was passed."""
        return self._value

    @value.setter
    def value(self, value: int) -> None:
        self._value = value
        if self._watchers:
            self._tell()

    def __repr__(self) -> str:
        return f"Sequence({self._value})"


def minimum(sequences: Iterable[Sequence], default: int) -> int:
    """Return the lowest of the sequences; `default` if there are none."""
    return min([sequence.value for sequence in sequences], default=default)
