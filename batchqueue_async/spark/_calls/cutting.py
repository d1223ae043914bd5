"""Rows that wait for their call, and how they are cut into calls' items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any

from batchqueue_async._wording import kind_of

from .results import joined, rows_of

if TYPE_CHECKING:
    import pyarrow as pa


class WaitingRows:
    """Record batches as Spark delivers them, on one side; a call's items on the other.

    Only what a call takes is made into items, so what waits stays columns. Of the
    `max_batch` items of a call a record batch counts its rows.
    """

    def __init__(
        self,
        to_items: Callable[[pa.RecordBatch], Iterable[Any]],
        max_batch: int,
        *,
        keeps_input: bool,
    ) -> None:
        self._to_items = to_items
        self._max_batch = max_batch
        self._keeps_input = keeps_input
        # With the time of its arrival.
        self._batches: deque[tuple[pa.RecordBatch, float]] = deque()
        # How many rows of the first one are gone.
        self._used = 0
        # Where a row becomes several items: those that were too many for a call.
        self._made: deque[Any] = deque()
        self.rows = 0
        # How many calls the largest record batch up to now makes.
        self.calls_of_a_batch = 0

    def __bool__(self) -> bool:
        return bool(self.rows or self._made)

    def add(self, batch: pa.RecordBatch, now: float) -> None:
        if batch.num_rows:
            self._batches.append((batch, now))
            self.rows += batch.num_rows
            calls = ceil(batch.num_rows / self._max_batch)
            self.calls_of_a_batch = max(self.calls_of_a_batch, calls)

    @property
    def wants_more(self) -> bool:
        """Whether another record batch should be read: two are enough, if not tiny."""
        return len(self._batches) <= 1 or self.rows < self._max_batch

    @property
    def is_enough(self) -> bool:
        return self.rows + len(self._made) >= self._max_batch

    @property
    def oldest(self) -> float:
        """When the first of what waits arrived; of anything that does."""
        return self._batches[0][1] if self._batches else 0.0

    def cut(self) -> tuple[list[Any], pa.RecordBatch | None]:
        """Take a call's items out, and their rows if they are kept.

        There are none at all if no rows that wait make any.
        """
        items = [*islice(self._made, self._max_batch)]
        for _ in items:
            self._made.popleft()
        parts: list[pa.RecordBatch] = []
        size = rows_of(items)
        while size < self._max_batch and self.rows:
            part = self._take(self._max_batch - size)
            made = [*self._to_items(part)]
            size += rows_of(made)
            if self._keeps_input:
                self._require_all_rows(part, made)
                parts.append(part)
            items.extend(made)
        self._made.extend(items[self._max_batch :])
        del items[self._max_batch :]
        return items, joined(parts, parts[0].schema) if parts else None

    def _take(self, most: int) -> pa.RecordBatch:
        batch, _ = self._batches[0]
        part = batch.slice(self._used, most)
        self._used += part.num_rows
        self.rows -= part.num_rows
        if self._used == batch.num_rows:
            self._batches.popleft()
            self._used = 0
        return part

    @staticmethod
    def _require_all_rows(part: pa.RecordBatch, made: list[Any]) -> None:
        found = rows_of(made)
        if found != part.num_rows:
            first = kind_of(made[0]) if made else "none"
            msg = (
                'with on_error="column" to_items must make one item per row, got'
                f" {found} ({first}) for {part.num_rows}"
            )
            raise ValueError(msg)
