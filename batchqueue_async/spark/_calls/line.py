"""The calls that have begun, until their rows leave: in which order, and how many."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from .call import Call


class CallLine:
    """Says whose rows leave next, and whether there is a place for one more call.

    Where the order is kept a settled call waits in the line for those before it. It
    keeps its place among those in flight, unless the reorder buffer takes it.

    Args:
        in_flight: How many places there are.
        is_ordered: Whether rows leave in the order in which calls began.
        reorder_buffer: How many settled calls have a place beside those. None: as many
            as one of Spark's record batches makes while the first in the line, which
            the others wait for, is tried again; otherwise none.
    """

    def __init__(
        self, in_flight: int, *, is_ordered: bool, reorder_buffer: int | None
    ) -> None:
        self._in_flight = in_flight
        self._is_ordered = is_ordered
        self._reorder_buffer = reorder_buffer
        # In their order; empty where that isn't kept.
        self._ordered: deque[Call] = deque()
        self._calls = 0

    def __len__(self) -> int:
        return self._calls

    @property
    def is_buffering(self) -> bool:
        """Whether settled calls wait beside those in flight."""
        return self._calls > self._in_flight

    def has_place(self, calls_of_a_batch: int) -> bool:
        """Whether another call may join.

        Args:
            calls_of_a_batch: How many calls one of Spark's record batches makes.
        """
        if self._calls < self._in_flight:
            return True
        beside = self._reorder_buffer
        if beside is None:
            first = self._ordered[0] if self._ordered else None
            is_retried = first is not None and first.is_tried_again
            beside = calls_of_a_batch if is_retried else 0
        return self._calls < self._in_flight + beside

    def join(self, call: Call) -> None:
        """A call begins."""
        self._calls += 1
        if self._is_ordered:
            self._ordered.append(call)

    def leave(self, settled: Call) -> Iterator[Call]:
        """A call is settled: take out those whose rows may leave now."""
        if not self._is_ordered:
            self._calls -= 1
            yield settled
            return
        while self._ordered and self._ordered[0].is_settled:
            self._calls -= 1
            yield self._ordered.popleft()
