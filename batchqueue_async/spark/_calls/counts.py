"""How many calls there were, and what came of their items."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class CallCounts:
    """What the calls of a `map_async` came to, in tasks that Spark has accepted.

    Attributes:
        calls: How many times `call` was called, further attempts included.
        items: How many items were given to it, each counted once.
        retried: How many items were given to it again, counted each time.
        failed: How many items ended as failed, with `on_error="null"` or `"column"`.
    """

    calls: int = 0
    items: int = 0
    retried: int = 0
    failed: int = 0

    def __add__(self, other: CallCounts) -> CallCounts:
        return CallCounts(*map(sum, zip(astuple(self), astuple(other), strict=True)))
