"""A partition that displaces its oldest items when it is full (DROP_OLDEST)."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from batchqueue_async._engine.partition import Partition

T = TypeVar("T")


class RollingPartition(Partition[T]):
    """Nobody waits here: a new item always gets in, at the cost of the oldest.

    Displaced items were accepted, so they count as dropped, and `on_drop` gets them.
    """

    def __init__(
        self,
        index: int,
        buffer_size: int,
        due_size: int,
        on_drop: Callable[[list[T]], None],
    ) -> None:
        super().__init__(index, buffer_size, due_size)
        # There is always room.
        self._full_at = sys.maxsize
        self._on_drop = on_drop
        self._displaced: list[T] = []

    def _init(self, maxsize: int) -> None:
        # A list would move all its items for each one that leaves at its front.
        self._rolling: deque[T] = deque()
        self.items = self._rolling

    def offer(self, chunk: Sequence[T]) -> int:
        with self._guard:
            accepted = super().offer(chunk)
            displaced, self._displaced = self._displaced, []
        # Not before: a `__del__` of theirs finds the change made and the guard free.
        del displaced
        return accepted

    def _accept(self, chunk: Sequence[T]) -> int:
        surplus = len(self.items) + len(chunk) - self.maxsize
        if surplus > 0:
            displaced = self._remove(surplus)
            # Longer than the whole partition: its own first items go, too.
            passed = surplus - len(displaced)
            displaced.extend(chunk[:passed])
            self.accounts.remove_waiting("dropped", surplus)
            self._on_drop(displaced)
            self._displaced = displaced
            self._append(chunk[passed:])
        else:
            self._append(chunk)
        return len(chunk)

    def _remove(self, most: int | None) -> list[T]:
        items = self._rolling
        if most is None or len(items) <= most:
            self._forget(len(items))
            # What a `__del__` or a signal handler puts in from here on stays there.
            self._rolling = self.items = deque()
            return list(items)
        self._forget(most)
        return [items.popleft() for _ in range(most)]
